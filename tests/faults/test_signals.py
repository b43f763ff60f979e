"""Signals and stops in the middle of a batch: the batch is finished, and nothing has to be rebuilt."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Timer

import pytest
import torch
from pyspark.sql import SparkSession
from torch import Tensor

from d3gnn import GraphSchema
from d3gnn.nn import GNN, Layer
from d3gnn.nn.layer import _TYPES as LAYERS
from d3gnn.runtime.plan import default_arrays
from d3gnn.runtime.verify import stored_plan, verify
from d3gnn.store.graph_log import GraphLog
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun

HERE = Path(__file__).parent
SIGNALS = ["SIGTERM", "SIGHUP"] if "D3GNN_THOROUGH" in os.environ else ["SIGTERM"]


def wait_for(happened: Callable[[], bool], log: Path | None = None) -> None:
    deadline = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < deadline, log.read_text() if log else "it did not happen"
        time.sleep(0.02)


def processes_of(root: int) -> list[int]:
    """A process and all below it."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(pid): int(parent) for pid, parent in map(str.split, listed.splitlines())}
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_to_all_processes_ends_a_run_after_its_batch(tmp_path: Path, name: str) -> None:
    """As systemd sends it, and `timeout`, which sends it twice: to the process and to its group."""
    source, checkpoint, log = tmp_path / "in", tmp_path / "checkpoint", tmp_path / "log"
    for folder in (source, tmp_path / "pauses"):
        folder.mkdir()
    (source / "a.csv").write_text("src,dst\nann,bob\nbob,cho\n")
    (tmp_path / "pauses" / "1").touch()
    path = [str(HERE / "pause_hook"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path),
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",  # as for the session of the other tests
        "PAUSE_HOOK": str(tmp_path / "pauses"),
    }
    places = ["--output", str(tmp_path / "out"), "--checkpoint", str(checkpoint)]
    with log.open("wb") as output:
        run = subprocess.Popen(
            [sys.executable, "-m", "d3gnn", "run", str(source), *places, "--follow"],
            env=environment, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        wait_for((checkpoint / "commits" / "0").exists, log)
        (source / "b.csv").write_text("src,dst\ncho,dan\ndan,ann\n")
        wait_for((tmp_path / "pauses" / "paused").exists, log)
        processes = processes_of(run.pid)
        for pid in processes:
            os.kill(pid, getattr(signal, name))
        os.killpg(run.pid, getattr(signal, name))
        time.sleep(1)  # for processes that end of it
        (tmp_path / "pauses" / "paused").unlink()
        assert run.wait(120) == 0, log.read_text()
    finally:
        run.kill()
        run.wait()
    text = log.read_text()
    assert "stopped after" in text
    assert "4 events in 2 batches" in text, text
    assert "Traceback" not in text
    assert "Exception" not in text
    wait_for(lambda: not any(map(is_alive, processes)))
    verdict = verify(checkpoint)
    assert (verdict.batch, verdict.edges, verdict.missing) == (1, 4, 0)
    assert verdict.max_relative_error < 1e-5
    shutil.rmtree(default_arrays("pipeline", str(checkpoint / "graph")))


def test_a_query_that_is_stopped_in_a_batch_need_not_be_rebuilt(spark: SparkSession, tmp_path: Path) -> None:
    """Spark kills workers that go on after a stop: unless told otherwise, two seconds later."""

    class Waiting(Layer):
        aggr = "sum"
        flag = str(tmp_path / "wait")

        def __init__(self, width: int) -> None:
            super().__init__()
            self.width = self.in_width = self.out_width = self.message_width = self.root_width = width

        def message(self, x: Tensor) -> Tensor:
            return x / 2

        def root(self, x: Tensor) -> Tensor:
            return x

        def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
            flag = Path(self.flag)
            while flag.exists():
                flag.with_name("waits").touch()
                time.sleep(0.02)
            return root + aggregate

    try:
        torch.manual_seed(1)
        run = PipelineRun(spark, tmp_path, GraphSchema(features={"x": 3}), 2, model=GNN([Waiting(3)]))
        first, second, third = random_batches(
            run.gnn.schema, seed=3, n_batches=3, batch_size=50, n_vertices=20
        )
        run.write(first)
        run.process_available()
        run.write(second)
        Path(Waiting.flag).touch()  # only now: the oracle has the same model
        query = run.start()
        wait_for((tmp_path / "waits").exists)
        release = Timer(3.5, Path(Waiting.flag).unlink)
        release.start()
        query.stop()
        release.join()
        plan = stored_plan(str(run.gnn.store))
        assert verify(plan).batch == 1, "the batch was finished"
        run.write(third)
        run.process_available()
        run.check()
        assert GraphLog.open(str(run.gnn.store)).store.list("snapshots") == [], "nothing was rebuilt"
    finally:
        del LAYERS["Waiting"]
