"""The runs of a pipeline: every start of its query has a number, and only the newest run may change state.

`stop()` returns while workers are still in their batch. A worker of a stopped run, or one on a host that was
cut off, must not write into a batch of the next run. So every start, also a restart after an error, creates
the next file in `runs/`. Only one process can create it, and from then on all earlier runs are refused.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from d3gnn.store.names import LOG, batches_in
from d3gnn.store.sealed_json import to_json
from d3gnn.store.store import Store, StoreError

__all__ = ["RUNS", "Run", "RunIsOver", "begin_run", "newest_run", "run_of"]

#: The folder of the runs.
RUNS = "runs"
#: So many files are kept. The newest one counts; those before it tell when a run began.
_KEPT = 100
_NAME = re.compile(r"(?P<run>[0-9]{6,})(?P<rebuild>-rebuild-[0-9]+)?\.json")


class RunIsOver(StoreError):
    """A task belongs to a run, or to a batch of it, that is over. It has changed nothing."""


class Run(NamedTuple):
    """A run of a pipeline's query."""

    #: From 1, in order; 0 outside Spark, where nothing is left over.
    number: int = 0
    #: The newest batch of the graph log when the run began; -1 for an empty log.
    last: int = -1

    def check(self, store: Store) -> None:
        """Raise `RunIsOver` unless this is the newest run of the store."""
        if (newest := newest_run(store)) != self.number:
            raise RunIsOver(
                f"run {self.number} of the pipeline in {store.uri} is over: run {newest} has begun. This "
                "task has changed nothing. Workers of a stopped query end like this. If this query was not "
                "stopped, the pipeline was started twice: stop one of the two"
            )

    def claim_rebuild(self, store: Store, batch: int) -> bool:
        """Whether no task of this run has begun to rebuild all state in this batch; none will after this."""
        path = f"{RUNS}/{self.number:06d}-rebuild-{batch}.json"
        return store.create(path, to_json({"batch": batch}))


def begin_run(store: Store) -> Run:
    """Begin the next run of a pipeline; all earlier ones are over.

    >>> import tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> first, second = begin_run(store), begin_run(store)
    >>> first.number, second.number, newest_run(store)
    (1, 2, 2)
    >>> first.check(store)
    Traceback (most recent call last):
    d3gnn.store.runs.RunIsOver: run 1 of the pipeline in ... is over: run 2 has begun. ...
    """
    return _begin(store, newest_run(store) + 1)


def _begin(store: Store, number: int, query_run: str = "") -> Run:
    """Begin a run with the first free number from `number` on, or find the one that Spark calls so there."""
    last = max(batches_in(store, LOG), default=-1)
    content = to_json({"last": last, "query_run": query_run})
    while not store.create(_path(number), content):
        if query_run and (found := _find(store, number, query_run)):
            return found  # another task was faster
        number += 1
    for name in store.list(RUNS):
        if (match := _NAME.fullmatch(name)) and int(match["run"]) <= number - _KEPT:
            store.delete(f"{RUNS}/{name}")
    return Run(number, last)


def run_of(store: Store, query_run: str) -> Run:
    """The run that Spark calls so; it begins now if no task has asked for it before.

    For queries that d3gnn does not start, and so cannot number when they start.

    >>> import tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> run_of(store, "a").number, run_of(store, "b").number, run_of(store, "a").number
    (1, 2, 1)
    """
    numbers = _numbers(store)
    for number in reversed(numbers):
        if found := _find(store, number, query_run):
            return found
    # Behind those that were looked at: another task may begin this run meanwhile, and is found there.
    return _begin(store, max(numbers, default=0) + 1, query_run)


def newest_run(store: Store) -> int:
    """The number of the newest run; 0 before the first."""
    return max(_numbers(store), default=0)


def _find(store: Store, number: int, query_run: str) -> Run | None:
    """The run of this number, if Spark calls it so."""
    found = store.read_json(_path(number))
    return Run(number, found["last"]) if found is not None and found["query_run"] == query_run else None


def _numbers(store: Store) -> list[int]:
    found = map(_NAME.fullmatch, store.list(RUNS))
    return sorted(int(match["run"]) for match in found if match and not match["rebuild"])


def _path(number: int) -> str:
    return f"{RUNS}/{number:06d}.json"
