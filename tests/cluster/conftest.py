"""Machines with a Spark cluster, and a driver on them, for all tests of this folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from d3gnn.testing.driver_process import DriverProcess
from d3gnn.testing.machines import Machines, why_no_machines
from d3gnn.testing.spark_cluster import SparkCluster

DRIVER = Path(__file__).with_name("driver.py")


@pytest.fixture(scope="session")
def storage() -> Iterator[Path]:
    """A folder that all machines share. Each has a /tmp of its own."""
    if reason := why_no_machines():
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="d3gnn-cluster-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster(storage: Path) -> Iterator[SparkCluster]:
    """A master and two or, with D3GNN_THOROUGH=1, three workers, each on a machine of its own."""
    number = 4 if "D3GNN_THOROUGH" in os.environ else 3
    with Machines(number, storage / "machines") as machines, SparkCluster(machines) as spark:
        yield spark


@pytest.fixture(scope="session")
def driver(cluster: SparkCluster) -> Iterator[DriverProcess]:
    """A driver for tests that do not kill it."""
    made = DriverProcess(cluster, DRIVER, "driver")
    yield made
    made.close()
