"""Processes are killed with SIGKILL in the middle of batches; nothing is lost, nothing is applied twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from d3gnn import GraphSchema
from d3gnn.events import EventBatch
from d3gnn.kernel.reference import Oracle, embeddings, relative_error
from d3gnn.nn import GraphSAGE
from d3gnn.testing import random_batches

HERE = Path(__file__).parent
OPERATORS = ["partition", "vertex-0", "edge-1", "vertex-1", "edge-2", "vertex-2"]
BATCHES = len(OPERATORS) + 2


def write_stream(folder: Path) -> Oracle:
    """A file per batch, and the oracle that has seen them all."""
    schema = GraphSchema(features={"x": 3})
    oracle = Oracle(schema)
    (folder / "in").mkdir()
    stream = random_batches(schema, seed=4, n_batches=BATCHES, batch_size=60, n_vertices=40)
    for i, batch in enumerate(stream):
        oracle.apply(batch)
        path = folder / "in" / f"{i:04d}.parquet"
        pq.write_table(_with_all_columns(batch), path)
        os.utime(path, (1_000_000_000 + i,) * 2)
    return oracle


def _with_all_columns(batch: EventBatch) -> pa.Table:
    table = batch.to_arrow()
    types = {"key": pa.int64(), "feature": pa.string(), "value": pa.list_(pa.float32())}
    for name, dtype in types.items():
        column = table[name].cast(dtype) if name in table.column_names else pa.nulls(len(batch), dtype)
        table = table.drop_columns(name) if name in table.column_names else table
        table = table.append_column(name, column)
    return table.select(["op", "element", "src", "dst", "key", "feature", "value", "time"])


def start_driver(folder: Path, moment: str = "") -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "PYTHONPATH": str(HERE / "assassin"),
        "ASSASSIN": f"{folder / 'kills'};{moment}",
    }
    with (folder / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(HERE / "driver.py"), str(folder)],
            env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def check(folder: Path, oracle: Oracle) -> None:
    newest: dict[object, dict[str, object]] = {}
    rows = pq.read_table(folder / "out").to_pylist()
    for row in sorted(rows, key=lambda row: row["batch"]):
        newest[row["id"]] = row
    got = {id: row["embedding"] for id, row in newest.items() if not row["deleted"]}
    expected = embeddings(GraphSAGE([3, 8, 4], seed=3), oracle)
    assert set(got) == set(expected)
    have = np.array([got[id] for id in expected], np.float32)
    assert relative_error(have, np.stack(list(expected.values()))) < 1e-5
    log = sorted((folder / "checkpoint" / "graph" / "log").glob("*.parquet"))
    assert [int(path.stem) for path in log] == list(range(len(log))), "every batch is logged once"


@pytest.mark.parametrize("moment", ["during", "after"])
def test_a_worker_is_killed_in_each_operator(tmp_path: Path, moment: str) -> None:
    oracle = write_stream(tmp_path)
    (tmp_path / "kills").mkdir()
    for batch, name in enumerate(OPERATORS, start=1):
        (tmp_path / "kills" / f"{name}.{batch}").touch()
    driver = start_driver(tmp_path, moment)
    assert driver.wait(240) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    assert not list((tmp_path / "kills").iterdir()), "every kill has happened"
    assert int((tmp_path / "restarts").read_text()) >= len(OPERATORS)
    check(tmp_path, oracle)


def test_the_driver_is_killed_in_the_middle_of_batches(tmp_path: Path) -> None:
    oracle = write_stream(tmp_path)
    log = tmp_path / "checkpoint" / "graph" / "log"
    for wanted in (2, 5):
        driver = start_driver(tmp_path)
        deadline = time.monotonic() + 120
        # Right after Partition has committed a batch, the other operators are in the middle of it.
        while not log.exists() or len(list(log.glob("*.parquet"))) < wanted:
            assert time.monotonic() < deadline, (tmp_path / "driver.log").read_text()[-3000:]
            assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-3000:]
            time.sleep(0.005)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    driver = start_driver(tmp_path)
    assert driver.wait(240) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    check(tmp_path, oracle)
