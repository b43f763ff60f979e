"""What the arrays of a pipeline were made with, so that a start with something else makes them anew."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import NamedTuple

from d3gnn.kernel.arrays import peek_counters
from d3gnn.types import Ints

#: Places in the counters of Partition's space.
_MODEL, _SENDING = 100, 102


class MadeWith(NamedTuple):
    """The version of the model, and a hash of what decides on when something is sent and whether at all."""

    model: int
    sending: int

    @staticmethod
    def of(model: int, sending: str) -> MadeWith:
        return MadeWith(model, zlib.crc32(sending.encode()))

    @staticmethod
    def read(counters: Ints) -> MadeWith:
        return MadeWith(int(counters[_MODEL]), int(counters[_SENDING]))

    @staticmethod
    def peek(folder: str | Path) -> MadeWith | None:
        """From the folder of Partition's arrays, whoever has them open; None where there are none."""
        counters = peek_counters(folder)
        return None if counters is None else MadeWith.read(counters)

    def write(self, counters: Ints) -> None:
        counters[_MODEL], counters[_SENDING] = self
