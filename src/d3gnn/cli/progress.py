"""Reports of the batches of a running pipeline, from Spark's progress."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from d3gnn.cli.reports import BatchReport
from d3gnn.runtime.metrics import metrics
from d3gnn.store.dead_letters import count_dead_letters
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.owners import Owners
from d3gnn.store.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from d3gnn.spark.restarting import RestartingQuery

_PAUSE = 0.2
_INPUT = "d3gnn.input"


def observed(events: DataFrame) -> DataFrame:
    """The events; Spark's progress then has their number and oldest arrival in each batch."""
    from pyspark.sql import functions as F

    arrivals = [F.min("arrival").alias("oldest")] if "arrival" in events.columns else []
    return events.observe(_INPUT, F.count(F.lit(1)).alias("rows"), *arrivals)


class Watch:
    """Polls a running pipeline over `observed` events, from the thread that waits for it."""

    def __init__(self, running: RestartingQuery, store: str) -> None:
        self._running, self._store = running, Store(store)
        self._next = -1
        self._offset: int | None = None

    def batches(self) -> Iterator[list[BatchReport]]:
        """The batches that have ended since the last poll, often none, until the query ends.

        Raises the error that stopped the query; after a loss of state the query is restarted instead.
        """
        running = self._running
        while True:
            active = running.isActive
            yield self._new()
            if not active and running.awaitTermination(1):
                yield self._new()
                return
            time.sleep(_PAUSE)

    def reported(self) -> int:
        """The number of the newest batch that was reported; -1 before the first one."""
        return self._next - 1

    def ended(self) -> int:
        """The number of the newest batch that has ended, also if it was not reported yet."""
        last = self._running.lastProgress
        if last is None or not last.observedMetrics:  # an idle query
            return self.reported()
        return max(self.reported(), int(last.batchId))

    def _new(self) -> list[BatchReport]:
        query = self._running
        last = query.lastProgress
        if last is None or last.batchId < self._next:
            return []
        recent = [last] if last.batchId == self._next else query.recentProgress
        return [self._report(progress) for progress in recent if self._is_new(progress)]

    def _is_new(self, progress: Any) -> bool:
        # An idle query reports the next batch, without metrics.
        if progress.batchId < self._next or not progress.observedMetrics:
            return False
        self._next = progress.batchId + 1
        return True

    def _report(self, progress: Any) -> BatchReport:
        source = progress.observedMetrics[_INPUT].asDict() if _INPUT in progress.observedMetrics else {}
        operators = metrics(progress)
        partition, output = operators.get("partition", {}), _with(operators, "tombstones")
        milliseconds = float(progress.batchDuration)
        ended = datetime.fromisoformat(progress.timestamp).timestamp() + milliseconds / 1e3
        oldest = source.get("oldest")
        return BatchReport(
            number=progress.batchId,
            events=source.get("rows") or 0,
            milliseconds=milliseconds,
            rows=output.get("rows") or 0,
            tombstones=output.get("tombstones") or 0,
            late=partition.get("late") or 0,
            pending=sum(of.get("pending") or 0 for of in operators.values()),
            dead=count_dead_letters(self._store, self._in_log(progress.batchId)),
            vertices=partition.get("live") or 0,
            lacking=partition.get("lacking") or 0,
            lag=None if oldest is None else max(0.0, ended - oldest / 1e6),
        )

    def _in_log(self, batch: int) -> int:
        """The log's number of a batch of the query."""
        if self._offset is None:
            owner = Owners(self._store, GraphLog(self._store)).newest()
            self._offset = 0 if owner is None else owner.offset
        return self._offset + batch


def _with(operators: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    """The metrics of the operator that has this one; which it is depends on the layers of the model."""
    return next((metrics for metrics in operators.values() if name in metrics), {})
