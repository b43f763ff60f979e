"""The versions of a pipeline's model, in its store."""

from __future__ import annotations

import tempfile
from pathlib import Path

from d3gnn.nn.model import GNN
from d3gnn.spark.store import Store

_FOLDER = "models"


def put_model(store: Store, model: GNN) -> tuple[str, int]:
    """Where in the store the model is, and its version: the newest one's if it is the same, else the next."""
    known = store.list(_FOLDER)
    if known and known[-1].split("-")[1].removesuffix(".safetensors") == model.digest:
        return f"{_FOLDER}/{known[-1]}", int(known[-1].split("-")[0])
    version = int(known[-1].split("-")[0]) + 1 if known else 1
    path = f"{_FOLDER}/{version:06d}-{model.digest}.safetensors"
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        model.save(file.name)
        store.create(path, Path(file.name).read_bytes())
    return path, version


def get_model(store: Store, path: str) -> GNN:
    """The model at this place in the store."""
    data = store.read(path)
    if data is None:
        raise FileNotFoundError(f"no model {path} in the store {store.uri}")
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        Path(file.name).write_bytes(data)
        return GNN.load(file.name)


def newest_model(store: Store) -> tuple[str, int]:
    """Place and version of the newest model of a store."""
    known = store.list(_FOLDER)
    if not known:
        raise FileNotFoundError(f"the store {store.uri} has no model: did a pipeline ever start on it?")
    return f"{_FOLDER}/{known[-1]}", int(known[-1].split("-")[0])
