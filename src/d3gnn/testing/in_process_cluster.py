"""A pipeline on a cluster, in this process and without Spark: every host is a folder of arrays."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from d3gnn.events import Event, EventBatch, GraphSchema
from d3gnn.events.keys import keys_of
from d3gnn.kernel.operators import PARTITION, OperatorId, Vertex
from d3gnn.oracle import Oracle, embeddings, relative_error
from d3gnn.runtime.cluster_coordinator import ClusterCoordinator
from d3gnn.runtime.cluster_worker import ClusterWorker
from d3gnn.runtime.plan import Plan
from d3gnn.runtime.worker import PartResult
from d3gnn.store.runs import Run, begin_run
from d3gnn.store.store import Store
from d3gnn.testing.in_process import InProcessPipeline, route

__all__ = ["InProcessCluster", "TaskDied"]


class TaskDied(RuntimeError):
    """A task was killed, as the test wanted it."""


class InProcessCluster(InProcessPipeline):
    """Runs batches as the tasks of a Spark query on a cluster would, each on the host of its home.

    Args:
        homes: The host of each task.

    Example:
        >>> import tempfile
        >>> from d3gnn.events import edge
        >>> schema = GraphSchema(features={"x": 3})
        >>> cluster = InProcessCluster(tempfile.mkdtemp(), schema, homes=["h1", "h2"])
        >>> batches = [[edge(1, 2)], [edge(2, 3)]]
        >>> refreshed = [cluster.run(i, batch).metrics["refreshed"] for i, batch in enumerate(batches)]
        >>> refreshed, cluster.error(batches) < 1e-6
        ([1, 0], True)
    """

    def __init__(
        self,
        folder: str | Path,
        schema: GraphSchema,
        parts: int = 4,
        *,
        homes: Sequence[str],
        **settings: Any,
    ) -> None:
        super().__init__(folder, schema, parts, tasks=len(homes), **settings)
        self.homes = tuple(homes)
        #: An operator part that dies in the middle of its next batch.
        self.dies: tuple[OperatorId, int] | None = None

    def plan(self) -> Plan:
        """The plan, with the homes as they are now."""
        return replace(super().plan(), tasks=len(self.homes), homes=self.homes)

    def memory(self, host: str) -> Path:
        """The folder that stands for the memory of a host."""
        return self.folder / "hosts" / host

    def lose(self, host: str) -> None:
        """A host dies, with its memory."""
        shutil.rmtree(self.memory(host), ignore_errors=True)

    def on(self, host: str, query_run: Run | None = None) -> ClusterWorker:
        """A new worker process on a host."""
        plan = replace(self.plan(), arrays=str(self.memory(host)))
        worker = ClusterWorker(plan, self.query, query_run)
        worker._frozen.update([PARTITION, *plan.chain.operators])
        return worker

    def run(
        self,
        batch: int,
        events: EventBatch | Iterable[Event] | None,
        commands: Sequence[str] = (),
        query_run: Run | None = None,
    ) -> PartResult:
        """Run a batch, in a run of its own unless another one is given."""
        plan, run = self.plan(), query_run or begin_run(Store(self.store))
        found = None if events is None else EventBatch.of(events)
        with ExitStack() as stack:
            workers = {host: stack.enter_context(closing(self.on(host, run))) for host in set(plan.homes)}
            first = ClusterCoordinator(workers[plan.homes[0]]).run(batch, found, set(commands))
            sent = [first.packets]
            for name in plan.chain.operators:
                results = []
                for part in range(plan.parts):
                    task = 0 if name in plan.chain.inputs else plan.task(part)
                    worker = workers[plan.homes[task]]
                    if self.dies == (name, part):
                        self.dies = None
                        worker.state.open(name, part).begin()
                        raise TaskDied(f"{name}, part {part}")
                    results.append(worker.run(name, part, route(sent, part), len(sent)).packets)
                sent = results
            self.sent = [bytes(each.data) for each in sent]
            return first

    def error(self, batches: Iterable[EventBatch | Iterable[Event]]) -> float:
        """The largest relative error of the embeddings on all hosts, against the graph of these batches."""
        oracle, plan = Oracle(self.schema), self.plan()
        for batch in batches:
            oracle.apply(EventBatch.of(batch))
        expected = dict(embeddings(self.model, oracle))
        if not expected:
            return 0.0
        with closing(self.on(self.homes[0])) as worker:
            parts, rows = worker.partition.locate(keys_of(list(expected)))
        if (parts < 0).any():
            return float("inf")
        got = np.zeros((len(expected), len(next(iter(expected.values())))), np.float32)
        for part in range(plan.parts):
            with closing(self.on(self.homes[plan.task(part)])) as worker:
                last = worker.operator(plan.chain.embeddings)
                assert isinstance(last, Vertex)
                got[parts == part] = last.values(part, rows[parts == part])
        return relative_error(got, np.stack(list(expected.values())))
