"""Erase vertices from everything that a stopped pipeline keeps, and search for what is left."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from d3gnn.events import Key
from d3gnn.runtime.in_use import store_of
from d3gnn.runtime.liveness import held_stopped
from d3gnn.runtime.plan import absolute, arrays_on_host, large_folder
from d3gnn.store.erasure import (
    ErasedGraph,
    erase_from_dead_letters,
    erase_from_log,
    mark_erasure,
    search_store,
)
from d3gnn.store.graph_log import GraphLog, open_store
from d3gnn.store.named_ids import NamedIds
from d3gnn.store.output_table import check_table, erase_from_table, search_table
from d3gnn.store.store import Store

__all__ = ["Erasure", "Place", "forget"]

_LOG = ("log", "snapshots")


@dataclass(frozen=True)
class Place:
    """Where ids were named: files, and rows in them."""

    place: str
    files: int
    rows: int


@dataclass(frozen=True)
class Erasure:
    """The report of an erasure. It does not name the ids."""

    store: str
    #: How many ids were given; how many vertices and edges of them the graph had.
    ids: int
    vertices: int
    edges: int
    #: Where they were named before.
    found: tuple[Place, ...]
    #: Files of state on this host that were deleted.
    array_files: int
    #: Files that still name one of the ids, after everything; empty if the erasure is complete.
    left: tuple[str, ...]
    #: Whether it was only a search, which changed nothing.
    dry_run: bool = False


def forget(
    folder: str | Path,
    ids: Iterable[Key],
    *,
    outputs: Sequence[str | Path] = (),
    arrays: str | Path | None = None,
    dry_run: bool = False,
) -> Erasure:
    """Erase vertices with all their edges: from the graph log, whose history is deleted, from dead letters,
    from state on this host, and from output tables. The next start rebuilds all state from the log.

    Every step can be repeated: after a crash, calling it again finishes the work. Raises `PipelineRunning`
    while a query runs.

    folder:
        The pipeline's checkpoint, or its store.
    outputs:
        Output tables: local folders of Parquet files.
    arrays:
        Folder of the pipeline's arrays, if it is not the default one.
    dry_run:
        Only search.
    """
    store = open_store(absolute(folder))
    host = Path(arrays or arrays_on_host(store))
    named, tables = _checked(store, ids), [check_table(output) for output in outputs]
    with held_stopped(store, host):
        found = _search(store, tables, named)
        if dry_run:
            left = tuple(sorted(found))
            return Erasure(store.uri, len(named), 0, 0, _places(found), 0, left, dry_run=True)
        mark_erasure(store, named)
        array_files = _delete_arrays(host, store)
        graph = ErasedGraph()
        if any(path.split("/")[0] in _LOG for path in found):
            graph = erase_from_log(GraphLog(store), named)
        erase_from_dead_letters(store, named)
        for path in store.walk():
            if path.startswith(".tmp/"):  # what a killed process was writing
                store.delete(path)
        for table in tables:
            erase_from_table(table, named)
        left = tuple(sorted(_search(store, tables, named)))
    return Erasure(store.uri, len(named), *graph, _places(found), array_files, left)


def _checked(store: Store, ids: Iterable[Key]) -> NamedIds:
    """The ids, which must have the type of the store's."""
    given = list(ids)
    if not given:
        raise ValueError("there are no ids to forget")
    kind, name = (str, "strings") if store.settings["ids"] == "string" else (int, "integers")
    for id in given:
        if not isinstance(id, kind) or isinstance(id, bool):
            raise ValueError(f"the ids of {store.uri} are {name}; {id!r} is none")
    return NamedIds(given)


def _search(store: Store, tables: Sequence[Path], ids: NamedIds) -> Counter[str]:
    found = search_store(store, ids)
    for table in tables:
        found += search_table(table, ids)
    return found


def _places(found: Counter[str]) -> tuple[Place, ...]:
    """Sums for each folder."""
    files: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    for path, count in found.items():
        place = path.rpartition("/")[0] or "."
        files[place] += 1
        rows[place] += count
    return tuple(Place(place, files[place], rows[place]) for place in sorted(files))


def _delete_arrays(arrays: Path, store: Store) -> int:
    """Delete the state of all queries of a store on this host; returns the number of files."""
    count = 0
    for query in arrays.glob("*-*-*-*-*"):
        is_own = query.name == store.owner() or store_of(query) == store.uri
        if is_own and (query / "partition" / "0" / "header").exists():
            for folder in {query, large_folder(arrays) / query.name}:
                if folder.exists():
                    count += sum(path.is_file() for path in folder.rglob("*"))
                    shutil.rmtree(folder)
    return count
