"""Whether a query runs on a store: a lock that the query holds as long as it lives, whatever ends it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from d3gnn.private import open_private, private_folder
from d3gnn.runtime.in_use import is_in_use, lock_alone, store_of
from d3gnn.runtime.plan import arrays_on_host
from d3gnn.store.store import Store, StoreError

_NAME = ".running"
#: How long a query that was just stopped may take to end.
_PATIENCE = 2.0


class PipelineRunning(StoreError):
    """A query runs on the store, which must be stopped first."""


def mark_running(store: Store, arrays: str | Path) -> IO[bytes]:
    """Show that a query runs, as long as the returned file is open. Waits while it is `held_stopped`."""
    file = _open(store, arrays)
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


@contextmanager
def held_stopped(store: Store, arrays: str | Path) -> Iterator[None]:
    """Keep queries from running while the block runs; raises `PipelineRunning` if one does."""
    with _open(store, arrays) as file:
        deadline = time.monotonic() + _PATIENCE
        while not lock_alone(file.fileno()):
            if time.monotonic() > deadline:
                raise PipelineRunning(
                    f"a query runs on the store {store.uri}: stop it (query.stop(), or Ctrl-C in "
                    "`d3gnn run`), then try again"
                )
            time.sleep(0.1)
        yield


@contextmanager
def held_unused(store: Store) -> Iterator[None]:
    """`held_stopped`, where no process of this host uses arrays of the store either: a worker may outlive its
    query, which was killed, and be in the middle of a batch.
    """
    arrays = arrays_on_host(store)
    with held_stopped(store, arrays):
        deadline = time.monotonic() + _PATIENCE
        while used := _used_by(store, Path(arrays)):
            if time.monotonic() > deadline:
                raise PipelineRunning(
                    f"processes use the arrays in {used}, which belong to the store {store.uri}: the workers "
                    "of a stopped query end a minute after it, or with its Spark session. Wait, or stop the "
                    "session, then try again"
                )
            time.sleep(0.1)
        yield


def _used_by(store: Store, arrays: Path) -> Path | None:
    """The arrays of a query of this store that a process uses. The folder may have those of several queries,
    also of queries that the store no longer belongs to, and of other stores.
    """
    queries = sorted(arrays.iterdir()) if arrays.is_dir() else []
    found = (query for query in queries if store_of(query) == store.uri and is_in_use(query))
    return next(found, None)


def _open(store: Store, arrays: str | Path) -> IO[bytes]:
    """The file of the lock: in a local store; for others, beside the arrays on this host."""
    folder = private_folder(store.local or Path(arrays))
    return os.fdopen(open_private(folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_APPEND), "ab")
