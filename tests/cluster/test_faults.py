"""Machines, executors, networks, disks and drivers fail in a run, which ends as if they had not."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from d3gnn.testing.driver_process import DriverProcess
from d3gnn.testing.spark_cluster import SparkCluster

DRIVER = Path(__file__).with_name("driver.py")
BATCHES = 10
thorough = pytest.mark.skipif("D3GNN_THOROUGH" not in os.environ, reason="needs D3GNN_THOROUGH=1")


def wait_for_batch(storage: Path, name: str, number: int) -> None:
    """Wait until a batch has its log entry: the operators behind Partition are in the middle of it."""
    log, deadline = storage / name / "store" / "log", time.monotonic() + 180
    while not log.is_dir() or len(list(log.glob("*.parquet"))) <= number:
        assert time.monotonic() < deadline, "the run has not come so far"
        time.sleep(0.01)


def started(driver: DriverProcess, storage: Path, name: str, **settings: object) -> str:
    """Start a run, and wait until it is in its fourth batch."""
    folder = str(storage / name)
    driver.call("open", folder=folder, parts=4, **settings)
    driver.call("write", folder=folder, batches=BATCHES)
    driver.begin("run", folder=folder, restarts=20)
    wait_for_batch(storage, name, 3)
    return folder


def ends_exact(driver: DriverProcess, folder: str, least: int = 0) -> None:
    """The run that was started goes on by itself and ends equal to an undisturbed one."""
    found = driver.answer(400)
    assert found["restarted"] >= least, found
    driver.call("check", folder=folder)


def kill(pids: list[int]) -> None:
    assert pids, "there is nothing to kill"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def whole(cluster: SparkCluster) -> Iterator[SparkCluster]:
    """The cluster, with all machines and workers again after the test."""
    yield cluster
    for name in cluster.workers:
        cluster.machines.join(name)
        if not any("worker.Worker" in line for line in cluster.machines.processes(name).values()):
            cluster.machines.boot(name)
            cluster.start_worker(name)
    cluster.wait_for_executors()


@thorough
def test_an_executor_dies(driver: DriverProcess, whole: SparkCluster, storage: Path) -> None:
    folder = started(driver, storage, "executor")
    kill(whole.executors("h2"))
    ends_exact(driver, folder)


@thorough
@pytest.mark.parametrize("host", ["h1", "h2"])
def test_a_host_dies_with_its_memory(
    driver: DriverProcess, whole: SparkCluster, storage: Path, host: str
) -> None:
    folder = started(driver, storage, f"host-{host}")
    whole.machines.crash(host)
    ends_exact(driver, folder, least=1)


@thorough
def test_python_workers_die(driver: DriverProcess, whole: SparkCluster, storage: Path) -> None:
    folder = started(driver, storage, "workers")
    for host in whole.workers:
        kill(whole.python_workers(host))
    ends_exact(driver, folder)


@thorough
def test_the_network_of_a_host_is_cut(driver: DriverProcess, whole: SparkCluster, storage: Path) -> None:
    folder = started(driver, storage, "network")
    whole.machines.cut("h2")
    time.sleep(30)
    whole.machines.join("h2")
    ends_exact(driver, folder)


@thorough
def test_the_driver_dies(cluster: SparkCluster, storage: Path) -> None:
    # The first driver has all slots of the other cluster.
    with SparkCluster(cluster.machines, port=7078) as another:
        first = DriverProcess(another, DRIVER, "mortal")
        folder = started(first, storage, "driver")
        first.kill()
        second = DriverProcess(another, DRIVER, "second")
        second.call("open", folder=folder, parts=4)
        second.call("read", folder=folder, batches=BATCHES)
        second.begin("run", folder=folder, restarts=20)
        ends_exact(second, folder)
        second.close()


@thorough
def test_the_store_is_away_for_a_while(driver: DriverProcess, storage: Path) -> None:
    folder = started(driver, storage, "away")
    store = Path(folder) / "store"
    failed = driver.log.read_text().count("starts again")
    store.rename(store.with_name("elsewhere"))
    deadline = time.monotonic() + 180
    while driver.log.read_text().count("starts again") == failed:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    # Nothing may be written to a folder that only looks like the store.
    assert not (store / "log").exists()
    shutil.rmtree(store, ignore_errors=True)
    store.with_name("elsewhere").rename(store)
    ends_exact(driver, folder, least=1)


@thorough
def test_the_memory_of_a_host_is_full(driver: DriverProcess, whole: SparkCluster, storage: Path) -> None:
    folder = started(driver, storage, "full")
    full = "dd if=/dev/zero of=/dev/shm/filler bs=1M 2>/dev/null || true"
    whole.machines.run("h2", "sh", "-c", full)
    time.sleep(5)
    whole.machines.run("h2", "rm", "/dev/shm/filler")
    ends_exact(driver, folder)
