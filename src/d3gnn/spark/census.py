"""A look at the home of every task before a run: what would fail in the first batch, or later.

It gives clear errors, and saves a run that would only find out that state is lost. Correctness does not
depend on it: every batch checks versions for itself.
"""

from __future__ import annotations

import logging
import platform
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame

import d3gnn
from d3gnn.kernel.operators import PARTITION
from d3gnn.runtime.cluster_worker import ClusterWorker
from d3gnn.runtime.host_folder import host_folder_id
from d3gnn.runtime.leftovers import sweep
from d3gnn.runtime.plan import Plan
from d3gnn.spark.homes import HomesError, ask
from d3gnn.store.epochs import Epochs
from d3gnn.store.store import Store

__all__ = ["HomeReport", "take_census"]

log = logging.getLogger("d3gnn")


class HomeReport(NamedTuple):
    """What is found in the home of a task."""

    task: int
    host: str
    python: str
    version: str
    #: The id of the folder of arrays.
    folder: bytes
    #: Why the store, the model or the folder of arrays cannot be used; empty if they can.
    problem: str
    #: State that is there: (operator, part, epoch, batch), and whether a batch was interrupted.
    parts: Sequence[tuple[str, int, int, int, bool]] = ()


def take_census(plan: Plan, homes: DataFrame) -> list[HomeReport]:
    """Look at every home; raises `HomesError` with all problems, and marks an epoch whose state is lost."""
    query, store = Store(plan.store).owner(), Store(plan.store)
    newest = Epochs(store).newest()
    reports = ask(homes, lambda task: _look(plan, query, task))[: plan.tasks]
    if problems := list(_problems(plan, reports)):
        raise HomesError("the cluster is not ready:\n  " + "\n  ".join(problems))
    if newest is not None and (lost := _lost(plan, reports, newest.value)):
        log.warning("state is lost, and the first batch rebuilds it: %s", lost)
        Epochs(store).lose(newest.value, lost)
    return reports


def _look(plan: Plan, query: str, task: int) -> HomeReport:
    """In the home of a task."""
    host, python = socket.gethostname(), platform.python_version()
    try:
        epochs = Epochs(Store(plan.store))
        epochs.require_store()
        folder = host_folder_id(plan.arrays)
        sweep(Path(plan.arrays), plan.store, query)
        with closing(ClusterWorker(plan, query)) as worker:
            _ = worker.model  # loads compiled code, too
            parts = list(_parts(worker, task)) if query else []
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        return HomeReport(task, host, python, d3gnn.__version__, b"", problem)
    return HomeReport(task, host, python, d3gnn.__version__, folder, "", parts)


def _parts(worker: ClusterWorker, task: int) -> Iterator[tuple[str, int, int, int, bool]]:
    """The versions of the parts of a task. Opening arrays makes them, so only those are opened that exist."""
    plan = worker.plan
    names = []
    if task == 0:
        names = [(PARTITION, 0), *((id, part) for id in plan.chain.inputs for part in range(plan.parts))]
    behind = [id for id in plan.chain.operators if id not in plan.chain.inputs]
    names += [(id, part) for id in behind for part in range(plan.parts) if plan.task(part) == task]
    for id, part in names:
        if not (worker.state.folder(id, part) / "header").exists():
            yield str(id), part, 0, 0, False
            continue
        state = worker.state.open(id, part)
        with state.locked():  # waits for a worker of an earlier run that is still in its batch
            found = (*state.version, state.dirty)
        yield str(id), part, *found


def _problems(plan: Plan, reports: Sequence[HomeReport]) -> Iterator[str]:
    own = platform.python_version_tuple()[:2]
    for each in reports:
        where = f"the executor of task {each.task} on {each.host}"
        if each.problem:
            yield f"{where} cannot use the store {plan.store}, its model, or {plan.arrays}: {each.problem}"
        if tuple(each.python.split(".")[:2]) != own:
            yield f"{where} runs Python {each.python}, the driver {platform.python_version()}"
        if each.version != d3gnn.__version__:
            yield f"{where} has d3gnn {each.version}, the driver {d3gnn.__version__}"
    folders = {each.folder: each for each in reports if each.folder}
    for each in reports:
        planned, other = plan.homes[each.task], folders.get(each.folder)
        if other is not None and plan.homes[other.task] != planned and not each.problem:
            yield (
                f"{planned} and {plan.homes[other.task]} share the folder {plan.arrays}: name a folder on "
                "each host, StreamingGNN(arrays=...)"
            )


def _lost(plan: Plan, reports: Sequence[HomeReport], epoch: int) -> str:
    """What is not whole of an epoch; empty if everything is."""
    versions = {(found, batch) for each in reports for _, _, found, batch, _ in each.parts}
    newest = max((batch for found, batch in versions if found == epoch), default=0)
    for each in reports:
        for name, part, found, batch, dirty in each.parts:
            if found != epoch or dirty or batch < newest - 1:
                state = f"version {(found, batch)}" if found else "no arrays"
                state = "an interrupted batch" if dirty else state
                return f"{name}, part {part}, on {each.host}: {state}"
    return ""
