"""The checkpoint of a query, as far as it says which batches were planned and committed.

Spark writes `offsets/N` when it plans batch N, which fixes the events of the batch, and `commits/N` when the
sink has it. Without the files of the newest batches, Spark plans these again from where the batch before
them ended.
"""

from __future__ import annotations

import os
import re

from d3gnn.store.store import STORE, Store, StoreError

#: The formats of Spark's sink for files.
FILE_FORMATS = ("parquet", "csv", "json", "orc", "text")
_OFFSETS, _COMMITS = "offsets", "commits"
#: Where Spark's sink for files keeps the batches that a table has.
_TABLE_LOG = "_spark_metadata"


class SparkCheckpoint:
    """A checkpoint folder, on any file system of pyarrow."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._files = Store(self.path)

    @staticmethod
    def around(store: Store) -> SparkCheckpoint | None:
        """The checkpoint that a store is in, if it is in one."""
        folder, _, name = store.uri.rstrip("/").rpartition("/")
        found = SparkCheckpoint(folder) if name == STORE and folder else None
        return found if found is not None and found.exists() else None

    def exists(self) -> bool:
        """Whether the folder is a checkpoint of a query that has started."""
        return self._files.exists("metadata") or self.planned() >= 0

    def planned(self) -> int:
        """The newest batch whose events are fixed; -1 if there is none."""
        return max(self._batches(_OFFSETS), default=-1)

    def committed(self) -> int:
        """The newest batch that the sink has; -1 if there is none."""
        return max(self._batches(_COMMITS), default=-1)

    def is_after(self, batch: int) -> bool:
        """Whether the query would go on behind the batch that follows this one."""
        return self.committed() > batch or self.planned() > batch + 1

    def check_set_back(self, batch: int) -> None:
        """Check that `set_back` to this batch is possible; raises `StoreError` if not."""
        offsets, commits = self._batches(_OFFSETS), self._batches(_COMMITS)
        needed = {batch, batch - 1} - {-1}
        if not needed <= set(offsets) or batch not in commits:
            raise StoreError(
                f"the checkpoint {self.path} cannot be set back to batch {batch}: Spark keeps the newest 100 "
                f"batches, and of {_OFFSETS}/{batch - 1}, {_OFFSETS}/{batch} and {_COMMITS}/{batch} not all "
                "are there. Restore checkpoint and store from a backup; or read the events from the start "
                "with a new store and a new checkpoint."
            )

    def set_back(self, batch: int) -> None:
        """Make this batch the last one that the query has committed."""
        self.check_set_back(batch)
        for folder in (_COMMITS, _OFFSETS):
            for later in sorted(self._batches(folder), reverse=True):
                if later > batch:
                    self._files.delete(f"{folder}/{later}")
                    self._files.delete(f"{folder}/.{later}.crc")  # Hadoop's, on a local file system

    def check_table(self, table: str | os.PathLike[str]) -> None:
        """Check that a table of files is not newer than the checkpoint; raises `StoreError` if it is.

        Spark skips the batches that a table has, so that their events would not reach the graph.
        """
        names = Store(f"{os.fspath(table).rstrip('/')}/{_TABLE_LOG}").list("")
        newest = max((int(name) for name in _numbers(names, r"([0-9]+)(\.compact)?")), default=-1)
        planned = self.planned()
        if newest > planned:
            raise StoreError(
                f"the table {os.fspath(table)} has the rows of batches up to {newest}, but the checkpoint "
                f"{self.path} "
                + (f"ends at batch {planned}, " if planned >= 0 else "is new, ")
                + "so that Spark would skip the batches that the table has, and their events would be lost. "
                "Name a new folder for the table, or restore the checkpoint that belongs to it. refresh() "
                "writes all embeddings into the new table."
            )

    def _batches(self, folder: str) -> list[int]:
        return [int(name) for name in _numbers(self._files.list(folder), "([0-9]+)")]


def _numbers(names: list[str], pattern: str) -> list[str]:
    return [match[1] for name in names if (match := re.fullmatch(pattern, name))]
