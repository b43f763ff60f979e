"""StreamingGNN: the whole dataflow, top to bottom."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from d3gnn.events import GraphSchema
from d3gnn.kernel import partitioners
from d3gnn.kernel.alerts import Alerts
from d3gnn.kernel.operators import check_alerts, check_epsilon, check_head
from d3gnn.kernel.windows import Clock, Windows, check_clock, pair_of
from d3gnn.nn.heads import Head, PairHead
from d3gnn.nn.model import GNN
from d3gnn.spark.board import pending
from d3gnn.spark.control import Kind, command
from d3gnn.spark.host import in_shape, run_inputs, run_operator, run_output, with_commands
from d3gnn.spark.models import put_model
from d3gnn.spark.runtime import STORE, Plan, absolute, default_arrays
from d3gnn.spark.session import advise, planned_once, require_adaptive
from d3gnn.spark.store import Store
from d3gnn.spark.supervise import Supervised

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


class StreamingGNN:
    """Streaming events in, a streaming DataFrame of fresh, exact embeddings out.

    model:
        A `d3gnn.nn.GNN`. Another one than at the last start makes everything anew, from the log.
    name:
        Of the pipeline; its arrays on the host lie under this name.
    store:
        Folder, on any file system pyarrow reaches, of the graph log: the one thing that must not be lost.
        `start` puts it under the checkpoint unless given.
    parts:
        Logical parts; fixed for a store. How many tasks carry them may change at every start.
    partitioner:
        `hdrf`, `random`, or one with settings of its own.
    schema:
        Kind of edges, and features; see `d3gnn.GraphSchema`.
    arrays:
        Folder for the arrays on the host, in memory-backed files where there are such unless given.
    on_dead_letter:
        `keep` bad events, with their reasons, in the store's `dead_letters`, or `stop` at the first.
    window:
        Lets what changes at a vertex wait for more to change there, and sends it on as one; see
        `d3gnn.windows`. One window for all operators, or a pair: for the partial aggregates of Edge operators
        and for the values of Vertex operators. Runs that end, end with nothing waiting.
    clock:
        What windows tell the time by: when a `batch` is taken in, or the newest `event` time so far, in
        microseconds. The latter stands still when no events come.
    epsilon:
        Changes of a vertex's value by no more than this, in any of its numbers since it was sent, do not
        travel on: cheaper, and no longer exact. See docs/layers.md.
    alerts:
        Of what the model's head says, what comes out; everything unless given.
    """

    def __init__(
        self,
        model: GNN,
        *,
        name: str = "pipeline",
        store: str | Path | None = None,
        parts: int = 2,
        partitioner: str | partitioners.Partitioner = "hdrf",
        schema: GraphSchema | None = None,
        arrays: str | Path | None = None,
        on_dead_letter: str = "keep",
        window: Windows = None,
        clock: Clock = "batch",
        epsilon: float = 0.0,
        alerts: Alerts | None = None,
    ) -> None:
        if on_dead_letter not in ("keep", "stop"):
            raise ValueError(f"on_dead_letter={on_dead_letter!r}: choose 'keep' or 'stop'")
        if parts < 1:
            raise ValueError(f"parts={parts}: at least 1, please")
        self.model, self.name, self.parts = model, name, parts
        self.store = None if store is None else absolute(store)
        self.partitioner = partitioners.partitioner(partitioner)
        self.schema = (schema or GraphSchema()).for_model(model.in_width, model.edge_in)
        check_head(model, self.schema)
        self.arrays = None if arrays is None else absolute(arrays)
        self.on_dead_letter = on_dead_letter
        self.reduce, self.forward = pair_of(window)
        self.clock, self.epsilon = check_clock(clock), check_epsilon(epsilon)
        self.alerts = check_alerts(alerts, model)

    def transform(self, events: DataFrame, *, tasks: int | None = None) -> DataFrame:
        """The embeddings that the events change, batch by batch; lazy: for any source, sink and trigger."""
        if self.store is None:
            raise ValueError("name a store for the graph log: StreamingGNN(..., store='/data/graph')")
        require_adaptive(events.sparkSession)
        return self._dataflow(events, tasks)

    def _dataflow(self, events: DataFrame, tasks: int | None, read_whole: bool = False) -> DataFrame:
        advise(events.sparkSession)
        events = in_shape(events)
        types = dict(events.dtypes)
        plan, tasks = self.plan(types), tasks or self.parts

        parcels = run_inputs(plan, with_commands(plan, events))  # Partition, (Edge 0,) Vertex 0
        for layer in range(1, plan.layers):
            parcels = run_operator(plan, f"edge-{layer}", self.parts, tasks, parcels)
            parcels = run_operator(plan, f"vertex-{layer}", self.parts, tasks, parcels)
        parcels = run_operator(plan, f"edge-{plan.layers}", self.parts, tasks, parcels)
        last = f"vertex-{plan.layers}"
        if plan.pairs:
            parcels = run_operator(plan, last, self.parts, tasks, parcels)
            last = f"edge-{plan.layers + 1}"  # scores of edges, answers to queries
        return run_output(plan, last, self.parts, tasks, parcels, types["src"], read_whole=read_whole)

    def start(
        self,
        events: DataFrame,
        output: str | Path | None = None,
        *,
        checkpoint: str | Path,
        format: str = "parquet",
        options: dict[str, Any] | None = None,
        trigger: dict[str, Any] | None = None,
        restarts: int = 3,
        tasks: int | None = None,
    ) -> Supervised:
        """Run the pipeline into a table, and start it again when state was lost under it.

        output, format, options:
            As `writeStream` has them: a folder of Parquet files unless another format is named, such as
            `delta`, `kafka` or `noop`. For `foreachBatch` take `transform`.
        trigger:
            What `writeStream.trigger` takes: `{"availableNow": True}`, say.
        restarts:
            How often it may be started again.
        """
        if output is None and format == "parquet":
            raise ValueError("name a folder for the output, or a format that needs none")
        found = dict(options or {}) | {"checkpointLocation": str(checkpoint)}
        if output is not None:
            found["path"] = str(output)
        self.store = self.store or f"{absolute(checkpoint)}/{STORE}"

        def begin() -> StreamingQuery:
            rows = self._dataflow(events, tasks, read_whole=True)  # by any sink that has a format
            writer = rows.writeStream.format(format).options(**found)
            with planned_once(events.sparkSession):
                return (writer.trigger(**trigger) if trigger else writer).start()

        return Supervised(begin, restarts)

    def refresh(self) -> None:
        """Ask the running query to make everything anew from the log, in its next batch."""
        self._command("refresh")

    def drain(self) -> None:
        """Ask the running query to send all that waits in windows, in its next batch."""
        self._command("drain")

    def pending(self) -> int:
        """How many vertices wait in the windows of all operators, after the last batch."""
        return 0 if self.store is None else pending(self._arrays(self.store))

    def _command(self, kind: Kind) -> None:
        if self.store is None:
            raise ValueError("there is no store yet: start the pipeline first")
        command(f"{self.store}/control", kind)

    def plan(self, types: dict[str, str]) -> Plan:
        """What the workers are told, for events whose columns have these Spark types; settles the store."""
        assert self.store is not None
        store = Store(self.store)
        store.fix(
            {
                "name": self.name,
                "parts": self.parts,
                "partitioner": {"name": self.partitioner.name, **asdict(self.partitioner)},
                "schema": self.schema.to_dict(),
                "ids": "string" if types.get("src") == "string" else "int",
                "keys": "string" if types.get("key") == "string" else "int",
            }
        )
        path, version = put_model(store, self.model)
        return Plan(
            name=self.name,
            store=self.store,
            arrays=self._arrays(self.store),
            parts=self.parts,
            partitioner=self.partitioner,
            schema=self.schema,
            model=path,
            model_version=version,
            layers=len(self.model.layers),
            degrees=self.model.degrees is not None,
            destinations=self.model.reads_destinations,
            stop_on_dead_letter=self.on_dead_letter == "stop",
            reduce=self.reduce,
            forward=self.forward,
            clock=self.clock,
            epsilon=self.epsilon,
            says=isinstance(self.model.head, Head),
            alerts=self.alerts,
            pairs=isinstance(self.model.head, PairHead),
        )

    def _arrays(self, store: str) -> str:
        return self.arrays or default_arrays(self.name, store)
