"""What a Spark task knows of the batch that it works on."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from pyspark import TaskContext

from d3gnn.runtime.plan import Plan
from d3gnn.runtime.worker import Worker
from d3gnn.runtime.workers import worker_class
from d3gnn.store.runs import Run, newest_run, run_of
from d3gnn.store.store import Store


class QueryTask(NamedTuple):
    """A task of a streaming query."""

    #: The query's number of the batch.
    batch: int
    query: str
    #: Spark's id of the run.
    run: str
    #: Of the partition. Where a union with other rows is possible, it is not that of the part.
    number: int

    @staticmethod
    def current() -> QueryTask:
        """The task that runs in this process."""
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("operators run inside Spark tasks")
        batch = context.getLocalProperty("streaming.sql.batchId")
        query = context.getLocalProperty("sql.streaming.queryId")
        if batch is None or query is None:
            raise RuntimeError(
                "the events are a batch DataFrame; a pipeline needs a streaming one (readStream)"
            )
        run = context.getLocalProperty("spark.jobGroup.id") or ""
        return QueryTask(int(batch), query, run, context.partitionId())

    def worker(self, plan: Plan) -> Worker:
        """The worker of the query in this process, for this task."""
        return worker_class(plan).of(plan, self.query, plan.run or _run_of(plan.store, self.run))


@lru_cache(maxsize=16)
def _run_of(store: str, run: str) -> Run:
    try:
        UUID(run)
    except ValueError:  # a job group of the user's own, in a callback
        return Run(newest_run(Store(store)))
    return run_of(Store(store), run)
