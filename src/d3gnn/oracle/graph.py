"""The graph that a stream of events results in, kept in plain dictionaries, one event at a time.

It is written to be read, and shares no code with the operators that are tested against it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from d3gnn.events import Element, Event, EventBatch, GraphSchema, Key, Op, Reason
from d3gnn.events.check import check, order
from d3gnn.events.keys import Keys, keys_of
from d3gnn.kernel.hashing import initial_values
from d3gnn.oracle.changes import LABEL, Change, Value, columns_of
from d3gnn.oracle.deletes import Deletes
from d3gnn.oracle.lifetimes import Lifetimes
from d3gnn.types import Floats, Ints

#: Values by name, each with the time of its newest event; None if that event deleted it.
Timed: TypeAlias = dict[str, tuple[int, Value | None]]
#: What identifies an edge: its ends and its key.
EdgeName: TypeAlias = tuple[Key, Key, Key | None]


class Oracle:
    """The graph after all events so far, recomputed in the simplest way: for tests.

    schema:
        What edges, features and labels the graph has.
    answers:
        Whether a model answers queries (`PairHead`); without one, every query is a dead letter.
    replays:
        Whether the events come from a graph log: they are in order, none is late, and what expired is among
        the deletes. A snapshot begins with deletes of vertices that do not exist.

    >>> from d3gnn.events import delete_vertex, edge
    >>> oracle = Oracle(GraphSchema(features={"x": 2}))
    >>> oracle.apply([edge("ann", "bob"), edge("ann", "bob"), edge("bob", "eve"), delete_vertex("eve")])
    [<Reason.APPLIED: 0>, <Reason.REPEATED: 1>, <Reason.APPLIED: 0>, <Reason.APPLIED: 0>]
    >>> oracle.vertices, oracle.edges()
    (['ann', 'bob'], [('ann', 'bob')])
    """

    def __init__(self, schema: GraphSchema, answers: bool = False, replays: bool = False) -> None:
        self.schema, self._answers, self._replays = schema, answers, replays
        self._id_type: type[Keys] | None = None
        self._key_type: type[Keys] | None = None
        #: Vertices in the order of their creation, with their features.
        self._features: dict[Key, Timed] = {}
        #: Number of copies of each edge.
        self._copies: dict[EdgeName, int] = {}
        #: Features of each copy; copies are numbered from the oldest.
        self._edge_features: dict[tuple[EdgeName, int], Timed] = {}
        #: Edges at each vertex; a dictionary keeps their order.
        self._incident: dict[Key, dict[EdgeName, None]] = {}
        self._deletes = Deletes(schema.keep_deletes, frozen=replays)
        #: Labels by id; a label may arrive before its vertex.
        self._labels: dict[Key, Timed] = {}
        self._lifetimes: Lifetimes[EdgeName, Key] = Lifetimes(schema.expiry, frozen=replays)
        self._handlers: dict[tuple[int, int], Callable[[Change], Reason]] = {
            (Element.VERTEX, Op.CREATE): self._create_vertex,
            (Element.VERTEX, Op.UPDATE): self._set_existing_vertex,
            (Element.VERTEX, Op.DELETE): self._delete_vertex,
            (Element.FEATURE, Op.CREATE): self._set_feature,
            (Element.FEATURE, Op.UPDATE): self._set_existing_vertex,
            (Element.FEATURE, Op.DELETE): self._set_existing_vertex,
            (Element.EDGE, Op.CREATE): self._create_edge,
            (Element.EDGE, Op.UPDATE): self._set_existing_edge,
            (Element.EDGE, Op.DELETE): self._delete_edge,
            (Element.EDGE_FEATURE, Op.CREATE): self._set_existing_edge,
            (Element.EDGE_FEATURE, Op.UPDATE): self._set_existing_edge,
            (Element.EDGE_FEATURE, Op.DELETE): self._set_existing_edge,
            (Element.LABEL, Op.CREATE): self._set_label,
            (Element.LABEL, Op.UPDATE): self._set_label,
            (Element.LABEL, Op.DELETE): self._delete_label,
        }

    def apply(
        self, events: EventBatch | pa.Table | Iterable[Event], clock: int | None = None
    ) -> list[Reason]:
        """Apply one batch. Returns the outcome of each event, in the order of the rows.

        `clock` is the time at which the batch is processed, for schemas with `idle`.
        """
        batch = EventBatch.of(events)
        reasons = self._screen(batch)
        elements, ops, columns = batch.element.tolist(), batch.op.tolist(), columns_of(batch, self.schema)
        positions = None if self._replays else order(batch)
        with _no_collection():
            for i in range(len(batch)) if positions is None else positions.tolist():
                if reasons[i] is Reason.APPLIED and elements[i] != Element.QUERY:
                    change = Change._make([column[i] for column in columns])
                    reasons[i] = self._handlers[elements[i], ops[i]](change)
        if self.schema.ttl is not None:
            times = columns[5]
            for i, reason in enumerate(reasons):
                if reason is Reason.APPLIED and elements[i] != Element.QUERY:
                    self._lifetimes.advance(times[i])
            self._lifetimes.tick(clock)
            self._expire()
        for i in np.flatnonzero(batch.element == Element.QUERY).tolist():
            if reasons[i] is Reason.APPLIED:
                reasons[i] = self._ask(batch, columns[0][i], columns[1][i])
        return reasons

    def _ask(self, batch: EventBatch, src: Key, dst: Key) -> Reason:
        """The outcome of a query, after its batch."""
        if not self._answers:
            return Reason.NO_ANSWER
        if self._id_type and not (type(batch.src) is type(batch.dst) is self._id_type):
            return Reason.WRONG_ID_TYPE
        both = src in self._features and dst in self._features
        return Reason.APPLIED if both else Reason.NO_SUCH_VERTEX

    @property
    def vertices(self) -> list[Key]:
        """The ids of all vertices, in the order of their creation."""
        return list(self._features)

    def edges(self) -> list[tuple[Key, Key]]:
        """Source and destination of every edge that carries messages: each copy, both ways if undirected."""
        pairs: list[tuple[Key, Key]] = []
        for (u, v, _), copies in self._copies.items():
            pairs.extend([(u, v)] * copies)
            if not self.schema.directed and u != v:
                pairs.extend([(v, u)] * copies)
        return pairs

    def edge_index(self) -> tuple[Ints, Ints]:
        """Sources and destinations of `edges()`, as positions in `vertices`."""
        position = {id: i for i, id in enumerate(self._features)}
        pairs = self.edges()
        return (
            np.array([position[u] for u, _ in pairs], np.int64),
            np.array([position[v] for _, v in pairs], np.int64),
        )

    def edge_values(self) -> Floats:
        """The features of each of `edges()` [edges, edge_dim], concatenated; NaN for those that it lacks."""
        names, width = self.schema.edge_features, sum(self.schema.edge_features.values())
        rows: list[list[float]] = []
        for edge, copies in self._copies.items():
            both_ways = not self.schema.directed and edge[0] != edge[1]
            for _ in range(1 + both_ways):
                for copy in range(copies):
                    stored = self._edge_features.get((edge, copy), {})
                    values = ((_get(stored, name), size) for name, size in names.items())
                    rows.append([x for value, size in values for x in value or (np.nan,) * size])
        return np.array(rows, np.float32).reshape(len(rows), width)

    def inputs(self) -> Floats:
        """The model's input [n, in_channels]: features of each vertex, concatenated; where a vertex lacks
        one, what the schema says.
        """
        x = initial_values(keys_of(self.vertices), self.schema.width)
        if (missing := self.schema.missing_values()) is not None:
            x[:] = missing
        begin = 0
        for name, width in self.schema.features.items():
            for row, features in zip(x, self._features.values(), strict=True):
                value = _get(features, name)
                if value is not None:
                    row[begin : begin + width] = value
            begin += width
        return x

    @property
    def lacking(self) -> int:
        """The number of vertices that lack a feature of the schema."""
        return sum(
            any(_get(features, name) is None for name in self.schema.features)
            for features in self._features.values()
        )

    @property
    def labels(self) -> dict[Key, Value]:
        """Labels of the vertices that exist."""
        return {id: value for id, value in self._known_labels() if id in self._features}

    @property
    def parked_labels(self) -> dict[Key, Value]:
        """Labels of vertices that do not exist yet."""
        return {id: value for id, value in self._known_labels() if id not in self._features}

    def edge_features(self, src: Key, dst: Key, key: Key | None = None) -> list[dict[str, Value]]:
        """The features of an edge, one dictionary per copy, oldest first; empty if there is no such edge."""
        edge = self._edge_name(src, dst, key)
        stored = (self._edge_features.get((edge, copy), {}) for copy in range(self._copies.get(edge, 0)))
        return [{name: value for name, (_, value) in s.items() if value is not None} for s in stored]

    def _screen(self, batch: EventBatch) -> list[Reason]:
        """The outcome of invalid events, and of ids of the wrong type; APPLIED for all others."""
        reasons = [Reason(r) for r in check(batch, self.schema).tolist()]
        asks = (batch.element == Element.QUERY).tolist()
        good = [i for i, reason in enumerate(reasons) if reason is Reason.APPLIED and not asks[i]]
        if not good:
            return reasons
        # A dead letter has no effect: only a valid event may determine the type.
        self._id_type = self._id_type or type(batch.src)
        is_edge = np.isin(batch.element, (Element.EDGE, Element.EDGE_FEATURE)).tolist()
        for i in good:
            if type(batch.src) is not self._id_type or (is_edge[i] and type(batch.dst) is not self._id_type):
                reasons[i] = Reason.WRONG_ID_TYPE
        if self.schema.edges == "keyed" and batch.key is not None:
            keyed = [i for i in good if is_edge[i] and reasons[i] is Reason.APPLIED]
            if keyed:
                self._key_type = self._key_type or type(batch.key)
            if type(batch.key) is not self._key_type:
                for i in keyed:
                    reasons[i] = Reason.WRONG_ID_TYPE
        return reasons

    def _expire(self) -> None:
        """Delete what has expired after a batch."""
        for edge, copy in self._lifetimes.expired_edges():
            self._remove_copy(edge, copy)
        for id in self._lifetimes.expired_vertices():
            self._remove_vertex(id)

    def _create_vertex(self, change: Change) -> Reason:
        if change.value is not None:
            return self._set_feature(change)
        if self._deletes.are_newer(change.time, change.src):
            return Reason.LATE
        end = self._lifetimes.vertex_end(change.time, change.ttl)
        if change.src in self._features:
            prolonged = self._lifetimes.prolong_vertex(change.src, end)
            return Reason.APPLIED if prolonged else Reason.REPEATED
        if self._lifetimes.has_passed(end):
            return Reason.LATE
        self._ensure_vertex(change.src, end)
        return Reason.APPLIED

    def _set_feature(self, change: Change) -> Reason:
        if self._deletes.are_newer(change.time, change.src):
            return Reason.LATE
        end = self._lifetimes.vertex_end(change.time, change.ttl)
        if change.src not in self._features:
            if self._lifetimes.has_passed(end):
                return Reason.LATE
            self._ensure_vertex(change.src, end)
        return self._set_existing_vertex(change)

    def _set_existing_vertex(self, change: Change) -> Reason:
        if change.src not in self._features:
            return Reason.NO_SUCH_VERTEX
        if self._deletes.are_newer(change.time, change.src):
            return Reason.LATE
        reason = _set(self._features[change.src], change)
        if reason is Reason.APPLIED:
            end = self._lifetimes.vertex_end(change.time, change.ttl)
            self._lifetimes.prolong_vertex(change.src, end)
        return reason

    def _delete_vertex(self, change: Change) -> Reason:
        if change.src in self._features:
            self._remove_vertex(change.src)
        elif not self._replays:
            return Reason.NO_SUCH_VERTEX
        self._deletes.add(change.src, change.time)
        return Reason.APPLIED

    def _remove_vertex(self, id: Key) -> None:
        for edge in list(self._incident[id]):
            while edge in self._copies:
                self._remove_copy(edge, self._copies[edge] - 1)
        del self._incident[id]
        del self._features[id]
        self._labels.pop(id, None)
        self._lifetimes.remove_vertex(id)

    def _create_edge(self, change: Change) -> Reason:
        if self._deletes.are_newer(change.time, change.src, change.dst):
            return Reason.LATE
        edge = self._edge_name(change.src, change.dst, change.key)
        copies = self._copies.get(edge, 0)
        if copies == 0 or self.schema.edges in ("multi", "append"):
            end = self._lifetimes.edge_end(change.time, change.ttl)
            if self._lifetimes.has_passed(end):
                return Reason.LATE
            for id in (change.src, change.dst):
                lives = max(end, self._lifetimes.vertex_end(change.time))
                self._ensure_vertex(id, lives)
                self._lifetimes.prolong_vertex(id, lives)
            self._copies[edge] = copies + 1
            self._incident[change.src][edge] = None
            self._incident[change.dst][edge] = None
            self._lifetimes.add_edge(edge, change.time, change.ttl)
        elif change.value is None:
            return Reason.APPLIED if self._prolong_edge(edge, change.time) else Reason.REPEATED
        return Reason.APPLIED if change.value is None else self._set_existing_edge(change)

    def _prolong_edge(self, edge: EdgeName, time: int) -> bool:
        """An event of an edge prolongs the edge and its ends; whether it does."""
        if not self._lifetimes.prolong_edge(edge, time):
            return False
        end = max(self._lifetimes.newest_edge_end(edge), self._lifetimes.vertex_end(time))
        for id in edge[:2]:
            self._lifetimes.prolong_vertex(id, end)
        return True

    def _set_existing_edge(self, change: Change) -> Reason:
        edge = self._edge_name(change.src, change.dst, change.key)
        if edge not in self._copies:
            return Reason.NO_SUCH_EDGE
        if self._deletes.are_newer(change.time, change.src, change.dst):
            return Reason.LATE
        newest = self._copies[edge] - 1
        reason = _set(self._edge_features.setdefault((edge, newest), {}), change)
        if reason is Reason.APPLIED:
            self._prolong_edge(edge, change.time)
        return reason

    def _delete_edge(self, change: Change) -> Reason:
        edge = self._edge_name(change.src, change.dst, change.key)
        if edge not in self._copies:
            return Reason.NO_SUCH_EDGE
        copy: int | None = self._copies[edge] - 1
        if change.ttl is not None and self.schema.edges == "multi":  # a delete that expiry made
            copy = self._lifetimes.copy_that_ends(edge, change.time)
        if copy is None:
            return Reason.NO_SUCH_EDGE
        self._remove_copy(edge, copy)
        return Reason.APPLIED

    def _remove_copy(self, edge: EdgeName, copy: int) -> None:
        self._copies[edge] -= 1
        for newer in range(copy, self._copies[edge]):
            self._edge_features[edge, newer] = self._edge_features.get((edge, newer + 1), {})
        self._edge_features.pop((edge, self._copies[edge]), None)
        self._lifetimes.remove_edge(edge, copy)
        if self._copies[edge] == 0:
            del self._copies[edge]
            for end in {edge[0], edge[1]}:
                del self._incident[end][edge]

    def _set_label(self, change: Change) -> Reason:
        if self._deletes.are_newer(change.time, change.src):
            return Reason.LATE
        reason = _set(self._labels.setdefault(change.src, {}), change)
        if reason is Reason.APPLIED and change.src in self._features:
            self._lifetimes.prolong_vertex(change.src, self._lifetimes.vertex_end(change.time))
        return reason

    def _delete_label(self, change: Change) -> Reason:
        stored = self._labels.get(change.src, {})
        if _get(stored, change.name) is None:
            return Reason.REPEATED if change.src in self._features else Reason.NO_SUCH_VERTEX
        return self._set_label(change)

    def _ensure_vertex(self, id: Key, end: int) -> None:
        """Create a vertex that lives until then, if it does not exist."""
        if id not in self._features:
            self._features[id] = {}
            self._incident[id] = {}
            self._lifetimes.prolong_vertex(id, end)
            for time, _ in self._labels.get(id, {}).values():  # a label that came first
                self._lifetimes.prolong_vertex(id, self._lifetimes.vertex_end(time))

    def _edge_name(self, src: Key, dst: Key, key: Key | None) -> EdgeName:
        if not self.schema.directed and str(dst) < str(src):  # any total order will do
            src, dst = dst, src
        return src, dst, key

    def _known_labels(self) -> list[tuple[Key, Value]]:
        known = ((id, _get(stored, LABEL)) for id, stored in self._labels.items())
        return [(id, value) for id, value in known if value is not None]


def _get(store: Timed, name: str) -> Value | None:
    return store[name][1] if name in store else None


def _set(store: Timed, change: Change) -> Reason:
    """Last writer wins, by event time and then by order. An event without a value deletes."""
    if change.name in store and change.time < store[change.name][0]:
        return Reason.LATE
    store[change.name] = (change.time, change.value)
    return Reason.APPLIED


@contextmanager
def _no_collection() -> Iterator[None]:
    """Pause the garbage collector: dictionaries of edges have no cycles, and searching them is slow."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
