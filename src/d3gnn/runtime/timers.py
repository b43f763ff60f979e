"""Timers: a small file beside the arrays of a query, with the pending vertices of each operator part and
their next deadline.

Operators write it at the end of every batch. The control source reads it between batches: a deadline causes
a batch when no events arrive, and a run with the trigger availableNow ends only when nothing is pending.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from d3gnn.private import open_private, private_folder, read_private

if TYPE_CHECKING:  # the process of the control source must not load compiled code
    from d3gnn.kernel.operators import OperatorId
    from d3gnn.kernel.windows.pending import Pending

#: The names of the files.
TIMERS, _EXPIRY = "timers", "expiry"
_PENDING, _LOOK_AT = range(2)
_ROW_BYTES = 16


class PendingSummary(NamedTuple):
    """Pending vertices of all operators, and the earliest time at which one may be due, in microseconds."""

    pending: int
    look_at: int


#: Of a pipeline without windows.
NOTHING_PENDING = PendingSummary(0, np.iinfo(np.int64).max)


class Timers:
    """The timers of a pipeline with these operators and this number of parts.

    folder:
        The folder of the query's arrays.
    """

    def __init__(self, folder: str | Path, operators: Sequence[OperatorId], parts: int) -> None:
        self._rows = {name: i * parts for i, name in enumerate(operators)}
        self._path = Path(folder) / TIMERS

    def write(self, operator: OperatorId, part: int, pending: Pending) -> None:
        """Record what is pending in an operator part."""
        row = np.array([len(pending), pending.look_at()], np.int64).tobytes()
        # Opened each time, since the file is deleted together with the arrays.
        file = open_private(self._path, os.O_WRONLY | os.O_CREAT)
        try:
            os.pwrite(file, row, (self._rows[operator] + part) * len(row))
        finally:
            os.close(file)

    def clear(self) -> None:
        """Record that nothing is pending, also in operators of an earlier plan."""
        private_folder(self._path.parent)
        os.close(open_private(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))


def read_timers(folder: str | Path) -> PendingSummary | None:
    """The timers in the folder of a query's arrays; None if there are none, or a row is incomplete."""
    try:
        content = read_private(Path(folder) / TIMERS)
    except FileNotFoundError:
        return None
    if len(content) % _ROW_BYTES:
        return None
    cells = np.array(memoryview(content).cast("q") if content else [], np.int64).reshape(-1, 2)
    rows = cells[cells[:, _PENDING] > 0]
    return PendingSummary(
        int(rows[:, _PENDING].sum()), int(rows[:, _LOOK_AT].min(initial=np.iinfo(np.int64).max))
    )


def pending(folder: str | Path) -> int:
    """The number of pending vertices, by the timers in the folder of a query's arrays."""
    summary = read_timers(folder)
    return 0 if summary is None else summary.pending


def write_next_expiry(folder: str | Path, time: int) -> None:
    """Record a time, in microseconds, before which no edge expires by the clock."""
    # In one write: a reader sees the old time or the new one.
    file = os.open(Path(folder) / _EXPIRY, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.write(file, np.int64(time).tobytes())
    finally:
        os.close(file)


def read_next_expiry(folder: str | Path) -> int | None:
    """The time that `write_next_expiry` recorded; None if there is none."""
    try:
        found = np.fromfile(Path(folder) / _EXPIRY, np.int64)
    except FileNotFoundError:
        return None
    return int(found[0]) if len(found) else None
