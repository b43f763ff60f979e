"""The state of a pipeline, which may be running, as it is between two batches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager

from d3gnn.kernel.mapped_state import StateLost
from d3gnn.kernel.operators import PARTITION, OperatorId
from d3gnn.kernel.operators.sharing import ADJACENCIES
from d3gnn.runtime.chain_worker import SHARED
from d3gnn.runtime.in_use import is_in_use
from d3gnn.runtime.plan import Plan
from d3gnn.runtime.worker import INTERRUPTED, Worker

#: How long to wait for the end of a batch, and between two looks.
_PATIENCE, _PAUSE = 120.0, 0.05


class NotVerified(StateLost):
    """The state of a pipeline cannot be compared with its log; the message says why and what to do."""


@contextmanager
def between_batches(plan: Plan, query: str) -> Iterator[tuple[Worker, tuple[int, int]]]:
    """All operators of a pipeline at one version, which is yielded, too; no batch begins meanwhile.

    Raises `NotVerified` if the state is missing, interrupted, or not yet built.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        _require_arrays(plan, query)
        with closing(Worker(plan, query)) as worker:
            partition = worker.state.open(PARTITION, 0)
            # Partition holds this lock in its part of a batch. A batch in which other tasks still work has
            # parts at two versions.
            with partition.locked():
                epoch, batch = partition.version
                if partition.dirty:
                    raise NotVerified(
                        f"a batch after batch {batch - 1} was interrupted in {worker.folder}: start the "
                        "pipeline, which rebuilds its state from the graph log, then verify again"
                    )
                if _is_whole(worker, epoch, batch):
                    yield worker, (epoch, batch)
                    return
        if not is_in_use(worker.folder) or time.monotonic() > deadline:
            raise NotVerified(
                f"the arrays in {worker.folder} are of several versions: a batch was interrupted, or takes "
                "long. Start the pipeline or wait for the end of the batch, then verify again"
            )
        time.sleep(_PAUSE)


def _require_arrays(plan: Plan, query: str) -> None:
    """Check for all files before any is opened: opening makes them."""
    worker = Worker(plan, query)
    names = [(PARTITION, 0), *((id, part) for id in plan.chain.operators for part in range(plan.parts))]
    if all((worker.state.folder(*name) / "header").exists() for name in names):
        return
    raise NotVerified(
        f"there are no embeddings to compare in {worker.folder}, where the arrays of this pipeline should "
        "be: if they are elsewhere, name the folder (--arrays, or arrays=); else start the pipeline, which "
        "rebuilds them from the graph log"
    )


def _is_whole(worker: Worker, epoch: int, batch: int) -> bool:
    """Whether the parts behind Partition are at its version."""
    versions = set(_versions(worker, worker.plan.chain.operators))
    if (epoch, SHARED) in versions:  # then the operators share the edges, too
        versions.update(_versions(worker, ADJACENCIES.values()))
    return versions <= {(epoch, batch), (epoch, SHARED)}


def _versions(worker: Worker, ids: Iterable[OperatorId]) -> Iterator[tuple[int, int]]:
    for id in ids:
        for part in range(worker.plan.parts):
            state = worker.state.open(id, part)
            state.remap_grown()
            yield (state.version[0], INTERRUPTED) if state.dirty else state.version
