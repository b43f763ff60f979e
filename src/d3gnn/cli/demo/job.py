"""What the demo runs, and what it keeps of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from d3gnn.bench.warm_up import warm_up
from d3gnn.events import Element, EventBatch, IntKeys, Op, Reason
from d3gnn.kernel.local import LocalEngine
from d3gnn.nn import GraphSAGE
from d3gnn.sources import SyntheticStream
from d3gnn.types import Floats, Ints

_COMMUNITIES = 6
_WIDTHS = (16, 32, 16)
#: Movement is watched over this last part of the stream.
_WATCHED = 0.1
_SHOWN = 10


@dataclass(frozen=True)
class Mover:
    """A vertex whose embedding moved, and what happened to it meanwhile."""

    id: int
    community: int
    #: Length of the move.
    moved: float
    #: Edges into it.
    edges_added: int
    edges_removed: int
    features_set: int


@dataclass
class Run:
    """What is known of the run so far."""

    events: int = 0
    batches: int = 0
    seconds: float = 0.0
    emitted: int = 0
    tombstones: int = 0
    reasons: Counter[Reason] = field(default_factory=Counter)
    #: Milliseconds and events of every batch.
    batch_ms: list[float] = field(default_factory=list)
    batch_events: list[int] = field(default_factory=list)
    #: All vertices at the end, their embeddings, and those where watching began (NaN: it was not there yet).
    ids: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    before: Floats = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    after: Floats = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    movers: list[Mover] = field(default_factory=list)

    @property
    def dead(self) -> int:
        """Events that became dead letters."""
        return sum(count for reason, count in self.reasons.items() if reason.is_dead)


@dataclass(frozen=True)
class Job:
    """A stream and an engine for it."""

    stream: SyntheticStream
    engine: LocalEngine
    batch: int
    parts: int
    partitioner: str

    @staticmethod
    def plan(*, edges: int, batch: int, parts: int, partitioner: str, seed: int) -> Job:
        """Communities with everything in them that streams have."""
        if batch < 1:
            raise ValueError(f"batch={batch}: at least 1 event, please")
        stream = SyntheticStream(
            edges=edges, vertices=max(2, edges // 20), seed=seed, shape="communities",
            communities=_COMMUNITIES, deletes=0.1, vertex_deletes=0.001, feature_updates=0.05, bursts=0.15,
            bad=0.002, features=True, feature_width=_WIDTHS[0],
        )  # fmt: skip
        engine = LocalEngine(GraphSAGE(_WIDTHS, seed=seed), parts, partitioner, stream.schema)
        return Job(stream, engine, batch, parts, partitioner)

    def warm_up(self) -> None:
        """Compile before the clock starts."""
        import torch

        torch.set_num_threads(1)
        warm_up(self.engine.model, self.stream.schema, self.parts, self.partitioner)

    def run(self) -> Iterator[Run]:
        """Go through the stream; the same object is handed out after every batch."""
        run = Run()
        watched: list[EventBatch] = []
        before = _Snapshot.of(self.engine)
        watch_from = int(len(self.stream) * (1 - _WATCHED))
        for batch in self.stream.batches(self.batch):
            if run.events >= watch_from:
                if not watched:
                    before = _Snapshot.of(self.engine)
                watched.append(batch)
            begun = time.perf_counter()
            updates = self.engine.apply(batch)
            seconds = time.perf_counter() - begun
            run.events += len(batch)
            run.batches += 1
            run.seconds += seconds
            run.batch_ms.append(seconds * 1e3)
            run.batch_events.append(len(batch))
            run.emitted += len(updates)
            run.tombstones += int(np.count_nonzero(updates.deleted))
            codes, counts = np.unique(updates.status, return_counts=True)
            for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
                run.reasons[Reason(code)] += count
            yield run
        run.ids, run.after = _Snapshot.of(self.engine)
        run.before = before.of_ids(run.ids)
        run.movers = self._movers(run, watched)
        yield run

    def _movers(self, run: Run, watched: list[EventBatch]) -> list[Mover]:
        moved = np.nan_to_num(np.linalg.norm(run.after - run.before, axis=1))
        most = np.argsort(-moved, kind="stable")[:_SHOWN]
        happened = EventBatch.concat(watched) if watched else EventBatch.of([])
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


class _Snapshot(NamedTuple):
    """All vertices at some time, in the order of their ids."""

    ids: Ints
    embeddings: Floats

    @staticmethod
    def of(engine: LocalEngine) -> _Snapshot:
        keys = engine.ids()
        ids = np.sort(keys.values) if isinstance(keys, IntKeys) else np.zeros(0, np.int64)
        return _Snapshot(ids, engine.embeddings(IntKeys(ids)))

    def of_ids(self, ids: Ints) -> Floats:
        """The embeddings of these vertices, NaN for those that were not there."""
        out = np.full((len(ids), self.embeddings.shape[1]), np.nan, np.float32)
        there = np.isin(ids, self.ids)
        out[there] = self.embeddings[np.searchsorted(self.ids, ids[there])]
        return out
