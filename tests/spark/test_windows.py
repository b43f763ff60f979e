"""Windows on Spark: pending changes are sent when due, by a drain, at the end of a run, and after a loss."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from d3gnn import GraphSchema
from d3gnn.events import edge, feature
from d3gnn.kernel.windows import Windows
from d3gnn.oracle import relative_error
from d3gnn.runtime.timers import read_timers
from d3gnn.spark.restarting import RestartingQuery
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun
from d3gnn.testing.table_checker import newest_rows
from d3gnn.windows import AdaptiveSession, Count, Session, Tumbling, Window

SCHEMA = GraphSchema(features={"x": 3})
AN_HOUR = 3600.0
THOROUGH = "D3GNN_THOROUGH" in os.environ


def batches(seed: int, count: int = 6) -> list[Any]:
    return list(random_batches(SCHEMA, seed=seed, n_batches=count, batch_size=40, n_vertices=30))


def wait_for(what: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.05)


def wait_for_nothing_pending(run: PipelineRun, running: RestartingQuery) -> None:
    """Check between two batches: within one, what an operator has sent has not arrived at the next."""

    def nothing_is_pending() -> bool:
        running.processAllAvailable()
        return run.gnn.pending() == 0

    wait_for(nothing_is_pending)


def test_pending_changes_are_sent_when_due_without_events(spark: SparkSession, tmp_path: Path) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA, 2, window=Tumbling(0.5))
    run.write(
        [*(feature(i, [i, 1.0, 2.0], time=0) for i in range(9)), edge(1, 2, time=1), edge(2, 3, time=1)]
    )
    running = run.start(processingTime="0 seconds")
    try:
        arrays = f"{run.gnn.arrays}/{running.id}"
        wait_for(lambda: running.lastProgress is not None and read_timers(arrays) is not None)
        run.write([edge(4, 2, time=2), edge(5, 1, time=2), feature(1, [9.0, 9.0, 9.0], time=2)])
        wait_for(lambda: sum(p["numInputRows"] for p in running.recentProgress) >= 14)
        wait_for_nothing_pending(run, running)
    finally:
        running.stop()
    run.check_drained()


def test_drain_sends_pending_changes(spark: SparkSession, tmp_path: Path) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA, 2, window=Tumbling(AN_HOUR))
    run.write(*batches(5, 3))
    running = run.start(processingTime="0 seconds")
    try:
        rows = sum(map(len, batches(5, 3)))
        wait_for(lambda: sum(p["numInputRows"] for p in running.recentProgress) >= rows)
        assert run.gnn.pending() > 0
        run.gnn.drain()
        wait_for_nothing_pending(run, running)
    finally:
        running.stop()
    run.check_drained()


@pytest.mark.parametrize("lost", ["arrays", "layout", "nothing", "window", "reduce", "forward"])
def test_changes_pending_at_a_stop_are_not_lost(spark: SparkSession, tmp_path: Path, lost: str) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA, 2, window=Tumbling(AN_HOUR))
    run.write(*batches(6, 3))
    running = run.start(processingTime="0 seconds")
    rows = sum(map(len, batches(6, 3)))
    wait_for(lambda: sum(p["numInputRows"] for p in running.recentProgress) >= rows)
    running.stop()
    assert run.gnn.pending() > 0
    if lost == "arrays":
        shutil.rmtree(tmp_path / "arrays")
    if lost == "layout":
        of_another_release(tmp_path / "arrays")
    # Changes that are pending in a window that is removed must be sent, or the run never ends.
    if lost in ("window", "reduce"):
        run.reconfigure(reduce=None)
    if lost in ("window", "forward"):
        run.reconfigure(forward=None)
    run.process_available()
    run.check_drained()


@pytest.mark.parametrize("window", [Tumbling(AN_HOUR), AdaptiveSession(widest=AN_HOUR)], ids=repr)
def test_a_window_can_be_removed_and_added_again(spark: SparkSession, tmp_path: Path, window: Window) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA, 2)
    stream = list(batches(7, 5))
    for each, batch in zip((window, None, window, Count(2), window), stream, strict=True):
        run.reconfigure(reduce=each, forward=each)
        run.write(batch)
        run.process_available()
        run.check_drained()


def of_another_release(arrays: Path) -> None:
    """Replace the arrays by files with another layout version."""
    for path in [path for path in arrays.rglob("*") if path.is_file()]:
        content = bytearray(path.read_bytes())
        if path.name == "header":
            content[8:16] = (1).to_bytes(8, "little")
        path.unlink()
        path.write_bytes(content)


def python_workers() -> list[int]:
    """The processes of this session's Python workers, without those that start them."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    found = [line.split(None, 2) for line in listed.stdout.splitlines()]
    started, starters, workers = {os.getpid()}, set[int](), []
    for pid, parent, command in sorted(found, key=lambda row: int(row[0])):
        if int(parent) in started:
            started.add(int(pid))
            if int(parent) in starters:
                workers.append(int(pid))
            elif "daemon pyspark.worker" in command:
                starters.add(int(pid))
    return workers


#: Two by default: the delay of a window makes no difference to a kill.
KILLED: list[tuple[Windows, int]] = [
    (Tumbling(AN_HOUR), 2),
    (AdaptiveSession(widest=AN_HOUR), 4),
    (Session(AN_HOUR), 4),
    (Count(1000, max_delay=AN_HOUR), 1),
    ((Tumbling(AN_HOUR), None), 2),
]


@pytest.mark.parametrize(("window", "parts"), KILLED if THOROUGH else KILLED[:2], ids=repr)
def test_a_kill_in_the_middle_of_a_window(
    spark: SparkSession, tmp_path: Path, window: Windows, parts: int
) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA, parts, window=window)
    first, second = batches(7, 3), batches(8, 3)
    run.write(*first)
    running = run.start(processingTime="0 seconds", restarts=3)
    rows = sum(map(len, first))
    wait_for(lambda: sum(p["numInputRows"] for p in running.recentProgress) >= rows)
    assert run.gnn.pending() > 0
    for pid in python_workers():
        os.kill(pid, signal.SIGKILL)
    run.write(*second)
    running.awaitTermination(5)
    running.stop()
    run.process_available(restarts=3)
    run.check_drained()


def test_windows_by_event_time(spark: SparkSession, tmp_path: Path) -> None:
    run = PipelineRun(spark, tmp_path, SCHEMA, 2, window=Tumbling(AN_HOUR))
    run.reconfigure(clock="event")
    hour = 3_600_000_000
    run.write(
        [*(feature(i, [i, 1.0, 2.0], time=0) for i in range(5)), edge(1, 2, time=0), edge(2, 3, time=0)],
        [edge(4, 2, time=1)],
        *([edge(100 + i, 200 + i, time=i * 2 * hour)] for i in range(1, 6)),
    )
    running = run.start(processingTime="0 seconds")
    try:
        rows = 7 + 1 + 5
        wait_for(lambda: sum(p["numInputRows"] for p in running.recentProgress) >= rows)
        running.processAllAvailable()
        table, expected = newest_rows(run.output), run.checker.oracle_embeddings()
        for id in (2, 3):
            assert relative_error(np.array([table[id]]), expected[id][None]) <= 1e-5, "hours have passed"
        assert run.gnn.pending() > 0, "no event time has passed since the last events"
    finally:
        running.stop()
    run.process_available()
    run.check_drained()
