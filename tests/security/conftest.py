"""Another user of the machine, a folder that all users share, and pipelines without Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from d3gnn import GraphSchema
from d3gnn.events import Event, EventBatch
from d3gnn.nn import GraphSAGE
from d3gnn.pipeline import StreamingGNN
from d3gnn.runtime.chain_worker import ChainWorker
from d3gnn.runtime.log_coordinator import LogCoordinator

NOBODY = 65534
Shell = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder like /tmp and /dev/shm, in which every user may create files."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def other_user(shared: Path) -> Shell:
    """Runs a shell command as another user, in the shared folder."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")

    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", command], cwd=shared, user=NOBODY, group=NOBODY, extra_groups=[],
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


class Pipeline:
    """A pipeline whose batches run in this process, as the task of a query on Spark runs them."""

    def __init__(self, folder: Path, name: str, **settings: Any) -> None:
        self.gnn = StreamingGNN(
            GraphSAGE(2, 4, 1, 3, seed=0),
            name=name,
            store=folder / "store",
            schema=GraphSchema(features={"x": 2}),
            **settings,
        )
        self.plan = self.gnn.plan({"src": "bigint"})
        self.query, self.batches = str(uuid.uuid4()), 0
        self.worker: ChainWorker | None = None

    @property
    def folder(self) -> Path:
        """The folder of its arrays."""
        return Path(self.plan.arrays) / self.query

    def process(self, events: Sequence[Event]) -> None:
        """Process one batch."""
        if self.worker is None:
            self.worker = ChainWorker(self.plan, self.query)
        LogCoordinator(self.worker).run(self.batches, EventBatch.of(events), set())
        self.batches += 1

    def stop(self) -> None:
        """Release the arrays, as a worker that ends does."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Callable[..., Pipeline]]:
    """Makes pipelines."""
    made: list[Pipeline] = []

    def make(name: str = "pipeline", **settings: Any) -> Pipeline:
        made.append(Pipeline(tmp_path / name, name, **settings))
        return made[-1]

    yield make
    for each in made:
        each.stop()
