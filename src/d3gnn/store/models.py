"""The versions of a pipeline's model, in its store: `models/VERSION-DIGEST-CHECKSUM.safetensors`."""

from __future__ import annotations

import tempfile
from hashlib import sha256
from pathlib import Path

from d3gnn.nn.model import GNN
from d3gnn.store.names import MODELS, files_in
from d3gnn.store.store import Store, StoreDamaged


def put_model(store: Store, model: GNN) -> tuple[str, int]:
    """Write a model, unless it equals the newest one; returns its path in the store and its version."""
    files = files_in(store, MODELS)
    if files and files[-1]["digest"] == model.digest:
        return f"{MODELS}/{files[-1].string}", int(files[-1]["number"])
    version = int(files[-1]["number"]) + 1 if files else 1
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        model.save(file.name)
        data = Path(file.name).read_bytes()
    path = f"{MODELS}/{version:06d}-{model.digest}-{_checksum(data)}.safetensors"
    store.create(path, data)
    return path, version


def read_model_file(store: Store, path: str) -> bytes:
    """The content of a model's file; raises `StoreDamaged` if it was changed."""
    data = store.read(path)
    if data is None:
        raise FileNotFoundError(f"no model {path} in the store {store.uri}")
    if not path.endswith(f"-{_checksum(data)}.safetensors"):
        raise StoreDamaged.of(path, store.uri, "its content does not match the checksum in its name")
    return data


def get_model(store: Store, path: str) -> GNN:
    """The model at a path in the store."""
    data = read_model_file(store, path)
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        Path(file.name).write_bytes(data)
        try:
            return GNN.load(file.name)
        except ValueError as error:  # such as a layer that is not registered here
            text = str(error).replace(file.name, path)
            raise ValueError(f"{path} in the store {store.uri}: {text}") from error


def newest_model(store: Store) -> tuple[str, int]:
    """Path and version of the newest model of a store."""
    files = files_in(store, MODELS)
    if not files:
        raise FileNotFoundError(
            f"no model in {MODELS} of the store {store.uri}: no pipeline has started on it"
        )
    return f"{MODELS}/{files[-1].string}", int(files[-1]["number"])


def _checksum(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]
