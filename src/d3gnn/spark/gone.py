"""What a batch has taken away: a rebuilt graph knows nothing of it, but readers of the output must."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from d3gnn.events import NO_TIME, Element, EventBatch, Key, Keys, Op, keys_of
from d3gnn.kernel.blocks import GONE, GONE_EDGES, Block, key_columns, pair_columns
from d3gnn.kernel.operators.partition import LogEntry, Partition
from d3gnn.types import Bools, Ints


class Gone:
    """Compares the graph before a batch with that after it, as far as the batch deletes anything.

    Of vertices, and with `edges` of edges as well.
    """

    def __init__(self, events: EventBatch, directed: bool, edges: bool) -> None:
        self._events, self._directed = events, directed
        self._vertices = _vertex_deletes(events)
        self._were_there = np.zeros(len(self._vertices), np.bool_)
        deletes = events.op == Op.DELETE
        if edges:
            deletes &= (events.element == Element.VERTEX) | (events.element == Element.EDGE)
        self._deletes = np.flatnonzero(deletes) if edges else np.zeros(0, np.int64)
        self._edges: set[tuple[Key, Key]] = set()

    def __bool__(self) -> bool:
        """Whether there is anything to look at."""
        return bool(len(self._vertices) or len(self._deletes))

    def see(self, partition: Partition, whole: LogEntry | None) -> None:
        """The graph before the batch: in the partition, and as events."""
        self._were_there = _exist(partition, self._vertices.src)
        self._edges = self._edges_of(whole)

    def blocks(self, partition: Partition, whole: LogEntry | None, clock: int) -> list[Block]:
        """Tombstones, now that the graph is that after the batch."""
        blocks = []
        gone = self._were_there & ~_exist(partition, self._vertices.src)
        if gone.any():
            deletes = self._vertices.take(gone)
            keys, blob = key_columns(deletes.src)
            blocks.append(Block(GONE, 0, 0, (deletes.time, _arrival(deletes, clock), keys), blob=blob))
        edges = sorted(self._edges - self._edges_of(whole), key=str)
        if edges:
            src, dst = (keys_of(ends) for ends in zip(*edges, strict=True))
            both, blob = pair_columns(src, dst)
            causes = self._events.take(self._deletes)
            time = np.full(len(edges), causes.time.max())
            arrival = np.full(len(edges), _arrival(causes, clock).min())
            blocks.append(Block(GONE_EDGES, 0, 0, (time, arrival, *both), blob=blob))
        return blocks

    def _edges_of(self, whole: LogEntry | None) -> set[tuple[Key, Key]]:
        """The edges at vertices that the deletes name, as they carry messages."""
        if whole is None or not len(self._deletes) or whole.events.dst is None:
            return set()
        named = [self._events.src.take(self._deletes).to_arrow()]
        if self._events.dst is not None:
            named.append(self._events.dst.take(self._deletes).to_arrow())
        events = whole.events.take(whole.events.element == Element.EDGE)
        assert events.dst is not None
        src, dst = events.src.to_arrow(), events.dst.to_arrow()
        # Ids of the other type name nothing.
        ids = pa.concat_arrays([src[:0], *(keys for keys in named if keys.type == src.type)])
        some = pc.or_(pc.is_in(src, value_set=ids), pc.is_in(dst, value_set=ids))
        found = set(zip(src.filter(some).to_pylist(), dst.filter(some).to_pylist(), strict=True))
        return found if self._directed else found | {(v, u) for u, v in found}


def _vertex_deletes(events: EventBatch) -> EventBatch:
    """The last event that deletes each vertex that any of them deletes."""
    deletes = (events.op == Op.DELETE) & (events.element == Element.VERTEX)
    if events.src.valid is not None:
        deletes &= events.src.valid
    at = np.flatnonzero(deletes)
    last = dict(zip(events.src.take(at).to_list(), at.tolist(), strict=True))
    return events.take(np.array(list(last.values()), np.int64))


def _exist(partition: Partition, ids: Keys) -> Bools:
    if not len(partition.live_ids()):  # then there is nothing to look into
        return np.zeros(len(ids), np.bool_)
    return partition.locate(ids)[0] >= 0


def _arrival(events: EventBatch, clock: int) -> Ints:
    if events.arrival is None:
        return np.full(len(events), clock)
    return np.where(events.arrival == NO_TIME, clock, events.arrival)
