"""The progress of a rebuild: a small file beside the arrays of a query, for those who wait for it.

A rebuild is one batch, and Spark reports nothing of a batch before its end.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from d3gnn.private import open_private, private_folder, read_private

_NAME = "rebuilding"
#: The steps before the operators.
LOG, PARTITION = "reading the log", "partition"
#: Where all operators run in one task.
OPERATORS = "operators"


class RebuildProgress:
    """Records the steps of a rebuild: the log, Partition, and what comes behind it.

    folder:
        The folder of the query's arrays.

    >>> import tempfile
    >>> progress = RebuildProgress(folder := Path(tempfile.mkdtemp()) / "query", ["vertex-0", "edge-1"])
    >>> progress.step("vertex-0")
    >>> read_rebuild(folder)
    'rebuilding all state from the graph log: vertex-0 (step 3 of 4)'
    >>> progress.end()
    >>> read_rebuild(folder)
    ''
    """

    def __init__(self, folder: Path, behind: Sequence[str]) -> None:
        self._folder, self._steps = folder, [LOG, PARTITION, *behind]

    def step(self, name: str) -> None:
        """A step begins."""
        private_folder(self._folder)
        at = f"{name} (step {self._steps.index(name) + 1} of {len(self._steps)})"
        with os.fdopen(
            open_private(self._folder / _NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb"
        ) as file:
            file.write(at.encode())

    def end(self) -> None:
        """The rebuild is done."""
        with suppress(FileNotFoundError):
            (self._folder / _NAME).unlink()


def read_rebuild(folder: str | Path) -> str:
    """What the rebuild in the folder of a query's arrays does now; empty if none is under way."""
    try:
        at = read_private(Path(folder) / _NAME).decode(errors="replace")
    except FileNotFoundError:
        return ""
    return f"rebuilding all state from the graph log: {at}" if at else ""
