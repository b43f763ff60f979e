"""The board: a small file on the host that says how much is pending in each operator part, and until when.

Operators write to it at the end of every batch. The control source reads it between batches, so that
deadlines come about when no events do, and so that a run that must end ends only when nothing is pending
anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:  # the process of the control source has no need of compiled code
    from d3gnn.kernel.windows.pending import Pending

_NAME = "board"
_PENDING, _LOOK_AT = range(2)


class Waiting(NamedTuple):
    """How many vertices wait in all operators, and when to look at them, in microseconds."""

    pending: int
    look_at: int


class Board:
    """The board of a pipeline with these operators, in so many parts; `folder` is that of its arrays."""

    def __init__(self, folder: str | Path, operators: Sequence[str], parts: int) -> None:
        self._rows = {name: i * parts for i, name in enumerate(operators)}
        self._path = Path(folder) / _NAME

    def write(self, operator: str, part: int, waiting: Pending) -> None:
        """What waits in an operator part."""
        row = np.array([len(waiting), waiting.look_at()], np.int64).tobytes()
        # Opened each time: whoever has deleted the arrays has deleted the board.
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(file, row, (self._rows[operator] + part) * len(row))
        finally:
            os.close(file)

    def clear(self) -> None:
        """Nothing waits anywhere, not even in operators that are no more."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_bytes(b"")


def read_board(folder: str | Path) -> Waiting | None:
    """What the board says; None where there is none, or half of one."""
    try:
        cells = np.fromfile(Path(folder) / _NAME, np.int64)
    except FileNotFoundError:
        return None
    if len(cells) % 2:
        return None
    cells = cells.reshape(-1, 2)
    waits = cells[cells[:, _PENDING] > 0]
    return Waiting(int(waits[:, _PENDING].sum()), int(waits[:, _LOOK_AT].min(initial=np.iinfo(np.int64).max)))


def pending(folder: str | Path) -> int:
    """How many vertices wait, as far as the board says."""
    waiting = read_board(folder)
    return 0 if waiting is None else waiting.pending
