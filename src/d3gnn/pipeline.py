"""StreamingGNN: the whole dataflow on Spark, top to bottom."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from d3gnn.events import GraphSchema
from d3gnn.kernel import partitioners
from d3gnn.kernel.alerts import Alerts
from d3gnn.kernel.evolution import Fill
from d3gnn.kernel.operators import ChainSpec, Emit, OperatorConfig
from d3gnn.kernel.windows import Clock, Windows, pair_of
from d3gnn.nn.model import GNN
from d3gnn.runtime.fork import Forked, Progress, fork
from d3gnn.runtime.leftovers import prepare_arrays
from d3gnn.runtime.plan import (
    Plan,
    absolute,
    check_name,
    default_arrays,
    plugins_of,
    record_arrays,
    record_homes,
)
from d3gnn.runtime.rollout import started_with
from d3gnn.runtime.store_settings import store_settings
from d3gnn.spark.cluster_settings import is_local
from d3gnn.spark.commands import PipelineCommands
from d3gnn.spark.placement import place
from d3gnn.spark.restarting import RestartingQuery
from d3gnn.spark.session import advise, planned_once, require_adaptive
from d3gnn.spark.stages import (
    in_event_format,
    run_chain,
    run_inputs,
    run_operator,
    run_output,
    with_commands,
)
from d3gnn.spark.triggers import free_name, trigger_of
from d3gnn.spark.worker_python import require_same_python
from d3gnn.store.dead_letters import put_no_dead_letters
from d3gnn.store.erasure import erasures
from d3gnn.store.models import find_model, put_model
from d3gnn.store.runs import begin_run
from d3gnn.store.spark_checkpoint import FILE_FORMATS, SparkCheckpoint
from d3gnn.store.store import STORE, Store
from d3gnn.whole_numbers import check_whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


log = logging.getLogger("d3gnn")


class StreamingGNN(PipelineCommands):
    """A streaming DataFrame of graph events in, a streaming DataFrame of exact embeddings out.

    model:
        A `d3gnn.nn.GNN`. Changing the model rebuilds all state from the graph log.
    name:
        Name of the pipeline: of its query in Spark, and of its folder of arrays on the host. Letters, digits,
        blanks and `.`, `_`, `-`.
    store:
        Folder of the graph log, on any file system that pyarrow reaches. It holds the only state that cannot
        be recomputed. By default, `start` puts it under the checkpoint.
    parts:
        Number of logical parts. It cannot change once the store exists; the number of tasks can.
    partitioner:
        `hdrf`, `random`, or an instance with other settings, such as `HDRF(balance=1.0)`.
    schema:
        Edge mode and features of the graph; see `d3gnn.GraphSchema`.
    arrays:
        Folder on the host for the arrays of the operators, which must belong to you; several pipelines may
        share it. By default, a folder in memory (/dev/shm) if there is one.
    on_dead_letter:
        `keep` bad events, with their reasons, in the store's `dead_letters`, or `stop` at the first one.
    window:
        Delays and merges changes; see `d3gnn.windows`. One window for all operators, or a pair: for the
        partial aggregates of Edge operators, and for the values of Vertex operators.
    clock:
        Time by which windows are due: the arrival of the `batch`, or the newest `event` time so far.
    min_change:
        Changes of a vertex's value by at most this, in each of its numbers, are not sent to its neighbours.
        With 0, the default, embeddings are exact. See docs/layers.md.
    alerts:
        Which predictions are alerts; see `d3gnn.Alerts`.
    emit:
        `head`: the rows that the model's head is for (alerts, if there are any; predictions; scores of
        pairs), or embeddings without a head. `all`: embeddings of all changed vertices as well. See
        docs/heads.md.
    tasks:
        Spark tasks of an operator. With 1, the default in a local session, one task runs the whole chain,
        and the parts are divided among threads. With more, each task runs some of the parts, and there is an
        exchange between any two operators. On a cluster, each task has a home; by default, there is one for
        each executor. See docs/cluster.md.
    adopt:
        Whether a query with a new checkpoint takes over a store that belongs to another query, which is
        refused from then on. For a query that owns the store already, it means nothing. See
        docs/graph-log.md.
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
        min_change: float = 0.0,
        alerts: Alerts | None = None,
        emit: Emit = "head",
        tasks: int | None = None,
        adopt: bool = False,
    ) -> None:
        if on_dead_letter not in ("keep", "stop"):
            raise ValueError(f"on_dead_letter={on_dead_letter!r}: choose 'keep' or 'stop'")
        if tasks is not None:
            check_whole("tasks", tasks)
        if arrays is not None and store is None:
            raise ValueError("arrays= needs store=: a folder of arrays belongs to one store")
        model = GNN.check(model)
        reduce, forward = pair_of(window)
        self.config = OperatorConfig(
            parts, schema or GraphSchema(), reduce, forward, clock, min_change, alerts, emit
        ).for_model(model)
        self.model, self.name, self.parts = model, check_name(name), parts
        self.schema = self.config.schema
        self.store = None if store is None else absolute(store)
        self.partitioner = partitioners.partitioner(partitioner)
        self.arrays = None if arrays is None else absolute(arrays)
        self.on_dead_letter, self.tasks, self.adopt = on_dead_letter, tasks, adopt

    def transform(self, events: DataFrame) -> DataFrame:
        """The output rows that the events cause, as a streaming DataFrame for any sink and trigger.

        Needs `store=`.
        """
        if self.store is None:
            raise ValueError("transform() needs a store for the graph log: StreamingGNN(..., store='graph')")
        require_adaptive(events.sparkSession)
        return self._dataflow(events, self.store)

    def _dataflow(self, events: DataFrame, store: str, *, starts: bool = False) -> DataFrame:
        """`starts`: the query is started now, and by `start`, whose sink reads all rows."""
        require_same_python(events.sparkSession)
        advise(events.sparkSession)
        events = in_event_format(events)
        id_type = dict(events.dtypes)["src"]
        plan, homes = self._placed(self.plan(dict(events.dtypes), store), events.sparkSession)
        if starts:
            plan = replace(plan, run=begin_run(Store(store)))
        if plan.in_one_task:  # Partition -> Vertex 0 -> Edge 1 -> Vertex 1 -> ... in one stage
            return run_chain(plan, with_commands(plan, events), id_type, read_whole=starts)

        packets = run_inputs(plan, with_commands(plan, events), homes)  # Partition -> (Edge 0 ->) Vertex 0
        *operators, last = plan.chain.cascade  # Edge 1 -> Vertex 1 -> Edge 2 -> ...
        for operator in operators:
            packets = run_operator(plan, operator, packets, homes)
        return run_output(plan, last, packets, id_type, homes, read_whole=starts)

    def _placed(self, plan: Plan, spark: SparkSession) -> tuple[Plan, DataFrame | None]:
        """The plan with the tasks and threads for this session; on a cluster, with the homes of tasks."""
        if not is_local(spark):
            return place(plan, self.tasks, spark)
        record_homes(Store(plan.store), ())
        prepare_arrays(plan)
        threads = min(plan.parts, spark.sparkContext.defaultParallelism)
        return replace(plan, tasks=self.tasks or 1, threads=threads), None

    def start(
        self,
        events: DataFrame,
        output: str | Path | None = None,
        *,
        checkpoint: str | Path,
        format: str = "parquet",
        options: dict[str, Any] | None = None,
        queryName: str | None = None,  # noqa: N803
        processingTime: str | None = None,  # noqa: N803
        availableNow: bool | None = None,  # noqa: N803
        restarts: int = 3,
        **unsupported: Any,
    ) -> RestartingQuery:
        """Run the pipeline into a table; returns a query that answers like pyspark's `StreamingQuery`.

        output, format, options:
            As `writeStream` has them: a folder of Parquet files, or another format, such as `delta`, `kafka`
            or `noop`. For `foreachBatch`, use `transform`.
        checkpoint:
            Folder of the query's offsets and, without `store=`, of the store. Each start with a new
            checkpoint is a new query with a graph of its own, unless it adopts the store of another query.
        queryName:
            The query's name in Spark. By default, that of the pipeline.
        processingTime, availableNow:
            Spark's triggers: batches at an interval such as `"5 seconds"`, or everything that is there, and
            then an end. By default, a batch starts as soon as there are events.
        restarts:
            How often the query may start again after a process died.
        """
        trigger = trigger_of(processingTime, availableNow, unsupported)
        if output is None and format == "parquet":
            raise ValueError("output= is missing: name a folder, or a format that needs none, such as 'noop'")
        target = dict(options or {}) | {"checkpointLocation": absolute(checkpoint)}
        if output is not None:
            target["path"] = absolute(output)
            if format in FILE_FORMATS:
                SparkCheckpoint(absolute(checkpoint)).check_table(target["path"])
        store = self.store or f"{absolute(checkpoint)}/{STORE}"
        spark = events.sparkSession
        name = queryName or free_name(spark, self.name)

        def begin() -> StreamingQuery:
            rows = self._dataflow(events, store, starts=True)
            writer = rows.writeStream.format(format).options(**target).queryName(name)
            with planned_once(spark):
                return (writer.trigger(**trigger) if trigger else writer).start()

        return RestartingQuery(
            begin, restarts, store=store, arrays=self._arrays(store), on_cluster=not is_local(spark)
        )

    def plan(self, types: dict[str, str], store: str | None = None) -> Plan:
        """The plan that tasks run, for event columns of these Spark types; writes the store's settings."""
        uri = store or self._folders()[0]
        settings = Store(uri)
        ids, keys = ("string" if types.get(column) == "string" else "int" for column in ("src", "key"))
        settings.fix(store_settings(self.name, self.parts, self.partitioner, self.schema, ids, keys))
        arrays = self._arrays(uri)
        record_arrays(settings, self.name, arrays)
        put_no_dead_letters(settings)
        _, given = put_model(settings, self.model)
        deployed = started_with(settings, given, self.model, self.config)
        if deployed.model != given:
            log.warning(
                "the pipeline %s goes on with version %d of its model, which was deployed after its start "
                "with version %d; to go back, deploy(%d)", self.name, deployed.model, given, given,
            )  # fmt: skip
        return Plan(
            name=self.name,
            store=uri,
            arrays=arrays,
            partitioner=self.partitioner,
            chain=ChainSpec.of(self.model),
            config=self.config,
            model=find_model(settings, deployed.model).path,
            model_version=deployed.model,
            deployment=deployed.number,
            stop_on_dead_letter=self.on_dead_letter == "stop",
            erasures=erasures(settings),
            adopt=self.adopt,
            plugins=plugins_of(self.model),
        )

    def fork(
        self,
        source: str | Path,
        *,
        checkpoint: str | Path | None = None,
        batch: int | None = None,
        history: bool = False,
        fill: Fill | None = None,
        progress: Progress | None = None,
    ) -> Forked:
        """Write this pipeline's store from that of another one: the same graph, with the name, parts,
        partitioner and schema of this pipeline. `start` with a new checkpoint then goes on with it.

        source:
            Checkpoint or store of the other pipeline, which may run. It is only read.
        checkpoint:
            Without `store=`: the new checkpoint, in which the store is written.
        batch:
            The batch after which the graph is taken; the newest unless given.
        history:
            Write every entry of the old log, instead of one entry with the graph.
        fill:
            The new numbers of widened features, such as `{"x": 0.5}`; 0 unless given.
        progress:
            Called with the number of events that are done, and of all.
        """
        target = self.store
        if target is None:
            if checkpoint is None:
                raise ValueError(
                    "fork() needs a place for the new store: checkpoint=, or StreamingGNN(store=)"
                )
            target = f"{absolute(checkpoint)}/{STORE}"
        return fork(
            absolute(source), target, name=self.name, parts=self.parts, partitioner=self.partitioner,
            schema=self.schema, batch=batch, history=history, fill=fill, progress=progress,
        )  # fmt: skip

    def _folders(self) -> tuple[str, str]:
        if self.store is None:
            raise ValueError(
                "this StreamingGNN has no store: call the command on the query that start() returned, or "
                "name a store, StreamingGNN(..., store='graph')"
            )
        return self.store, self._arrays(self.store)

    def _arrays(self, store: str) -> str:
        return self.arrays or default_arrays(self.name, store)
