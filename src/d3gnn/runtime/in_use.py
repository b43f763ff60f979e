"""Whether arrays are in use: a lock that every process holds that works with them.

A process that ends, however it ends, holds no lock. So arrays without one belong to no running query, and may
be removed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from d3gnn.private import open_private, private_folder, read_private

#: The locked file in the folder of a query's arrays; it holds the URI of the query's store.
NAME = "in-use"
#: The beginning of the name of a folder that is being removed.
REMOVED = "removed-"


class InUse:
    """Marks the arrays of a query as in use, as long as this process lives or until `close`.

    folder:
        The folder of the query's arrays.
    store:
        The URI of the query's store.
    """

    def __init__(self, folder: str | Path, store: str) -> None:
        self._folder, self._path, self._store = Path(folder), Path(folder) / NAME, store
        self._file: int | None = None

    def mark(self) -> None:
        """Mark the folder, which is made if need be; again, if it was removed since the last call."""
        while not self._is_marked():
            self.close()
            private_folder(self._folder, tighten=True)
            try:
                file = open_private(self._path, os.O_RDWR | os.O_CREAT)
            except FileNotFoundError:  # the folder was removed at this moment
                continue
            self._file = file
            fcntl.flock(file, fcntl.LOCK_SH)  # waits until a process that removes the folder has done so
            os.ftruncate(file, os.pwrite(file, self._store.encode(), 0))

    def mark_existing(self) -> None:
        """Mark the folder if it exists."""
        if not self._is_marked() and self._folder.is_dir():
            self.mark()

    def close(self) -> None:
        """Release the lock of this process."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _is_marked(self) -> bool:
        if self._file is None:
            return False
        try:
            return self._path.stat().st_ino == os.fstat(self._file).st_ino
        except FileNotFoundError:
            return False


def is_in_use(folder: Path) -> bool:
    """Whether a process, also this one, uses the arrays in the folder of a query."""
    try:
        file = open_private(folder / NAME)
    except FileNotFoundError:
        return False
    try:
        return not lock_alone(file)
    finally:
        os.close(file)


def store_of(folder: Path) -> str:
    """The URI of the store that the arrays in the folder of a query belong to; empty if it is not known."""
    try:
        return read_private(folder / NAME).decode()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""


def remove_unused(folder: Path) -> bool:
    """Remove the folder of a query's arrays; False, and no change, if a process uses it."""
    try:
        file = open_private(folder / NAME, os.O_RDWR | os.O_CREAT)
    except FileNotFoundError:
        return True
    try:
        if not lock_alone(file):
            return False
        # Moved first: a query that starts now finds either all of the folder or nothing of it.
        aside = folder.with_name(REMOVED + folder.name.removeprefix(REMOVED))
        if aside != folder:
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
        return True
    finally:
        os.close(file)


def lock_alone(file: int) -> bool:
    """Lock an open file for this process alone; False if another one has a lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
