"""Restored checkpoints and damaged stores under Spark: refused, repaired, continued; no event is lost."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from d3gnn import GraphSchema
from d3gnn.cli import app
from d3gnn.events import EventBatch, edge
from d3gnn.runtime.verify import held_embeddings, stored_plan, verify
from d3gnn.store.store import StoreError
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun
from d3gnn.testing.table_checker import newest_rows

SCHEMA = GraphSchema(features={"x": 3})
ROUNDS = 12 if "D3GNN_THOROUGH" in os.environ else 3


def command(*arguments: str | int | Path, code: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result.output


def check(run: PipelineRun) -> None:
    plan = stored_plan(str(run.gnn.store), arrays=run.gnn.arrays)
    assert verify(plan).max_relative_error < 1e-5
    run.checker.check_end(held_embeddings(plan, run.checker.oracle.vertices))
    run.checker.check_end(newest_rows(run.output))


def test_an_older_checkpoint_and_a_damaged_log_are_repaired(spark: SparkSession, tmp_path: Path) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA)
    *batches, last = random_batches(SCHEMA, seed=3, n_batches=5, batch_size=40, n_vertices=20)
    store, checkpoint = tmp_path / "store", run.checkpoint
    for b in range(3):
        run.write(batches[b])
        run.process_available()
        if b == 0:
            shutil.copytree(checkpoint, tmp_path / "backup")

    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "backup", checkpoint)
    # The same events in other batches.
    for path in sorted((tmp_path / "in").glob("*.parquet"))[1:]:
        path.unlink()
    run.checker.files.write(EventBatch.concat(batches[1:3]))
    run.write(batches[3])
    with pytest.raises(StoreError, match=r"has the rows of batches up to 2, but the checkpoint .* batch 0"):
        run.start()
    run.output = tmp_path / "second"
    with pytest.raises(StreamingQueryException, match=r"other rows for batch 1 .* repair --last-batch 0"):
        run.process_available()
    said = command("repair", "--store", store, "--checkpoint", checkpoint, "--last-batch", "0", "--yes")
    assert "drop batches 1 to 2 from the log: the pipeline must read their events again" in said
    run.process_available()
    check(run)

    run.write(last)
    run.process_available()
    path = store / "log" / "000000000002.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    shutil.rmtree(tmp_path / "arrays")
    with pytest.raises(StreamingQueryException, match=r"StoreDamaged: log/000000000002.parquet in the store"):
        run.process_available()
    said = command("verify", "--checkpoint", store, "--deep", code=2)
    assert "damaged: log/000000000002.parquet: its " in said
    assert "damaged: batch 2\n" in said
    assert "set the checkpoint" in command("repair", "--store", store, "--checkpoint", checkpoint, code=1), (
        "without an answer nothing is done"
    )
    command("repair", "--store", store, "--checkpoint", checkpoint, "--yes")
    assert "nothing to repair" in command("repair", "--store", store, "--checkpoint", checkpoint)
    run.output = tmp_path / "third"
    run.process_available()
    check(run)


def test_damage_to_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """Spark names the damaged file, or the log recognises the batches that come again."""
    run = PipelineRun(spark, tmp_path / "run", SCHEMA)
    *batches, last = random_batches(SCHEMA, seed=4, n_batches=4, batch_size=40, n_vertices=20)
    run.write(*batches)
    run.process_available()
    run.write(last)
    shutil.copytree(run.folder, tmp_path / "backup")
    for seed in range(ROUNDS):
        dice = random.Random(seed)
        shutil.rmtree(run.folder)
        shutil.copytree(tmp_path / "backup", run.folder)
        paths = [path for path in run.checkpoint.glob("[oc]*/[0-9]*") if path.is_file()]
        path, kind = dice.choice(sorted(paths)), ("flip", "truncate", "delete")[seed % 3]
        if kind == "delete":
            path.unlink()
        else:
            data = bytearray(path.read_bytes())
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
            path.write_bytes(data if kind == "flip" else data[: len(data) // 2])
        error: Exception | None = None
        try:
            run.process_available()
        except Exception as failed:
            error = failed
        if error is None:
            run.check_state()
        else:
            named = f"{path.parent.name}/{path.name}"
            assert named in str(error) or "d3gnn repair" in str(error), f"{kind} {named}: {error}"


def test_damage_to_partitions_arrays_between_two_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Partition would decide by them, and log it: a run that ends seals them, and the next one looks."""
    run = PipelineRun(spark, tmp_path, SCHEMA)
    for b, batch in enumerate(random_batches(SCHEMA, seed=5, n_batches=3, batch_size=40, n_vertices=20)):
        run.write(batch)
        if b < 2:
            run.process_available()
        else:  # ends by stop() instead
            running = run.start(processingTime="0 seconds")
            running.processAllAvailable()
            running.stop()
        run.check()
        damaged = 0
        for path in tmp_path.glob("arrays/*/partition/0/*.array"):
            path.write_bytes(bytes(byte ^ 1 for byte in path.read_bytes()))
            damaged += 1
        assert damaged
    run.write([edge(1, 2, time=999)])
    run.process_available()
    check(run)
