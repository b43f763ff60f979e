"""Events through Spark give the embeddings of the oracle, whatever happens to the processes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from d3gnn import GraphSchema, events
from d3gnn.events import Event, EventBatch, Key
from d3gnn.kernel.reference import Oracle, embeddings, relative_error
from d3gnn.nn import GraphSAGE
from d3gnn.pipeline import StreamingGNN
from d3gnn.spark.verify import stored_plan, verify
from d3gnn.testing import random_batches

SCHEMA = (
    "op string, element string, src long, dst long, key long, feature string, value array<float>, time long"
)


class Stream:
    """A folder of event files, one per batch, and the oracle that has seen them."""

    def __init__(self, folder: Path, schema: GraphSchema) -> None:
        self.folder, self.oracle, self.count = folder / "in", Oracle(schema), 0
        self.folder.mkdir(parents=True)

    def write(self, batch: EventBatch | list[Event]) -> None:
        """A file, which the query takes as one batch."""
        batch = EventBatch.of(batch)
        self.oracle.apply(batch)
        table = batch.to_arrow()
        n = len(batch)
        columns = {
            "op": table["op"], "element": table["element"], "src": table["src"].cast(pa.int64()),
            "dst": table["dst"].cast(pa.int64()),
            "key": table["key"] if "key" in table.column_names else pa.nulls(n, pa.int64()),
            "feature": table["feature"] if "feature" in table.column_names else pa.nulls(n, pa.string()),
            "value": table["value"].cast(pa.list_(pa.float32())) if "value" in table.column_names
            else pa.nulls(n, pa.list_(pa.float32())),
            "time": table["time"],
        }  # fmt: skip
        path = self.folder / f"{self.count:04d}.parquet"
        pq.write_table(pa.table(columns), path)
        os.utime(path, (1_000_000_000 + self.count,) * 2)  # the file source reads the oldest first
        self.count += 1

    def read(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.folder))


class Run:
    """A pipeline with its stream, its checkpoint and its output table."""

    def __init__(
        self, spark: SparkSession, folder: Path, schema: GraphSchema, parts: int, **more: Any
    ) -> None:
        self.spark, self.folder, self.stream = spark, folder, Stream(folder, schema)
        self.model = GraphSAGE([schema.width, 8, 4], seed=3)
        self.gnn = StreamingGNN(
            self.model, name=folder.name, store=folder / "store", parts=parts, schema=schema,
            arrays=folder / "arrays", **more,
        )  # fmt: skip

    def go(self, change: Callable[[DataFrame], DataFrame] = lambda output: output) -> Any:
        """Run until all that is there is taken in; the query."""
        output = change(self.gnn.transform(self.stream.read(self.spark)))
        query = (
            output.writeStream.format("parquet")
            .option("path", str(self.folder / "out"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    def table(self) -> dict[Key, Any]:
        """The newest row per id, as anybody could read it."""
        newest: dict[Key, Any] = {}
        rows = pq.read_table(self.folder / "out").to_pylist()
        for row in sorted(rows, key=lambda row: row["batch"]):
            newest[row["id"]] = row
        return {id: row["embedding"] for id, row in newest.items() if not row["deleted"]}

    def check(self) -> None:
        """The table equals the oracle's embeddings."""
        expected, got = embeddings(self.model, self.stream.oracle), self.table()
        assert set(got) == set(expected)
        if expected:
            want = np.stack(list(expected.values()))
            have = np.array([got[id] for id in expected], np.float32)
            assert relative_error(have, want) < 1e-5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_equals_the_oracle(spark: SparkSession, folder: Path, parts: int) -> None:
    schema = GraphSchema(edges="simple" if parts < 4 else "multi", directed=parts != 2, features={"x": 3})
    run = Run(spark, folder, schema, parts)
    for batch in random_batches(schema, seed=parts, n_batches=5, batch_size=60, n_vertices=40):
        run.stream.write(batch)
    run.go()
    run.check()
    # A restart goes on where the run before has ended.
    run.stream.write([events.edge(1, 2, time=9), events.delete_vertex(3, time=9), events.edge(3, 1, time=10)])
    run.go()
    run.check()


def test_lost_arrays_are_rebuilt_from_the_log(spark: SparkSession, folder: Path) -> None:
    schema = GraphSchema(features={"x": 3})
    run = Run(spark, folder, schema, 2)
    first, second, third = random_batches(schema, seed=8, n_batches=3, batch_size=60, n_vertices=40)
    run.stream.write(first)
    run.go()
    (part,) = (folder / "arrays").glob("*/edge-1/0")
    for file in part.iterdir():
        file.unlink()
    run.stream.write(second)
    query = run.go()
    run.check()
    assert query.lastProgress is not None
    run.stream.write(third)
    run.go()
    run.check()


def test_a_second_query_on_a_store_is_refused(spark: SparkSession, folder: Path) -> None:
    run = Run(spark, folder, GraphSchema(features={"x": 3}), 1)
    run.stream.write([events.edge(1, 2, time=1)])
    run.go()
    output = run.gnn.transform(run.stream.read(spark))
    query = output.writeStream.format("noop").option("checkpointLocation", str(folder / "other")).start()
    with pytest.raises(Exception, match="belongs to the streaming query"):
        query.awaitTermination()


def test_another_model_makes_everything_anew(spark: SparkSession, folder: Path) -> None:
    schema = GraphSchema(features={"x": 3})
    run = Run(spark, folder, schema, 2)
    first, second = random_batches(schema, seed=8, n_batches=2, batch_size=60, n_vertices=40)
    run.stream.write(first)
    run.go()
    run.model = run.gnn.model = GraphSAGE([3, 8, 4], seed=99)
    run.stream.write(second)
    run.go()
    run.check()


def test_a_new_query_does_not_take_the_arrays_of_an_old_one_for_its_own(
    spark: SparkSession, folder: Path
) -> None:
    schema = GraphSchema(features={"x": 3})
    run = Run(spark, folder, schema, 2)
    run.stream.write([events.edge(1, 2, time=1), events.edge(2, 3, time=1)])
    run.go()
    for name in ("store", "checkpoint", "out", "in"):
        shutil.rmtree(folder / name)
    again = Run(spark, folder, schema, 2)
    again.stream.write([events.edge(7, 8, time=1)])
    again.go()
    again.check()


def test_verify_compares_what_the_pipeline_holds_with_its_log(spark: SparkSession, folder: Path) -> None:
    schema = GraphSchema(features={"x": 3})
    run = Run(spark, folder, schema, 2)
    for batch in random_batches(schema, seed=2, n_batches=2, batch_size=80, n_vertices=40):
        run.stream.write(batch)
    run.go()
    plan = stored_plan(folder / "store", arrays=str(folder / "arrays"))
    verdict = verify(plan)
    assert (verdict.vertices, verdict.missing) == (len(run.stream.oracle.vertices), 0)
    assert verdict.max_relative_error < 1e-5
    (value,) = (folder / "arrays").glob("*/vertex-2/0/value.array")
    held = np.memmap(value, np.float32, "r+")
    held[:4] += 1.0
    held.flush()
    assert verify(plan).max_relative_error > 1e-2
