"""Compare a LocalEngine with the oracle after every batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from d3gnn.events import Event, EventBatch, Key, Reason
from d3gnn.oracle import Oracle, embeddings, relative_error
from d3gnn.runtime.local import LocalEngine
from d3gnn.runtime.updates import Updates


class OracleChecker:
    """Apply the same batches to an engine and to the oracle, and raise AssertionError if they differ.

    Compares the status of every event, all embeddings, the labels, and the table of the newest output row of
    each id. An engine with windows is compared after a drain only, since its embeddings lag behind until
    then.

    Args:
        engine: A new engine, which has processed no events yet.
        tolerance: Largest relative error of an embedding; rounding explains no more than the default.

    Example:
        >>> from d3gnn import LocalEngine, events
        >>> from d3gnn.nn import GraphSAGE
        >>> checker = OracleChecker(LocalEngine(GraphSAGE(2, 4, 1, seed=0)))
        >>> updates = checker.apply([events.edge("a", "b", time=1), events.feature("a", [1.0, 2.0], time=2)])
        >>> sorted(checker.table)
        ['a', 'b']
    """

    def __init__(self, engine: LocalEngine, tolerance: float = 1e-5) -> None:
        self.engine, self.oracle, self.tolerance = engine, Oracle(engine.schema), tolerance
        #: The newest embedding of each id in the output.
        self.table: dict[Key, Any] = {}

    def apply(self, events: EventBatch | Iterable[Event], clock: int = 1) -> Updates:
        """Apply one batch to both, and compare them; returns the updates of the engine."""
        batch = EventBatch.of(events)
        expected = list(self.oracle.apply(batch, clock))
        updates = self.engine.apply(batch, clock=clock)
        status = [Reason(int(s)) for s in updates.status]
        assert status == expected, f"status of events: engine {status}, oracle {expected}"
        assert len(updates.dead_letters) == sum(reason.is_dead for reason in expected)
        self.record(updates)
        if not self.engine.config.windowed:
            self.check()
        return updates

    def drain(self, clock: int = 1) -> Updates:
        """Drain the windows of the engine, and compare; returns the updates of the drain."""
        updates = self.engine.drain(clock=clock)
        self.record(updates)
        pending = self.engine.pending()
        assert not any(pending.values()), f"pending after a drain: {pending}"
        self.check()
        return updates

    def refresh(self) -> None:
        """Rebuild the state of the engine from its log; it must emit every vertex with the same embedding."""
        before = set(self.table)
        updates = self.engine.refresh()
        assert {update.id for update in updates} == before, "a refresh must emit every vertex"
        self.record(updates)
        self.check()

    def record(self, updates: Updates) -> None:
        """Apply output rows to the table; a batch may have only one row per id."""
        rows = list(updates)
        ids = [row.id for row in rows]
        assert len(set(ids)) == len(ids), f"batch {updates.batch_id} has two rows for one id: {ids}"
        for row in rows:
            if row.deleted:
                assert row.id in self.table, f"tombstone for unknown id {row.id}"
                del self.table[row.id]
            else:
                self.table[row.id] = row.embedding

    def check(self) -> None:
        """Compare all embeddings, the table of newest rows, and the labels with those of the oracle."""
        expected = embeddings(self.engine.model, self.oracle)
        assert sorted(map(str, self.engine.ids().to_list())) == sorted(map(str, expected))
        assert set(self.table) == set(expected), "the ids of the newest rows are not those of the graph"
        if expected:
            ids = list(expected)
            want = np.stack([expected[id] for id in ids])
            error = relative_error(self.engine.embeddings(ids), want)
            assert error <= self.tolerance, f"embeddings of the engine differ by {error:.2e}"
            error = relative_error(np.stack([self.table[id] for id in ids]), want)
            assert error <= self.tolerance, f"embeddings of the newest rows differ by {error:.2e}"
        counts = self.engine.partition.lacking, len(self.engine)
        assert counts == (self.oracle.lacking, len(self.oracle.vertices)), "vertices that lack a feature"
        keys, labels = self.engine.partition.labels()
        got = {id: tuple(label) for id, label in zip(keys.to_list(), labels.tolist(), strict=True)}
        assert got == self.oracle.labels | self.oracle.parked_labels
