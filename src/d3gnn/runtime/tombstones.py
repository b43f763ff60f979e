"""The tombstones of a rebuild: the rebuilt graph has no trace of what its batch deleted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from d3gnn.events import Element, EventBatch, Key, Op
from d3gnn.events.event import NO_TIME
from d3gnn.events.keys import Keys, keys_of
from d3gnn.kernel.blocks import EDGE_TOMBSTONES, VERTEX_TOMBSTONES, Block, key_columns, pair_columns
from d3gnn.kernel.log import LogEntry
from d3gnn.kernel.operators import Partition
from d3gnn.types import Bools, Ints


class TombstoneFinder:
    """Compares the graph before a batch with the graph after it, where the batch deletes vertices.

    edges:
        Find deleted edges as well.
    """

    def __init__(self, events: EventBatch, directed: bool, edges: bool) -> None:
        self._events, self._directed, self._with_edges = events, directed, edges
        self._vertices = _vertex_deletes(events)
        self._existed = np.zeros(len(self._vertices), np.bool_)
        deletes = events.op == Op.DELETE
        if edges:
            deletes &= (events.element == Element.VERTEX) | (events.element == Element.EDGE)
        self._deletes = np.flatnonzero(deletes) if edges else np.zeros(0, np.int64)
        self._edges: set[tuple[Key, Key]] = set()

    def __bool__(self) -> bool:
        """Whether the batch deletes anything."""
        return bool(len(self._vertices) or len(self._deletes))

    def with_expired(self, logged: EventBatch) -> TombstoneFinder:
        """A finder for what expired in the batch as well, given the events of its log entry."""
        expired = logged.take(np.zeros(0, np.int64) if logged.ttl is None else logged.ttl == 0)
        if not len(expired):
            return self
        deletes = self._events.take(self._events.op == Op.DELETE)
        if type(deletes.src) is not type(expired.src):  # dead letters
            deletes = deletes.take(slice(0))
        elif type(deletes.dst) is not type(deletes.src):
            deletes = replace(deletes, dst=None)
        both = [replace(each, key=None) for each in (deletes, expired)]
        return TombstoneFinder(EventBatch.concat(both), self._directed, self._with_edges)

    def record_before(self, snapshot: LogEntry | None) -> None:
        """Take the graph before the batch."""
        self._existed = _created(snapshot, self._vertices.src)
        self._edges = self._edges_of(snapshot)

    def tombstones(self, partition: Partition, snapshot: LogEntry | None, clock: int) -> list[Block]:
        """Tombstones of what is not in the graph after the batch."""
        blocks = []
        deleted = self._existed & ~_exist(partition, self._vertices.src)
        if deleted.any():
            deletes = self._vertices.take(deleted)
            keys, blob = key_columns(deletes.src)
            blocks.append(
                Block(VERTEX_TOMBSTONES, 0, 0, (deletes.time, _arrival(deletes, clock), keys), blob=blob)
            )
        edges = sorted(self._edges - self._edges_of(snapshot), key=str)
        if edges:
            src, dst = (keys_of(ends) for ends in zip(*edges, strict=True))
            both, blob = pair_columns(src, dst)
            causes = self._events.take(self._deletes)
            time = np.full(len(edges), causes.time.max())
            arrival = np.full(len(edges), _arrival(causes, clock).min())
            blocks.append(Block(EDGE_TOMBSTONES, 0, 0, (time, arrival, *both), blob=blob))
        return blocks

    def _edges_of(self, snapshot: LogEntry | None) -> set[tuple[Key, Key]]:
        """The edges at vertices that the deletes name, in the directions in which they carry messages."""
        if snapshot is None or not len(self._deletes) or snapshot.events.dst is None:
            return set()
        named = [self._events.src.take(self._deletes).to_arrow()]
        if self._events.dst is not None:
            named.append(self._events.dst.take(self._deletes).to_arrow())
        events = snapshot.events.take(snapshot.events.element == Element.EDGE)
        assert events.dst is not None
        src, dst = events.src.to_arrow(), events.dst.to_arrow()
        # Ids of the other type name no vertex.
        ids = pa.concat_arrays([src[:0], *(keys for keys in named if keys.type == src.type)])
        near = pc.or_(pc.is_in(src, value_set=ids), pc.is_in(dst, value_set=ids))
        edges = set(zip(src.filter(near).to_pylist(), dst.filter(near).to_pylist(), strict=True))
        return edges if self._directed else edges | {(v, u) for u, v in edges}


def _vertex_deletes(events: EventBatch) -> EventBatch:
    """The last delete of each deleted vertex."""
    deletes = (events.op == Op.DELETE) & (events.element == Element.VERTEX)
    if events.src.valid is not None:
        deletes &= events.src.valid
    at = np.flatnonzero(deletes)
    last = dict(zip(events.src.take(at).to_list(), at.tolist(), strict=True))
    return events.take(np.array(list(last.values()), np.int64))


def _created(snapshot: LogEntry | None, ids: Keys) -> Bools:
    """Whether a snapshot has these vertices."""
    if snapshot is None or type(snapshot.events.src) is not type(ids):
        return np.zeros(len(ids), np.bool_)
    vertices = snapshot.events.src.take(snapshot.events.element == Element.VERTEX)
    return np.asarray(pc.is_in(ids.to_arrow(), value_set=vertices.to_arrow()))


def _exist(partition: Partition, ids: Keys) -> Bools:
    if not len(partition.live_ids()):  # an empty partition has no id table to look into
        return np.zeros(len(ids), np.bool_)
    return partition.locate(ids)[0] >= 0


def _arrival(events: EventBatch, clock: int) -> Ints:
    if events.arrival is None:
        return np.full(len(events), clock)
    return np.where(events.arrival == NO_TIME, clock, events.arrival)
