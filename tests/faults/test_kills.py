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
from d3gnn.testing.pipelines import EventFiles, TableWitness

HERE = Path(__file__).parent
OPERATORS = ["partition", "vertex-0", "edge-1", "vertex-1", "edge-2", "vertex-2"]
BATCHES = len(OPERATORS) + 2


def write_stream(folder: Path) -> TableWitness:
    """A file per batch, and what the table must be after each of them."""
    schema = GraphSchema(features={"x": 3})
    witness = TableWitness(EventFiles(folder / "in"), schema, GraphSAGE([3, 8, 4], seed=3))
    stream = random_batches(
        schema, seed=4, n_batches=BATCHES, batch_size=60, n_vertices=40, delete_vertex=0.05
    )
    for batch in stream:
        witness.write(batch)
    return witness


def start_driver(folder: Path, moment: str = "") -> subprocess.Popen[bytes]:
    path = [str(HERE / "assassin"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path),
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",  # as for the other tests' session
        "ASSASSIN": f"{folder / 'kills'};{moment}",
    }
    with (folder / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(HERE / "driver.py"), str(folder)],
            env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


@pytest.mark.parametrize("moment", ["during", "after"])
def test_a_worker_is_killed_in_each_operator(tmp_path: Path, moment: str) -> None:
    witness = write_stream(tmp_path)
    (tmp_path / "kills").mkdir()
    # After the version is stamped it is the same code for all: unless all is asked for, some will do.
    everywhere = moment == "during" or "D3GNN_THOROUGH" in os.environ
    operators = OPERATORS if everywhere else ["partition", "vertex-2"]
    for batch, name in enumerate(operators, start=1):
        (tmp_path / "kills" / f"{name}.{batch}").touch()
    driver = start_driver(tmp_path, moment)
    assert driver.wait(240) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    assert not list((tmp_path / "kills").iterdir()), "every kill has happened"
    assert int((tmp_path / "restarts").read_text()) >= len(operators)
    witness.check(tmp_path / "out", tmp_path / "store")


def test_the_driver_is_killed_in_the_middle_of_batches(tmp_path: Path) -> None:
    witness = write_stream(tmp_path)
    log = tmp_path / "store" / "log"
    driver = start_driver(tmp_path)
    deadline = time.monotonic() + 120
    # Right after Partition has committed a batch, the other operators are in the middle of it.
    while not log.exists() or len(list(log.glob("*.parquet"))) < 3:
        assert time.monotonic() < deadline, (tmp_path / "driver.log").read_text()[-3000:]
        assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-3000:]
        time.sleep(0.005)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    driver = start_driver(tmp_path)
    assert driver.wait(240) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    witness.check(tmp_path / "out", tmp_path / "store")
