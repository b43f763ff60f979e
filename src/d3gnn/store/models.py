"""The versions of a pipeline's model, in its store: `models/VERSION-DIGEST-CHECKSUM.safetensors`."""

from __future__ import annotations

import re
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from d3gnn.nn.model import GNN
from d3gnn.store.deployments import last_deployment
from d3gnn.store.names import MODELS, files_in
from d3gnn.store.sealed_json import to_json
from d3gnn.store.store import Store, StoreDamaged

_SUFFIX = ".safetensors"
#: The folder of the names of versions.
NAMES = f"{MODELS}/names"
_NAME = re.compile(r"(?!\d+$)[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class ModelVersion(NamedTuple):
    """A version of the model of a store. The same model always is the same version."""

    #: From 1, in the order in which models came to the store.
    version: int
    #: As it was deployed, or `v1`, `v2` and so on.
    name: str
    digest: str
    #: The file of the model in the store.
    path: str


def put_model(store: Store, model: GNN, name: str | None = None) -> tuple[str, int]:
    """Write a model, unless the store has it; returns its path in the store and its version."""
    versions = list_models(store)
    found = next((each for each in versions if each.digest == model.digest), None)
    version = found.version if found else _next_version(store, versions)
    if name is not None:
        _check_name(name, version, versions)
    if found is not None:
        path = found.path
    else:
        with tempfile.NamedTemporaryFile(suffix=_SUFFIX) as file:
            model.save(file.name)
            data = Path(file.name).read_bytes()
        path = f"{MODELS}/{version:06d}-{model.digest}-{_checksum(data)}{_SUFFIX}"
        store.create(path, data)
    if name is not None:
        store.create(_name_path(version), to_json({"name": name}))
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
    with tempfile.NamedTemporaryFile(suffix=_SUFFIX) as file:
        Path(file.name).write_bytes(data)
        try:
            return GNN.load(file.name)
        except ValueError as error:  # such as a layer that is not registered here
            text = str(error).replace(file.name, path)
            raise ValueError(f"{path} in the store {store.uri}: {text}") from error


def list_models(store: Store) -> list[ModelVersion]:
    """All versions in a store, in order."""
    found = []
    for match in files_in(store, MODELS):
        version = int(match["number"])
        record = store.read_json(_name_path(version))
        name = f"v{version}" if record is None else str(record["name"])
        found.append(ModelVersion(version, name, match["digest"], f"{MODELS}/{match.string}"))
    return found


def find_model(store: Store, which: int | str) -> ModelVersion:
    """A version by its number or its name; raises ValueError for another one."""
    versions = list_models(store)
    for each in versions:
        if str(which) in (str(each.version), each.name):
            return each
    known = ", ".join(f"{each.version} ({each.name})" for each in versions) or "none"
    raise ValueError(f"no model {which!r} in {MODELS} of the store {store.uri}; it has {known}")


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
    return f"{NAMES}/{version:06d}.json"


def _checksum(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]
