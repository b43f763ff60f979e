"""Timers of a pipeline on a cluster: as `timers`, in files of the store instead of one of the host.

Operators of many machines write them, and the control source, beside the driver, reads them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from d3gnn.runtime.timers import PendingSummary
from d3gnn.store.store import Store

if TYPE_CHECKING:  # the process of the control source must not load compiled code
    from d3gnn.kernel.operators import OperatorId
    from d3gnn.kernel.windows.pending import Pending

_FOLDER, _EXPIRY = "timers", "next_expiry"
_ROW, _TIME = struct.Struct("<qq"), struct.Struct("<q")
_NEVER = 2**63 - 1


class StoreTimers:
    """The timers of a pipeline, one file for each part of an operator with a window."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def write(self, operator: OperatorId, part: int, pending: Pending) -> None:
        """Record what is pending in an operator part."""
        row = _ROW.pack(len(pending), pending.look_at())
        self._store.replace(f"{_FOLDER}/{operator}.{part}", row)

    def clear(self) -> None:
        """Record that nothing is pending, also in operators of an earlier plan."""
        for name in self._store.list(_FOLDER):
            self._store.delete(f"{_FOLDER}/{name}")

    def write_next_expiry(self, time: int) -> None:
        """Record a time, in microseconds, before which no edge expires by the clock."""
        self._store.replace(_EXPIRY, _TIME.pack(time))

    def read(self) -> PendingSummary:
        """What is pending in all operators."""
        pending, look_at = 0, _NEVER
        for name in self._store.list(_FOLDER):
            content = self._store.read(f"{_FOLDER}/{name}")
            if content is not None and len(content) == _ROW.size:
                count, at = _ROW.unpack(content)
                if count:
                    pending, look_at = pending + count, min(look_at, at)
        return PendingSummary(pending, look_at)

    def read_next_expiry(self) -> int | None:
        """The time that `write_next_expiry` recorded; None if there is none."""
        content = self._store.read(_EXPIRY)
        return None if content is None or len(content) != _TIME.size else int(_TIME.unpack(content)[0])
