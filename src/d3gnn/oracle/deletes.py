"""When vertices were deleted: older events of them are late."""

from __future__ import annotations

from d3gnn.events import Key


class Deletes:
    """The newest time at which each vertex was deleted.

    A delete is forgotten once another vertex is deleted so much later as `bound` says; -1: never. With
    `frozen`, no event is late: it comes from a log.
    """

    def __init__(self, bound: int, frozen: bool = False) -> None:
        self._bound, self._frozen = bound, frozen
        self._times: dict[Key, int] = {}

    def add(self, id: Key, time: int) -> None:
        """A vertex is deleted."""
        self._times[id] = max(time, self._times.get(id, time))

    def are_newer(self, time: int, *ids: Key) -> bool:
        """Whether one of these vertices was deleted later than this, which is not forgotten."""
        if self._frozen:
            return False
        return any(id in self._times and time < self._times[id] and self._is_kept(id) for id in ids)

    def _is_kept(self, id: Key) -> bool:
        return self._bound < 0 or max(self._times.values()) - self._times[id] <= self._bound
