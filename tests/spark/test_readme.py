"""The README's lines for Spark, as they stand there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from d3gnn.spark.runtime import default_arrays

README = Path(__file__).parents[2] / "README.md"


def test_from_a_folder_of_csv_edges_to_a_table(spark: SparkSession, tmp_path: Path) -> None:
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", README.read_text(), re.S) if "readStream" in b)
    # The JVM is older than this test and stays in the folder that it was started in.
    for name in ("edges/", "embeddings", "checkpoint"):
        assert f'"{name}"' in block
        block = block.replace(f'"{name}"', repr(str(tmp_path / name)))
    (tmp_path / "edges").mkdir()
    (tmp_path / "edges" / "a.csv").write_text("ann,bob,2026-01-01 10:00:00\nbob,cho,2026-01-01 10:00:01\n")
    (tmp_path / "edges" / "b.csv").write_text("cho,ann,2026-01-01 10:00:02\n")
    names: dict[str, Any] = {}
    exec(compile(block, str(README), "exec"), names)
    shutil.rmtree(default_arrays("pipeline", str(tmp_path / "checkpoint" / "graph")))
    rows = names["d3gnn"].latest(spark, str(tmp_path / "embeddings")).collect()
    assert sorted(row.id for row in rows) == ["ann", "bob", "cho"]
    assert all(len(row.embedding) == 32 for row in rows)
