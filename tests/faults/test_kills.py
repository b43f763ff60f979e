"""Processes are killed with SIGKILL in the middle of batches; nothing is lost, nothing is applied twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from d3gnn import GraphSchema
from d3gnn.nn import GraphSAGE
from d3gnn.testing import random_batches
from d3gnn.testing.table_checker import EventFiles, TableChecker

HERE = Path(__file__).parent
OPERATORS = ["partition", "vertex-0", "edge-1", "vertex-1", "edge-2", "vertex-2"]
BATCHES = len(OPERATORS) + 2


def write_stream(folder: Path) -> TableChecker:
    """Write a file per batch; the checker has the expected table after each of them."""
    schema = GraphSchema(features={"x": 3})
    checker = TableChecker(EventFiles(folder / "in"), schema, GraphSAGE(3, 8, 2, 4, seed=3))
    stream = random_batches(
        schema, seed=4, n_batches=BATCHES, batch_size=60, n_vertices=40, delete_vertex=0.05
    )
    for batch in stream:
        checker.write(batch)
    return checker


def start_driver(folder: Path, tasks: int, when: str = "") -> subprocess.Popen[bytes]:
    path = [str(HERE / "kill_hook"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path),
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",  # as for the session of the other tests
        "KILL_HOOK": f"{folder / 'kills'};{when}",
    }
    with (folder / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(HERE / "driver.py"), str(folder), str(tasks)],
            env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


in_both_shapes = pytest.mark.parametrize("tasks", [1, 2], ids=["one task", "two tasks"])


@in_both_shapes
@pytest.mark.parametrize("when", ["during", "after"])
def test_a_worker_is_killed_in_each_operator(tmp_path: Path, tasks: int, when: str) -> None:
    checker = write_stream(tmp_path)
    (tmp_path / "kills").mkdir()
    # After the version is stamped, all operators run the same code: a selection is enough by default. In one
    # task, the whole chain has one version.
    everywhere = when == "during" or ("D3GNN_THOROUGH" in os.environ and tasks > 1)
    operators = OPERATORS if everywhere else ["partition", "vertex-2"] if tasks > 1 else ["partition"]
    for batch, name in enumerate(operators, start=1):
        (tmp_path / "kills" / f"{name}.{batch}").touch()
    driver = start_driver(tmp_path, tasks, when)
    assert driver.wait(240) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    assert not list((tmp_path / "kills").iterdir()), "a kill did not happen"
    assert int((tmp_path / "restarts").read_text()) >= len(operators)
    checker.check(tmp_path / "out", tmp_path / "store")


@in_both_shapes
def test_the_driver_is_killed_in_the_middle_of_batches(tmp_path: Path, tasks: int) -> None:
    checker = write_stream(tmp_path)
    log = tmp_path / "store" / "log"
    driver = start_driver(tmp_path, tasks)
    deadline = time.monotonic() + 120
    # Right after Partition has committed a batch, the other operators are in the middle of it.
    while not log.exists() or len(list(log.glob("*.parquet"))) < 3:
        assert time.monotonic() < deadline, (tmp_path / "driver.log").read_text()[-3000:]
        assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-3000:]
        time.sleep(0.005)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    driver = start_driver(tmp_path, tasks)
    assert driver.wait(240) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    checker.check(tmp_path / "out", tmp_path / "store")
