"""Keeps the pipeline of a store from doing anything: a worker may outlive its query, which was killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from d3gnn.kernel.operators import PARTITION
from d3gnn.private import open_private
from d3gnn.runtime.in_use import store_of
from d3gnn.runtime.liveness import PipelineRunning, held_stopped, lock_soon
from d3gnn.runtime.plan import arrays_on_host
from d3gnn.store.store import Store


@contextmanager
def held_idle(store: Store) -> Iterator[None]:
    """`held_stopped`, where no worker of this host is in a batch either; idle ones wait for the end."""
    arrays = arrays_on_host(store)
    with held_stopped(store, arrays), ExitStack() as files:
        for query in _queries_of(store, Path(arrays)):
            with suppress(FileNotFoundError):
                header = open_private(query / str(PARTITION) / "0" / "header", os.O_RDWR)
                files.callback(os.close, header)
                if not lock_soon(header):
                    raise PipelineRunning(
                        f"a worker is in a batch on the arrays in {query}, which belong to the store "
                        f"{store.uri}, although its query has ended: wait for the end of the batch, then try "
                        "again"
                    )
        yield


def _queries_of(store: Store, arrays: Path) -> list[Path]:
    """The arrays of all queries of this store, also of those that it no longer belongs to. The folder may
    have those of other stores, too.
    """
    queries = sorted(path for path in arrays.glob("*") if path.is_dir())
    return [query for query in queries if store_of(query) == store.uri]
