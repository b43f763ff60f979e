"""Hold an engine against the oracle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from d3gnn.events import Event, EventBatch, Key, Reason
from d3gnn.kernel.local import LocalEngine, Updates
from d3gnn.kernel.reference import Oracle, embeddings, relative_error


class Witness:
    """Feeds an engine and the oracle the same batches, and objects wherever they differ.

    It also keeps the table that a user would keep, the newest row per id, and compares that too. An engine
    with windows is compared when it is drained.
    """

    def __init__(self, engine: LocalEngine, tolerance: float = 1e-5) -> None:
        self.engine, self.oracle, self.tolerance = engine, Oracle(engine.schema), tolerance
        self.table: dict[Key, Any] = {}

    def apply(self, events: EventBatch | Iterable[Event], clock: int = 1) -> Updates:
        """One batch for both; then everything must be equal."""
        batch = EventBatch.of(events)
        reasons = self.oracle.apply(batch)
        updates = self.engine.apply(batch, clock=clock)
        got = [Reason(int(s)) for s in updates.status]
        assert got == list(reasons), f"status: engine {got}, oracle {list(reasons)}"
        assert len(updates.dead_letters) == sum(r.is_dead for r in reasons)
        self.take(updates)
        if self.engine.windows == (None, None):
            self.check()
        return updates

    def drain(self, clock: int = 1) -> Updates:
        """Let nothing wait any longer; then everything must be equal."""
        updates = self.engine.drain(clock=clock)
        self.take(updates)
        assert not any(self.engine.pending().values()), self.engine.pending()
        self.check()
        return updates

    def refresh(self) -> None:
        """Rebuild the engine from its log; nothing may change."""
        before = set(self.table)
        updates = self.engine.refresh()
        assert {update.id for update in updates} == before, "a refresh emits every vertex"
        self.take(updates)
        self.check()

    def take(self, updates: Updates) -> None:
        """Keep the newest row per id; a batch has one row per id at most."""
        rows = list(updates)
        ids = [row.id for row in rows]
        assert len(set(ids)) == len(ids), f"batch {updates.batch} has two rows for one id: {ids}"
        for row in rows:
            if row.deleted:
                assert row.id in self.table, f"tombstone for {row.id}, which nobody has seen"
                del self.table[row.id]
            else:
                self.table[row.id] = row.embedding

    def check(self) -> None:
        """Embeddings, the table of newest rows, and labels equal those of the graph as it is."""
        expected = embeddings(self.engine.model, self.oracle)
        assert sorted(map(str, self.engine.ids().to_list())) == sorted(map(str, expected))
        assert set(self.table) == set(expected), "the table of newest rows has other ids than the graph"
        if expected:
            ids = list(expected)
            want = np.stack([expected[id] for id in ids])
            error = relative_error(self.engine.embeddings(ids), want)
            assert error <= self.tolerance, f"embeddings differ by {error:.2e}"
            error = relative_error(np.stack([self.table[id] for id in ids]), want)
            assert error <= self.tolerance, f"the table of newest rows differs by {error:.2e}"
        keys, labels = self.engine.partition.labels()
        got = {id: tuple(label) for id, label in zip(keys.to_list(), labels.tolist(), strict=True)}
        assert got == self.oracle.labels | self.oracle.parked_labels
