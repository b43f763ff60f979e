"""On a full disk the query ends with a clear error; with free space it continues, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from d3gnn import GraphSchema
from d3gnn.events import edge
from d3gnn.kernel.blocks import Block, BlockKind
from d3gnn.kernel.mapping import NoSpaceLeft
from d3gnn.runtime.outbox import Outbox
from d3gnn.runtime.version import BatchVersion
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun

SCHEMA = GraphSchema(features={"x": 3})


class SmallDisk:
    """A file system of a few megabytes that can grow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def mount(self, size: str, *options: str) -> None:
        settings = ",".join([*options, f"size={size}"])
        command = ["mount", "-t", "tmpfs", "-o", settings, "tmpfs", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")

    def grow(self, size: str) -> None:
        self.mount(size, "remount")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    made = SmallDisk(tmp_path / "small")
    yield made
    subprocess.run(["umount", "--lazy", str(made.folder)], capture_output=True, check=False)


def small_then_large(run: PipelineRun) -> None:
    """A batch that fits, one that does not, and one after it."""
    small, last = random_batches(SCHEMA, seed=3, n_batches=2, batch_size=40, n_vertices=20)
    (large,) = random_batches(SCHEMA, seed=4, n_batches=1, batch_size=20_000, n_vertices=9_000, feature=0.5)
    run.write(small, large, last)


def test_no_space_for_arrays(spark: SparkSession, tmp_path: Path, disk: SmallDisk) -> None:
    disk.mount("2m")
    run = PipelineRun(spark, tmp_path / "run", SCHEMA, arrays=disk.folder / "arrays")
    small_then_large(run)
    for _ in range(2):  # the same error while the disk is full
        with pytest.raises(StreamingQueryException, match=r"no room for .* bytes.*keep the arrays somewhere"):
            run.process_available()
    disk.grow("200m")
    run.process_available()
    run.check()


def test_no_space_in_the_store(spark: SparkSession, tmp_path: Path, disk: SmallDisk) -> None:
    disk.mount("128k")
    run = PipelineRun(spark, tmp_path / "run", SCHEMA, store=disk.folder / "store")
    small_then_large(run)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=r"no space is left in the store .* make room"):
            run.process_available()
    disk.grow("200m")
    run.write([edge(1, 2, time=10**6)])
    run.process_available()
    run.check()


def test_no_space_for_an_outbox(disk: SmallDisk) -> None:
    disk.mount("1m")
    outbox = Outbox(disk.folder)
    block = Block(BlockKind.VALUES, 0, 0, (np.zeros((2000, 128)),))
    with pytest.raises(NoSpaceLeft, match="small"):
        outbox.put(BatchVersion(0, 0, False), 0, 1, [block])
    disk.grow("4m")
    assert outbox.put(BatchVersion(0, 0, False), 0, 1, [block]).nbytes > 2_000_000
