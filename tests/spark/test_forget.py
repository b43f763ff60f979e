"""A pipeline forgets vertices: Spark still reads its table, and goes on from its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from d3gnn import GraphSchema, latest
from d3gnn.cli import app
from d3gnn.events import delete_vertex, edge, feature
from d3gnn.runtime.liveness import PipelineRunning
from d3gnn.runtime.verify import stored_plan, verify
from d3gnn.testing.pipelines import PipelineRun
from d3gnn.testing.table_checker import committed_files

SCHEMA = GraphSchema(features={"x": 3})


def names(folder: Path, text: str) -> list[str]:
    """Files, at any depth, that have a text in them; columns of Parquet files are compressed."""
    found = []
    for file in folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            if file.suffix == ".parquet":
                content += repr(pq.read_table(file).to_pydict()).encode()
            if text.encode() in content:
                found.append(str(file.relative_to(folder)))
    return found


def test_a_pipeline_forgets_and_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA, 2, ids="string")
    run.write([edge("ann", "eve-7", time=1), edge("bob", "ann", time=1), feature("eve-7", [1, 2, 3], time=2)])
    run.write([delete_vertex("bob", time=3), edge("eve-7", "cho", time=4)])
    query = run.start(processingTime="1 second", availableNow=None)
    try:
        query.processAllAvailable()
        with pytest.raises(PipelineRunning, match="a query runs on the store"):
            run.gnn.forget(["eve-7"])
    finally:
        query.stop()
    # As after a kill: Spark has not committed the newest batch, and will replay it.
    newest = max((run.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)

    arguments = [
        "forget", "--store", run.gnn.store, "--id", "eve-7", "--output", run.output, "--arrays",
        run.gnn.arrays, "--json",
    ]  # fmt: skip
    assert CliRunner().invoke(app, [*map(str, arguments), "--dry-run"]).exit_code == 1
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["complete"]
    assert (report["vertices"], report["edges"]) == (1, 2)
    for folder in ("store", "arrays", "out", "checkpoint"):
        assert names(tmp_path / folder, "eve-7") == []
    rows = spark.read.parquet(str(run.output))
    assert {row.id for row in rows.select("id").collect()} == {"ann", "bob", "cho"}
    assert {len(row.embedding) for row in rows.collect()} == {4}
    assert {row.id for row in latest(spark, str(run.output)).collect()} == {"ann", "cho"}

    # The replayed batch is recognised, although its files still have the vertex.
    run.process_available()
    assert names(tmp_path / "store", "eve-7") == []
    assert verify(stored_plan(str(run.gnn.store), arrays=run.gnn.arrays)).max_relative_error < 1e-5
    # Late for the deleted vertex; a new vertex for the forgotten one.
    run.write([edge("ann", "bob", time=2), edge("ann", "eve-7", time=2)])
    run.process_available()
    found = verify(stored_plan(str(run.gnn.store), arrays=run.gnn.arrays))
    assert (found.vertices, found.edges, found.missing) == (3, 1, 0)
    assert found.max_relative_error < 1e-5
    assert {row.id for row in latest(spark, str(run.output)).collect()} == {"ann", "cho", "eve-7"}
    assert committed_files(run.output)
