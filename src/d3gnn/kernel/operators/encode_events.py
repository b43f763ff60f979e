"""From events to arrays for compiled code: ids and edge keys become integers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from d3gnn.events import Element, EventBatch, GraphSchema, Op, Reason
from d3gnn.events.event import NO_TIME
from d3gnn.events.keys import IntKeys, Keys
from d3gnn.events.limits import FIRST_REAL_CLOCK, are_too_long
from d3gnn.kernel.compiled import inlined, lean
from d3gnn.kernel.ids import IdTable
from d3gnn.kernel.part_state import PartState
from d3gnn.types import Array, Floats, Ints, Ints32, Small

_NO_PARTS = np.zeros(0, np.int32)
_NO_OFFSETS = np.zeros(0, np.int64)
_NO_TTL = np.zeros(0, np.int64)
_NO_VALUES = np.zeros(0, np.float32)
_INT_KEYS, _STRING_KEYS = 1, 2
# Compiled code reads plain integers.
_EDGE, _CREATE = int(Element.EDGE), int(Op.CREATE)


class Events(NamedTuple):
    """A batch with ids as codes (-1: an id that was never seen)."""

    op: Small
    element: Small
    src: Ints32
    dst: Ints32
    key: Ints
    feature: Small
    time: Ints
    values: Floats
    value_offsets: Ints  # empty if no event has a value
    part: Ints32  # in a replay, the part that was chosen for each event; else empty
    logged: bool  # from a log, which accepted all of them, and begins with the deletes of absent vertices
    ttl: Ints  # empty if no event has one


class EventEncoder:
    """Encodes batches. Ids and edge keys keep their codes and their type as long as the state."""

    def __init__(self, part_state: PartState, schema: GraphSchema, ids: IdTable) -> None:
        self._has_keys, self._ids = schema.edges == "keyed", ids
        self._key_type = part_state.counter("edge_key_type")
        self._edge_keys = IdTable(part_state, "edge_key")

    @property
    def types(self) -> tuple[int, int]:
        """Types of ids and of edge keys as numbers; 0 before the first one."""
        return self._ids.keys.type_code, int(self._key_type[0])

    @types.setter
    def types(self, types: tuple[int, int]) -> None:
        self._ids.keys.type_code, self._key_type[0] = types

    def encode(
        self,
        batch: EventBatch,
        status: Small,
        feature: Small,
        replay: Ints32 | None,
        plain: bool,
        logged: bool,
    ) -> Events:
        """Encode a batch. Sets `status` of events whose id or key has the wrong type.

        `feature` is the number of each event's feature. `plain` is the first result of `is_plain`.
        """
        codes = self._intern_plain(batch.src, batch.dst) if plain else None
        if codes is None:
            codes = self._intern_both(batch, status, logged)
        key = np.zeros(len(batch), np.int64)
        if batch.key is not None and self._has_keys:
            key = self._key_numbers(batch.key, batch, status)
        values, offsets = batch.values, batch.value_offsets
        return Events(
            batch.op, batch.element, *codes, key, feature, batch.time,
            _NO_VALUES if values is None else values, _NO_OFFSETS if offsets is None else offsets,
            _NO_PARTS if replay is None else replay, logged,
            _NO_TTL if batch.ttl is None else batch.ttl,
        )  # fmt: skip

    def edge_keys(self, numbers: Ints) -> Keys | None:
        """Edge keys by their numbers in `Events`; None if edges have no keys."""
        if not self._has_keys:
            return None
        return IntKeys(numbers) if self._key_type[0] == _INT_KEYS else self._edge_keys.keys.take(numbers)

    def _intern_plain(self, src: Keys, dst: Keys | None) -> tuple[Ints32, Ints32] | None:
        """Codes of ids of plain events; None if their type is wrong."""
        if dst is None or not self._ids.keys.accepts(src) or type(src) is not type(dst):
            return None
        if not isinstance(src, IntKeys) or not isinstance(dst, IntKeys):
            return self._ids.intern(src), self._ids.intern(dst)
        both = self._ids.intern_ints(np.concatenate((src.values, dst.values)))
        return both[: len(src)], both[len(src) :]

    def _intern_both(self, batch: EventBatch, status: Small, logged: bool) -> tuple[Ints32, Ints32]:
        good = status == 0
        src = self._intern(batch.src, batch, status, good, logged)
        dst = src if batch.dst is None else self._intern(batch.dst, batch, status, good, logged)
        if (src < 0).any() or (dst < 0).any():  # a later row, or the other column, may have created the code
            src = self._ids.find(batch.src)
            dst = src if batch.dst is None else self._ids.find(batch.dst)
        return src, dst

    def _intern(self, keys: Keys, batch: EventBatch, status: Small, good: Array, logged: bool) -> Ints32:
        if not self._ids.keys.accepts(keys):
            mistyped = good & (status == 0)
            if keys is batch.dst:
                mistyped &= (batch.element == Element.EDGE) | (batch.element == Element.EDGE_FEATURE)
            status[mistyped] = Reason.WRONG_ID_TYPE
            return np.full(len(keys), -1, np.int32)
        good = good & (status == 0)
        self._ids.keys.fix_type(keys, good)
        # Deletes create neither vertices nor parked labels, so their ids need no code; but a snapshot has
        # deletes of vertices that are not in it, whose times count.
        return self._ids.intern(keys, good if logged else good & (batch.op != Op.DELETE))

    def _key_numbers(self, keys: Keys, batch: EventBatch, status: Small) -> Ints:
        key_type = _INT_KEYS if isinstance(keys, IntKeys) else _STRING_KEYS
        is_edge = (batch.element == Element.EDGE) | (batch.element == Element.EDGE_FEATURE)
        used = (status == 0) & is_edge
        if self._key_type[0] not in (0, key_type):
            status[used] = Reason.WRONG_ID_TYPE
            return np.zeros(len(keys), np.int64)
        if used.any():
            self._key_type[0] = key_type
        if isinstance(keys, IntKeys):
            return keys.values
        return self._edge_keys.intern(keys, used).astype(np.int64)


@inlined
def has_value(i: int, events: Events) -> bool:
    """Whether an event has a value."""
    return len(events.value_offsets) > 0 and events.value_offsets[i + 1] > events.value_offsets[i]


def is_plain(batch: EventBatch, arrival: Ints, max_ahead: int) -> tuple[bool, bool]:
    """Whether every event creates an edge, without values, and is valid; and whether they are in order too.

    Most streams consist of such batches, which need neither checks nor sorting.
    """
    if batch.values is not None or batch.feature is not None:
        return False, False
    if batch.key is not None or batch.ttl is not None:
        return False, False
    if batch.src.valid is not None or batch.dst is None or batch.dst.valid is not None:
        return False, False
    if are_too_long(batch.src) is not None or are_too_long(batch.dst) is not None:
        return False, False
    plain, sorted_by_time = _all_edge_creates(batch.op, batch.element, batch.time, arrival, max_ahead)
    return plain, sorted_by_time and batch.arrival is batch.partition is batch.offset is None


@lean
def _all_edge_creates(
    op: Small, element: Small, time: Ints, arrival: Ints, max_ahead: int
) -> tuple[bool, bool]:
    """Whether all events create edges, at known times, none ahead; and whether times never decrease."""
    is_sorted = True
    for i in range(len(op)):
        if element[i] != _EDGE or op[i] != _CREATE or time[i] == NO_TIME:
            return False, False
        if time[i] > arrival[i] and arrival[i] >= FIRST_REAL_CLOCK and time[i] - arrival[i] > max_ahead:
            return False, False
        is_sorted &= i == 0 or time[i] >= time[i - 1]
    return True, is_sorted
