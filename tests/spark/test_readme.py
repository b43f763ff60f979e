"""The lines for Spark in README and docs, as they stand there."""

from __future__ import annotations

import json
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
    progress = names["query"].lastProgress
    said = names["d3gnn"].metrics(progress)
    assert set(said) == {"partition", "vertex-0", "edge-1", "vertex-1", "edge-2", "vertex-2"}
    assert progress["observedMetrics"]["d3gnn.events"].rows == 3
    partition, edge, last = said["partition"], said["edge-1"], said["vertex-2"]
    assert [partition[name] for name in ("applied", "late", "dead", "refreshed")] == [3, 0, 0, 0]
    assert partition["replication_factor"] == partition["replicas"] / 3 >= 1
    assert (last["rows"], last["tombstones"]) == (3, 0)
    assert (edge["messages"], edge["parcels"]) == (3, 4)
    assert edge["bytes"] > 0 < edge["busy_us"]
    by_part = [json.loads(part) for part in progress["observedMetrics"]["d3gnn.edge-1"].parts]
    assert sorted(part["part"] for part in by_part) == [0, 1]
    assert sum(part["messages"] for part in by_part) == 3
    assert "'applied': 3" in capsys.readouterr().out
