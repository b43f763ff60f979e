"""How versions of the model were trained, in the store: `models/trained/VERSION.json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from d3gnn.store.names import MODELS
from d3gnn.store.sealed_json import to_json
from d3gnn.store.store import Store

#: The folder of the records.
TRAINED = f"{MODELS}/trained"


@dataclass(frozen=True)
class TrainingRecord:
    """One training, whose result is a version of the model."""

    #: The version that was trained further.
    parent: int
    #: The newest batch of the graph log then.
    batch: int
    #: Labels that were trained on, held out, and used for testing only.
    trained_on: int
    held_out: int
    tested_on: int
    #: Scores of the parent and of this version on the held-out labels; without any, on those trained on.
    before: float
    after: float
    test: float | None
    epochs: int
    loss: float
    seed: int
    seconds: float
    #: The settings that differ from the defaults, as text.
    settings: str
    #: Microseconds since 1970.
    at: int


def record_training(store: Store, version: int, record: TrainingRecord) -> None:
    """Write the record of a version; the first one stays."""
    store.create(_path(version), to_json(asdict(record)))


def training_record(store: Store, version: int) -> TrainingRecord | None:
    """The record of a version; None if it was not trained here."""
    plain = store.read_json(_path(version))
    return None if plain is None else TrainingRecord(**plain)


def _path(version: int) -> str:
    return f"{TRAINED}/{version:06d}.json"
