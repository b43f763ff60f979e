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
from d3gnn.runtime.in_use import lock_alone
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
        if not lock_soon(file.fileno()):
            raise PipelineRunning(
                f"a query runs on the store {store.uri}: stop it (query.stop(), or Ctrl-C in "
                "`d3gnn run`), then try again"
            )
        yield


def lock_soon(file: int) -> bool:
    """Lock an open file for this process alone; False if another one has a lock for long."""
    deadline = time.monotonic() + _PATIENCE
    while not lock_alone(file):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _open(store: Store, arrays: str | Path) -> IO[bytes]:
    """The file of the lock: in a local store; for others, beside the arrays on this host."""
    folder = private_folder(store.local or Path(arrays))
    return os.fdopen(open_private(folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_APPEND), "ab")
