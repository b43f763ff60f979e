"""Test a Spark pipeline end to end against the oracle; needs pyspark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from d3gnn.events import Event, EventBatch, GraphSchema
from d3gnn.nn import GNN, GraphSAGE
from d3gnn.pipeline import StreamingGNN
from d3gnn.runtime.verify import held_embeddings, stored_plan, verify
from d3gnn.sources.event_files import EventFiles
from d3gnn.spark.cluster_settings import is_local
from d3gnn.spark.restarting import RestartingQuery
from d3gnn.spark.verify import embeddings_on_cluster, verify_on_cluster
from d3gnn.testing.table_checker import TableChecker, newest_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["PipelineRun"]


class PipelineRun:
    """A pipeline with its input files, checkpoint and output table in one folder, and a `TableChecker`.

    Args:
        spark: The Spark session.
        folder: Folder for all files of the run.
        schema: The schema of the graph.
        parts: Number of parts.
        model: The model; a GraphSAGE with two layers by default.
        ids: Spark type of the ids, `bigint` or `string`.
        order: Further event columns: `arrival`, `partition`, `offset`.
        settings: Further arguments of `StreamingGNN`.

    Example:
        >>> run = PipelineRun(spark, "folder", GraphSchema(features={"x": 3}))  # doctest: +SKIP
        >>> run.write([edge(1, 2, time=1)])  # doctest: +SKIP
        >>> query = run.process_available()  # doctest: +SKIP
        >>> run.check()  # doctest: +SKIP
    """

    #: Tasks of an operator, if the settings do not have them.
    tasks: ClassVar[int | None] = None

    def __init__(
        self,
        spark: SparkSession,
        folder: str | Path,
        schema: GraphSchema,
        parts: int = 2,
        *,
        model: GNN | None = None,
        ids: str = "bigint",
        order: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        self.spark, self.folder = spark, Path(folder)
        self.output, self.checkpoint = self.folder / "out", self.folder / "checkpoint"
        model = model or GraphSAGE(schema.width, 8, 2, 4, seed=3)
        settings = {
            "store": self.folder / "store",
            # On a cluster, the folder is on storage that all hosts share.
            "arrays": self.folder / "arrays" if is_local(spark) else None,
            "tasks": self.tasks,
        } | settings
        self.gnn = StreamingGNN(model, name=self.folder.name, parts=parts, schema=schema, **settings)
        columns = ("key", "feature", "value", *order)
        self.checker = TableChecker(EventFiles(self.folder / "in", ids, columns), schema, model)

    def reconfigure(self, **changes: Any) -> None:
        """Change settings of the pipeline for its next start."""
        self.gnn.config = replace(self.gnn.config, **changes)

    def write(self, *batches: EventBatch | Iterable[Event]) -> None:
        """Write batches, one input file each, and apply them to the oracle."""
        for batch in batches:
            self.checker.write(batch)

    def set_model(self, model: GNN) -> None:
        """Use another model, from the next start and the next written batch on."""
        self.gnn.model = self.checker.model = model

    def embeddings(self) -> DataFrame:
        """The output of `StreamingGNN.transform` over the input files, a streaming DataFrame."""
        return self.gnn.transform(self.checker.files.read(self.spark))

    def start(self, **options: Any) -> RestartingQuery:
        """Start a query over the available files; `options` are those of `StreamingGNN.start`."""
        events = self.checker.files.read(self.spark)
        defaults: dict[str, Any] = {"restarts": 0}
        if "processingTime" not in options:
            defaults["availableNow"] = True
        return self.gnn.start(events, self.output, checkpoint=self.checkpoint, **defaults | options)

    def process_available(self, **options: Any) -> RestartingQuery:
        """Process all available files, and return the finished query."""
        running = self.start(**options)
        running.awaitTermination()
        return running

    def start_query(self, writer: DataStreamWriter, **trigger: Any) -> StreamingQuery:
        """Start a custom query on the checkpoint of the run; by default it processes all available files."""
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def check(self) -> None:
        """Compare the output table with the oracle after every batch, and the state with a recomputation."""
        self.checker.check(self.output, str(self.gnn.store))
        self.check_state()

    def check_drained(self) -> None:
        """For windows, after a drain: nothing is pending; state and newest rows equal the oracle."""
        assert self.gnn.pending() == 0
        self.check_state()
        self.checker.check_end(newest_rows(self.output))

    def check_state(self) -> None:
        """Check that each file was applied once, and compare the state (not the output) with the oracle."""
        store, oracle = str(self.gnn.store), self.checker.oracle
        self.checker.check_log(store)
        plan = stored_plan(store, arrays=self.gnn.arrays)
        if on_cluster := not is_local(self.spark):
            held = embeddings_on_cluster(self.spark, plan, oracle.vertices)
        else:
            held = held_embeddings(plan, oracle.vertices)
        self.checker.check_end(held)
        found = verify_on_cluster(self.spark, plan) if on_cluster else verify(plan)
        assert (found.vertices, found.edges) == (len(oracle.vertices), len(oracle.edges()))
