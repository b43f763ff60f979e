"""Arrays that no running query uses: found in the usual places, listed and removed."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from d3gnn.private import private_folder
from d3gnn.runtime.host_folder import HOST_ID
from d3gnn.runtime.in_use import NAME, REMOVED, is_in_use, remove_unused, store_of
from d3gnn.runtime.plan import LARGE, MEMORY, Plan, large_folder
from d3gnn.runtime.timers import TIMERS
from d3gnn.store.store import SETTINGS, Store

#: The folders of queries, which have Spark's ids.
_QUERY = re.compile(rf"({REMOVED})?[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}")


@dataclass(frozen=True)
class Leftover:
    """The arrays of one query, which no process uses."""

    #: The folder of the query's arrays, and that of its files that are too large for memory.
    folder: Path
    large: Path
    #: The store that the arrays can be rebuilt from; empty if it is not known.
    store: str

    @property
    def nbytes(self) -> int:
        """The size of all its files."""
        return sum(map(_size, {self.folder, self.large}))

    @property
    def is_useless(self) -> bool:
        """Whether no start can use these arrays again, since their store is gone."""
        is_local = bool(self.store) and ":/" not in self.store
        return is_local and not (Path(self.store) / SETTINGS).exists()

    def remove(self) -> bool:
        """Remove the arrays; False if a query has begun to use them."""
        if self.folder.exists() and not remove_unused(self.folder):
            return False
        shutil.rmtree(self.large, ignore_errors=True)
        for folder in {self.folder.parent, self.large.parent}:
            with suppress(OSError):
                if not _queries(folder):
                    (folder / TIMERS).unlink(missing_ok=True)  # of an earlier release
                    (folder / HOST_ID).unlink(missing_ok=True)
                folder.rmdir()
        return True


def places() -> list[Path]:
    """The folders of arrays of this user in the usual places."""
    found = []
    for root in dict.fromkeys((MEMORY, Path(tempfile.gettempdir()))):
        with suppress(OSError):
            found += [path for path in sorted(root.glob("d3gnn-*-*")) if _is_own_folder(path)]
    return found


def leftovers(arrays: Iterable[Path]) -> Iterator[Leftover]:
    """The arrays in these folders, each the `arrays` of pipelines, that no running query uses."""
    seen: set[Path] = set()
    for place in arrays:
        # Large files are on a disk: after a reboot, they may be all that there is.
        near = MEMORY / place.name.removesuffix(LARGE) if place.name.endswith(LARGE) else place
        for name in _queries(place):
            folder = near / name
            if folder not in seen and not is_in_use(folder):
                yield Leftover(folder, large_folder(near) / name, store_of(folder))
            seen.add(folder)


def prepare_arrays(plan: Plan) -> None:
    """On the host of the driver, before a query starts: check the folder of its arrays, and remove those that
    no start can use again.
    """
    arrays = Path(plan.arrays)
    if os.path.lexists(arrays):
        private_folder(arrays)
    sweep(arrays, plan.store, Store(plan.store).owner())


def sweep(arrays: Path, store: str, query: str) -> None:
    """Remove what no start can use again: arrays whose store is gone, in the usual places and in the folder
    `arrays`; and there also those that an earlier query of the same store has left.
    """
    with suppress(OSError):
        for leftover in leftovers([arrays, *places()]):
            here = leftover.folder.parent == arrays
            earlier = here and leftover.store == store and leftover.folder.name != query
            if earlier or leftover.is_useless:
                leftover.remove()


def _queries(place: Path) -> list[str]:
    """The names of the folders of queries in a folder."""
    with suppress(OSError):
        return sorted(path.name for path in place.iterdir() if _QUERY.fullmatch(path.name) and _is_ours(path))
    return []


def _is_ours(query: Path) -> bool:
    """Whether a folder of this name belongs to this user and holds arrays."""
    if not _is_own_folder(query):
        return False
    in_place_of_arrays = query.parent.name.endswith(LARGE) or query.name.startswith(REMOVED)
    return in_place_of_arrays or (query / NAME).exists() or (query / "partition" / "0" / "header").exists()


def _is_own_folder(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_blocks * 512
    return total
