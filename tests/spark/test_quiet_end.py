"""Scripts that end without stopping their session or their query print nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Java prints this line when it starts, whatever Spark is set to.
JAVA = "WARNING: Using incubator modules: jdk.incubator.vector"

BEGIN = """
import time
import d3gnn
from d3gnn.nn import GraphSAGE

spark = d3gnn.session("local[2]")
"""
QUERY = """
def slow(batches):
    for batch in batches:
        time.sleep({seconds})
        yield batch

edges = spark.readStream.schema("src string, dst string").csv("edges/")
edges = edges.mapInArrow(slow, "src string, dst string")
query = d3gnn.StreamingGNN(GraphSAGE(2, 4, 1)).start(
    d3gnn.from_edges(edges), "embeddings", checkpoint="checkpoint"
)
"""
SCRIPTS = {
    "a session": "print(spark.range(3).count())",
    "an idle query": QUERY.format(seconds=0) + "query.processAllAvailable()\nprint(3)",
    "a query in a batch": QUERY.format(seconds=60)
    + "while not query.status['isTriggerActive']:\n    time.sleep(0.1)\ntime.sleep(5)\nprint(3)",
}


@pytest.mark.parametrize("end", SCRIPTS)
def test_a_script_ends_without_output_of_its_own(tmp_path: Path, end: str) -> None:
    (tmp_path / "edges").mkdir()
    (tmp_path / "edges" / "a.csv").write_text("ann,bob\nbob,cho\n")
    script = tmp_path / "script.py"
    script.write_text(BEGIN + SCRIPTS[end])
    # Java prints a note if this is set, as the fixture `spark` does.
    environment = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
    ran = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert [line for line in ran.stderr.splitlines() if line != JAVA] == []
    assert (ran.stdout, ran.returncode) == ("3\n", 0)
