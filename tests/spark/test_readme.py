"""The lines for Spark in README and docs, as they stand there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from d3gnn.spark.runtime import default_arrays

ROOT = Path(__file__).parents[2]


def run_block(document: Path, folder: Path, *paths: str) -> dict[str, Any]:
    """Run the document's lines for Spark over a folder of edges; the names that they leave."""
    (block,) = (
        b for b in re.findall(r"```python\n(.*?)```", document.read_text(), re.S) if "readStream" in b
    )
    # The JVM is older than this test and stays in the folder that it was started in.
    for name in paths:
        assert f'"{name}"' in block
        block = block.replace(f'"{name}"', repr(str(folder / name)))
    (folder / "edges").mkdir()
    (folder / "edges" / "a.csv").write_text("ann,bob,2026-01-01 10:00:00\nbob,cho,2026-01-01 10:00:01\n")
    (folder / "edges" / "b.csv").write_text("cho,ann,2026-01-01 10:00:02\n")
    names: dict[str, Any] = {}
    exec(compile(block, str(document), "exec"), names)
    return names


def test_from_a_folder_of_csv_edges_to_a_table(spark: SparkSession, tmp_path: Path) -> None:
    names = run_block(ROOT / "README.md", tmp_path, "edges/", "embeddings", "checkpoint")
    shutil.rmtree(default_arrays("pipeline", str(tmp_path / "checkpoint" / "graph")))
    rows = names["d3gnn"].latest(spark, str(tmp_path / "embeddings")).collect()
    assert sorted(row.id for row in rows) == ["ann", "bob", "cho"]
    assert all(len(row.embedding) == 32 for row in rows)


def test_the_lines_about_transform_and_metrics(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run_block(ROOT / "docs" / "spark.md", tmp_path, "edges/", "store", "checkpoint")
    shutil.rmtree(default_arrays("pipeline", str(tmp_path / "store")))
    metrics = names["query"].lastProgress["observedMetrics"]
    assert set(metrics) == {"d3gnn.events", "d3gnn.partition"} | {
        f"d3gnn.{name}" for name in ("vertex-0", "edge-1", "vertex-1", "edge-2", "vertex-2")
    }
    said = metrics["d3gnn.partition"]
    assert (said.applied, said.late, said.dead, said.refreshed) == (3, 0, 0, 0)
    assert said.replication_factor == said.replicas / said.vertices >= 1
    assert (metrics["d3gnn.vertex-2"].rows, metrics["d3gnn.vertex-2"].tombstones) == (3, 0)
    assert metrics["d3gnn.edge-1"].messages == 3
    assert metrics["d3gnn.edge-1"].bytes > 0 < metrics["d3gnn.edge-1"].busy_us
    assert "applied=3" in capsys.readouterr().out
