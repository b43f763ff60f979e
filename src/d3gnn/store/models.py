"""The versions of a pipeline's model, in its store."""

from __future__ import annotations

import tempfile
from pathlib import Path

from d3gnn.nn.model import GNN
from d3gnn.store.store import Store

_FOLDER = "models"


def put_model(store: Store, model: GNN) -> tuple[str, int]:
    """Write a model, unless it equals the newest one; returns its path in the store and its version."""
    names = store.list(_FOLDER)
    if names and _digest(names[-1]) == model.digest:
        return f"{_FOLDER}/{names[-1]}", _version(names[-1])
    version = _version(names[-1]) + 1 if names else 1
    path = f"{_FOLDER}/{version:06d}-{model.digest}.safetensors"
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        model.save(file.name)
        store.create(path, Path(file.name).read_bytes())
    return path, version


def get_model(store: Store, path: str) -> GNN:
    """The model at a path in the store."""
    data = store.read(path)
    if data is None:
        raise FileNotFoundError(f"no model {path} in the store {store.uri}")
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        Path(file.name).write_bytes(data)
        return GNN.load(file.name)


def newest_model(store: Store) -> tuple[str, int]:
    """Path and version of the newest model of a store."""
    names = store.list(_FOLDER)
    if not names:
        raise FileNotFoundError(f"the store {store.uri} has no model: no pipeline has started on it")
    return f"{_FOLDER}/{names[-1]}", _version(names[-1])


def _version(name: str) -> int:
    return int(name.split("-")[0])


def _digest(name: str) -> str:
    return name.split("-")[1].removesuffix(".safetensors")
