"""What Spark tells about a running pipeline, batch by batch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from d3gnn.cli.reports import BatchReport
from d3gnn.spark.metrics import metrics
from d3gnn.spark.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from d3gnn.spark.supervise import Supervised

_PAUSE = 0.2
_INPUT = "d3gnn.input"


def observed(events: DataFrame) -> DataFrame:
    """The events, of which Spark then tells how many there are in a batch, and when the oldest arrived."""
    from pyspark.sql import functions as F

    arrivals = [F.min("arrival").alias("oldest")] if "arrival" in events.columns else []
    return events.observe(_INPUT, F.count(F.lit(1)).alias("rows"), *arrivals)


class Watch:
    """Looks at a running pipeline over `observed` events, from the thread that waits for it."""

    def __init__(self, running: Supervised, store: str) -> None:
        self._running, self._store = running, Store(store)
        self._next = -1

    def batches(self) -> Iterator[list[BatchReport]]:
        """The batches that have ended since the last look, often none, until the query ends.

        Raises what stopped the query for good; after a loss of state it is started again.
        """
        running = self._running
        while True:
            active = running.query.isActive
            yield self._new()
            if not active and running.await_termination(1):
                yield self._new()
                return
            time.sleep(_PAUSE)

    def _new(self) -> list[BatchReport]:
        query = self._running.query
        last = query.lastProgress
        if last is None or last.batchId < self._next:
            return []
        told = [last] if last.batchId == self._next else query.recentProgress
        return [self._report(progress) for progress in told if self._is_new(progress)]

    def _is_new(self, progress: Any) -> bool:
        # While there is nothing to do, Spark tells about the batch that is to come.
        if progress.batchId < self._next or not progress.observedMetrics:
            return False
        self._next = progress.batchId + 1
        return True

    def _report(self, progress: Any) -> BatchReport:
        source = progress.observedMetrics[_INPUT].asDict() if _INPUT in progress.observedMetrics else {}
        told = metrics(progress)
        deciding, output = told.get("partition", {}), _with(told, "tombstones")
        milliseconds = float(progress.batchDuration)
        ended = datetime.fromisoformat(progress.timestamp).timestamp() + milliseconds / 1e3
        oldest = source.get("oldest")
        return BatchReport(
            number=progress.batchId,
            events=source.get("rows") or 0,
            milliseconds=milliseconds,
            embeddings=output.get("rows") or 0,
            tombstones=output.get("tombstones") or 0,
            late=deciding.get("late") or 0,
            pending=sum(of.get("pending") or 0 for of in told.values()),
            dead=self._dead_letters(progress.batchId),
            lag=None if oldest is None else max(0.0, ended - oldest / 1e6),
        )

    def _dead_letters(self, batch: int) -> Counter[str]:
        name = f"dead_letters/{batch:012d}.parquet"
        if not self._store.exists(name):
            return Counter()
        with self._store.open_input(name) as file:
            return Counter(pq.read_table(file, columns=["reason"])["reason"].to_pylist())


def _with(told: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    """What the one operator tells that tells this; which it is depends on the layers of the model."""
    return next((metrics for metrics in told.values() if name in metrics), {})
