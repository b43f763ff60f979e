"""The stream and model of the demo, and the record of a run, for any engine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from d3gnn.bench.check import Comparison
from d3gnn.bench.result import OnProgress
from d3gnn.cli.reports import BatchReport, Totals
from d3gnn.events import Element, EventBatch, Op
from d3gnn.nn import GNN, GraphSAGE
from d3gnn.sources import SyntheticStream
from d3gnn.types import Floats, Ints

_COMMUNITIES = 6
#: Channels of the input and of the hidden layer, layers, and channels of the output.
_MODEL = (16, 32, 2, 16)
#: Movement is watched over this last part of the stream.
_WATCHED = 0.1
_SHOWN = 10


class Snapshot(NamedTuple):
    """The embeddings of all vertices at one time, ordered by id."""

    ids: Ints
    embeddings: Floats

    def of_ids(self, ids: Ints) -> Floats:
        """The embeddings of these vertices; NaN for absent ones."""
        out = np.full((len(ids), self.embeddings.shape[1]), np.nan, np.float32)
        there = np.isin(ids, self.ids)
        out[there] = self.embeddings[np.searchsorted(self.ids, ids[there])]
        return out


class Engine(Protocol):
    """Runs the job's stream, once."""

    def batches(self) -> Iterator[list[BatchReport]]:
        """Run the stream; yields the batches that have ended since the last time, possibly none."""

    def snapshots(self) -> tuple[Snapshot, Snapshot]:
        """All embeddings at the first watched batch, and at the end."""

    def compare(self, report: OnProgress) -> Comparison:
        """Compare with recomputation from scratch."""


@dataclass(frozen=True)
class Mover:
    """A vertex whose embedding moved, and its events meanwhile."""

    id: int
    community: int
    #: Distance.
    moved: float
    #: Incoming edges.
    edges_added: int
    edges_removed: int
    features_set: int


@dataclass
class Run:
    """The record of a run so far."""

    totals: Totals = field(default_factory=Totals)
    #: Milliseconds and events of every batch.
    batch_ms: list[float] = field(default_factory=list)
    batch_events: list[int] = field(default_factory=list)
    #: All vertices at the end; their embeddings then and at the first watched batch (NaN: not there yet).
    ids: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    before: Floats = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    after: Floats = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    movers: list[Mover] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Time of all batches."""
        return sum(self.batch_ms) / 1e3

    def add(self, report: BatchReport) -> None:
        self.totals.add(report)
        self.batch_ms.append(report.milliseconds)
        self.batch_events.append(report.events)


@dataclass(frozen=True)
class Job:
    """A stream, and a model for it."""

    stream: SyntheticStream
    model: GNN
    batch: int
    parts: int
    partitioner: str
    #: The watched batches, once the stream has reached them.
    watched: list[EventBatch] = field(default_factory=list)

    @staticmethod
    def plan(*, edges: int, batch: int, parts: int, partitioner: str, seed: int) -> Job:
        """A stream of growing communities with all kinds of events."""
        if batch < 1:
            raise ValueError(f"batch={batch}: must be at least 1 event")
        stream = SyntheticStream(
            edges=edges, vertices=max(2, edges // 20), seed=seed, shape="communities",
            communities=_COMMUNITIES, deletes=0.1, vertex_deletes=0.001, feature_updates=0.05, bursts=0.15,
            bad=0.002, features=True, feature_width=_MODEL[0],
        )  # fmt: skip
        return Job(stream, GraphSAGE(*_MODEL, seed=seed), batch, parts, partitioner)

    @property
    def first_watched(self) -> int:
        """The number of the first watched batch."""
        return math.ceil(len(self.stream) * (1 - _WATCHED) / self.batch)

    def batches(self) -> Iterator[EventBatch]:
        """The batches of the stream."""
        for number, batch in enumerate(self.stream.batches(self.batch)):
            if number >= self.first_watched:
                self.watched.append(batch)
            yield batch

    def run(self, engine: Engine) -> Iterator[Run]:
        """Run the stream on the engine; yields the same object after each step."""
        run = Run()
        for reports in engine.batches():
            for report in reports:
                run.add(report)
            yield run
        before, after = engine.snapshots()
        run.ids, run.after = after
        run.before = before.of_ids(run.ids)
        run.movers = self._movers(run)
        yield run

    def _movers(self, run: Run) -> list[Mover]:
        moved = np.nan_to_num(np.linalg.norm(run.after - run.before, axis=1))
        most = np.argsort(-moved, kind="stable")[:_SHOWN]
        happened = EventBatch.concat(self.watched) if self.watched else EventBatch.of([])
        return [
            Mover(
                id=int(run.ids[i]),
                community=int(self.stream.community(run.ids[i])),
                moved=float(moved[i]),
                **_happened_to(int(run.ids[i]), happened),
            )
            for i in most
            if moved[i] > 0
        ]


def _happened_to(id: int, events: EventBatch) -> dict[str, Any]:
    into = _equals(events.dst, id) & (events.element == Element.EDGE)
    own = _equals(events.src, id) & (events.element == Element.FEATURE)
    return {
        "edges_added": int(np.count_nonzero(into & (events.op == Op.CREATE))),
        "edges_removed": int(np.count_nonzero(into & (events.op == Op.DELETE))),
        "features_set": int(np.count_nonzero(own)),
    }


def _equals(keys: Any, id: int) -> Any:
    if keys is None:
        return np.False_
    same = keys.values == id
    return same if keys.valid is None else same & keys.valid
