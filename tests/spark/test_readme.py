"""The Spark examples of the documentation run, and print what the documentation shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from d3gnn.runtime.metrics import by_part
from d3gnn.runtime.plan import default_arrays

ROOT = Path(__file__).parents[2]
#: A block that tests/test_docs.py does not run, and the block with its output, if there is one.
BLOCK = re.compile(
    r"^<!-- not run: [^>]*test_readme[^>]*-->\s*^```python\n(?P<code>.*?)^```$"
    r"(?:\s*^```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
#: Strings in blocks that are paths. The JVM does not follow the test into its folder: they become absolute.
PATHS = re.compile(r'"(edges/|embeddings|checkpoint|other-checkpoint|store)"')
EDGES = {
    "a.csv": "ann,bob,2026-01-01 10:00:00\nbob,cho,2026-01-01 10:00:01\n",
    "b.csv": "cho,ann,2026-01-01 10:00:02\n",
}


def run_blocks(
    document: Path, folder: Path, capsys: pytest.CaptureFixture[str], *,
    edges: dict[str, str] = EDGES, shows_all: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Run the document's Spark blocks over a folder of edges; returns the names that they define.

    `shows_all`: a block without an output in the document must print nothing.
    """
    for file, rows in edges.items():
        (folder / "edges").mkdir(exist_ok=True)
        (folder / "edges" / file).write_text(rows)
    names: dict[str, Any] = {}
    text = document.read_text()
    for block in BLOCK.finditer(text):
        code = PATHS.sub(lambda path: repr(str(folder / path[1])), block["code"])
        before = "\n" * text.count("\n", 0, block.start("code"))  # tracebacks show the document's lines
        exec(compile(before + code, str(document), "exec"), names)
        printed = lines(capsys.readouterr().out)
        if block["output"] is not None or shows_all:
            assert printed == lines(block["output"] or ""), f"of the block\n{block['code']}"
    return names


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def test_the_readme(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = run_blocks(ROOT / "README.md", tmp_path, capsys)
    shutil.rmtree(default_arrays("pipeline", str(tmp_path / "checkpoint" / "graph")))
    rows = names["d3gnn"].latest(spark, str(tmp_path / "embeddings")).collect()
    assert sorted(row.id for row in rows) == ["ann", "bob", "cho"]
    assert all(len(row.embedding) == 32 for row in rows)


def test_docs_spark(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = run_blocks(ROOT / "docs" / "spark.md", tmp_path, capsys)
    shutil.rmtree(default_arrays("pipeline", str(tmp_path / "checkpoint" / "graph")))
    shutil.rmtree(default_arrays("alerts", str(tmp_path / "store")))
    progress = names["query"].lastProgress
    found = names["d3gnn"].metrics(progress)
    assert set(found) == {"partition", "vertex-0", "edge-1", "vertex-1", "edge-2", "vertex-2"}
    assert progress["observedMetrics"]["d3gnn.events"].rows == 3
    partition, edge, last = found["partition"], found["edge-1"], found["vertex-2"]
    assert [partition[name] for name in ("applied", "late", "dead", "refreshed")] == [3, 0, 0, 0]
    assert partition["replication_factor"] == partition["replicas"] / 3 >= 1
    assert (last["rows"], last["tombstones"]) == (3, 0)
    assert edge["messages"] == 3
    assert edge["bytes"] > 0 < edge["busy_us"]
    by_thread = by_part(progress)["edge-1"]
    assert sorted(row["part"] for row in by_thread) == [0, 1]
    assert sum(row["messages"] for row in by_thread) == 3


def test_docs_graph_log(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_blocks(ROOT / "docs" / "graph-log.md", tmp_path, capsys, edges={})
    assert names["log"].last() == 1
    shutil.rmtree(default_arrays("pipeline", str(tmp_path / "checkpoint" / "graph")))
