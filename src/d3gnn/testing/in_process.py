"""A pipeline in this process, without Spark: the coordinator and the workers, in both shapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from d3gnn.events import Event, EventBatch, GraphSchema, Key
from d3gnn.kernel.mapped_state import seal
from d3gnn.kernel.operators import PARTITION, ChainSpec, OperatorConfig
from d3gnn.kernel.partitioners import HDRF
from d3gnn.kernel.windows import Windows, pair_of
from d3gnn.nn import GNN, GraphSAGE
from d3gnn.oracle import Oracle, embeddings, relative_error
from d3gnn.runtime.chain_worker import ChainWorker
from d3gnn.runtime.log_coordinator import LogCoordinator
from d3gnn.runtime.packets import Packets
from d3gnn.runtime.plan import Plan
from d3gnn.runtime.rollout import started_with
from d3gnn.runtime.store_settings import store_settings
from d3gnn.runtime.verify import Verdict, held_embeddings, stored_plan, verify
from d3gnn.runtime.worker import PartResult, Worker
from d3gnn.store.erasure import erasures
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.models import find_model, put_model
from d3gnn.store.runs import Run
from d3gnn.store.store import Store

__all__ = ["InProcessPipeline"]

#: The streaming query that the pipeline pretends to be.
QUERY = "00000000-0000-0000-0000-000000000000"


class InProcessPipeline:
    """Runs batches as the tasks of a Spark query would, each in new worker objects.

    Args:
        folder: Folder for the store and the arrays.
        schema: The schema of the graph, with integer ids.
        parts: Number of parts.
        tasks: 1 for the whole chain in one task; more for a task of its own for every operator.
        model: The model; a GraphSAGE with two layers by default.
        window: The windows of the operators.
        query: The streaming query that the pipeline pretends to be; another one takes over the store of the
            one before.

    Example:
        >>> import tempfile
        >>> from d3gnn.events import edge
        >>> pipeline = InProcessPipeline(tempfile.mkdtemp(), GraphSchema(features={"x": 3}))
        >>> pipeline.run(0, [edge(1, 2)]).metrics["applied"]
        1
        >>> pipeline.verify().vertices
        2
    """

    def __init__(
        self,
        folder: str | Path,
        schema: GraphSchema,
        parts: int = 2,
        *,
        tasks: int = 1,
        model: GNN | None = None,
        window: Windows = None,
        query: str = QUERY,
    ) -> None:
        self.folder = Path(folder)
        self.store, self.arrays = self.folder / "store", self.folder / "arrays"
        self.schema, self.parts, self.tasks = schema, parts, tasks
        self.window, self.query = window, query
        self.model = model or GraphSAGE(schema.width, 8, 2, 4, seed=3)
        #: What the last operator sent in the last batch, by part.
        self.sent: list[bytes] = []

    @property
    def log(self) -> GraphLog:
        """The graph log, opened again."""
        return GraphLog(Store(self.store))

    def plan(self) -> Plan:
        """The plan, as a start of the query makes it."""
        store = Store(self.store)
        store.fix(store_settings("test", self.parts, HDRF(), self.schema, "int", "int"))
        config = OperatorConfig(self.parts, self.schema, *pair_of(self.window))
        _, given = put_model(store, self.model)
        deployed = started_with(store, given, self.model, config)
        return Plan(
            name="test",
            store=str(self.store),
            arrays=str(self.arrays),
            partitioner=HDRF(),
            chain=ChainSpec.of(self.model),
            config=config,
            model=find_model(store, deployed.model).path,
            model_version=deployed.model,
            deployment=deployed.number,
            tasks=self.tasks,
            erasures=erasures(store),
            adopt=self.query != QUERY,
        )

    def run(
        self,
        batch: int,
        events: EventBatch | Iterable[Event] | None,
        commands: Sequence[str] = (),
        query_run: Run | None = None,
    ) -> PartResult:
        """Run a batch through all operators; returns what the task of Partition returned."""
        plan = self.plan()
        with closing(self.worker(query_run)) as worker:
            first = self.first(worker, batch, events, commands)
            sent = [first.packets]
            if self.tasks > 1:
                for name in plan.chain.operators:
                    sent = [
                        worker.run(name, part, route(sent, part), len(sent)).packets
                        for part in range(plan.parts)
                    ]
            self.sent = [bytes(each.data) for each in sent]
            return first

    def seal(self) -> None:
        """Seal the arrays of Partition, as the end of a query does."""
        assert seal(self.arrays / self.query / str(PARTITION) / "0")

    def worker(self, query_run: Run | None = None) -> Worker:
        """A new worker process, so to speak, for tasks of a run of the query."""
        plan = self.plan()
        worker = (ChainWorker if self.tasks == 1 else Worker)(plan, self.query, query_run)
        worker._frozen.update([PARTITION, *plan.chain.operators])  # no collection in every new worker
        return worker

    def first(
        self,
        worker: Worker,
        batch: int,
        events: EventBatch | Iterable[Event] | None,
        commands: Sequence[str] = (),
    ) -> PartResult:
        """Run a batch through Partition only, or through the whole chain if that is in the same task."""
        found = None if events is None else EventBatch.of(events)
        return LogCoordinator(worker).run(batch, found, set(commands))

    def verify(self) -> Verdict:
        """Compare the embeddings with a recomputation from the log."""
        return verify(self.plan())

    def error(self, batches: Iterable[EventBatch | Iterable[Event]]) -> float:
        """The largest relative error of the embeddings, against the graph of these batches.

        Infinite if vertices are missing.
        """
        oracle = Oracle(self.schema)
        for batch in batches:
            oracle.apply(EventBatch.of(batch))
        expected: dict[Key, np.ndarray] = dict(embeddings(self.model, oracle))
        held = held_embeddings(stored_plan(self.store, arrays=str(self.arrays)), list(expected))
        if len(held) < len(expected):
            return float("inf")
        got = np.stack([held[id] for id in expected])
        return relative_error(got, np.stack(list(expected.values())))


def route(packets: list[Packets], part: int) -> list[bytearray]:
    """The packets that Spark would deliver to a part."""
    return [bytearray(packet) for sent in packets for target, packet in sent.for_rows() if target == part]
