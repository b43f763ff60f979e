"""The versions of a pipeline's model, in its store."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from d3gnn.nn.model import GNN
from d3gnn.store.deployments import last_deployment
from d3gnn.store.record import create_record, read_record
from d3gnn.store.store import Store

_FOLDER, _SUFFIX = "models", ".safetensors"
_NAMES = f"{_FOLDER}/names"
_NAME = re.compile(r"(?!\d+$)[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class ModelVersion(NamedTuple):
    """A version of the model of a store. The same model always is the same version."""

    #: From 1, in the order in which models came to the store.
    version: int
    #: As it was deployed, or `v1`, `v2` and so on.
    name: str
    digest: str

    @property
    def path(self) -> str:
        """The file of the model in the store."""
        return f"{_FOLDER}/{self.version:06d}-{self.digest}{_SUFFIX}"


def put_model(store: Store, model: GNN, name: str | None = None) -> tuple[str, int]:
    """Write a model, unless the store has it; returns its path in the store and its version."""
    versions = list_models(store)
    found = next((each for each in versions if each.digest == model.digest), None)
    made = found or ModelVersion(_next_version(store, versions), "", model.digest)
    if name is not None:
        _check_name(name, made.version, versions)
    if found is None:
        with tempfile.NamedTemporaryFile(suffix=_SUFFIX) as file:
            model.save(file.name)
            store.create(made.path, Path(file.name).read_bytes())
    if name is not None:
        create_record(store, _name_path(made.version), {"name": name})
    return made.path, made.version


def get_model(store: Store, path: str) -> GNN:
    """The model at a path in the store."""
    data = store.read(path)
    if data is None:
        raise FileNotFoundError(f"no model {path} in the store {store.uri}")
    with tempfile.NamedTemporaryFile(suffix=_SUFFIX) as file:
        Path(file.name).write_bytes(data)
        return GNN.load(file.name)


def list_models(store: Store) -> list[ModelVersion]:
    """All versions in a store, in order."""
    found = []
    for file in store.list(_FOLDER):
        if file.endswith(_SUFFIX):
            number, _, digest = file.removesuffix(_SUFFIX).partition("-")
            version = int(number)
            record = read_record(store, _name_path(version))
            name = f"v{version}" if record is None else str(record["name"])
            found.append(ModelVersion(version, name, digest))
    return found


def find_model(store: Store, which: int | str) -> ModelVersion:
    """A version by its number or its name; raises ValueError for another one."""
    versions = list_models(store)
    for each in versions:
        if str(which) in (str(each.version), each.name):
            return each
    known = ", ".join(f"{each.version} ({each.name})" for each in versions) or "none"
    raise ValueError(f"no model {which!r} in the store {store.uri}; it has {known}")


def _next_version(store: Store, versions: list[ModelVersion]) -> int:
    """A number that no model had, also none whose file was lost: state may have been built with it."""
    last = last_deployment(store)
    deployed = (0, 0) if last is None else (last.model, last.given)
    return max(*deployed, *(each.version for each in versions)) + 1


def _check_name(name: str, version: int, versions: list[ModelVersion]) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"name={name!r}: use up to 64 letters, digits, '.', '_' and '-', not digits alone, with a letter "
            "or a digit first"
        )
    for each in versions:
        if each.name == name and each.version != version:
            raise ValueError(f"name={name!r} is the name of version {each.version}, another model")
        if each.version == version and each.name not in (name, f"v{version}"):
            raise ValueError(f"the model is version {version} of the store, with the name {each.name!r}")
    if re.fullmatch(r"v\d+", name) and name != f"v{version}":
        raise ValueError(f"name={name!r} stands for version {name[1:]}, but the model is version {version}")


def _name_path(version: int) -> str:
    return f"{_NAMES}/{version:06d}.json"
