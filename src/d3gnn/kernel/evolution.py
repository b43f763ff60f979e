"""The same graph under other settings: entries of a log, rewritten for another schema and other parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from d3gnn.events import Element, EventBatch, GraphSchema, Op, Reason
from d3gnn.events.check import feature_index
from d3gnn.kernel.log import LogEntry
from d3gnn.kernel.operators.partition import Partition
from d3gnn.kernel.partitioners import Partitioner
from d3gnn.types import Array, Floats, Ints, Ints32

__all__ = ["Evolution", "Fill", "Repartition", "SchemaChangeRefused"]

#: The numbers that a widened feature gets, by its name: one for each new number, or one for all.
Fill = Mapping[str, float | Sequence[float]]

_OF_VERTEX = (Element.VERTEX, Element.FEATURE)
#: Events that are applied together.
_CHUNK = 200_000


class SchemaChangeRefused(ValueError):
    """A graph has no meaning under the other schema."""


@dataclass(frozen=True)
class Evolution:
    """Rewrites events of a graph for another schema; checks when made that the change has a meaning.

    Features may be added, removed, reordered and widened. The edge mode may change, except to `keyed`, since
    the edges have no keys that later events could name. A directed graph may become undirected; not the other
    way round, since an undirected edge has no direction.

    fill:
        The new numbers of widened features, by name of the feature; 0 for others.

    >>> from d3gnn.events import feature
    >>> old, new = GraphSchema(features={"x": 1, "y": 1}), GraphSchema(features={"x": 3})
    >>> events = EventBatch.of([feature(1, [5.0], name="x", time=0), feature(2, [6.0], name="y", time=0)])
    >>> evolved = Evolution(old, new, {"x": 9.0}).events(events)
    >>> [str(evolved.row(i)) for i in range(2)]
    ['create feature 1 x=[5.0, 9.0, 9.0] at 0', 'create vertex 2 at 0']
    """

    old: GraphSchema
    new: GraphSchema
    fill: Fill | None = None

    def __post_init__(self) -> None:
        old, new = self.old, self.new
        if new.edges == "keyed" != old.edges:
            raise SchemaChangeRefused(
                f"edges='{old.edges}' cannot become edges='keyed': the edges have no keys, so that later "
                "events could not name them. Read the events from the start, with their keys"
            )
        if new.directed and not old.directed:
            raise SchemaChangeRefused(
                "an undirected graph cannot become directed: its edges have no direction. Read the events "
                "from the start"
            )
        for which in ("features", "edge_features"):
            widths = getattr(old, which)
            for name, width in getattr(new, which).items():
                if width < widths.get(name, width):
                    raise SchemaChangeRefused(
                        f"{which}[{name!r}] cannot shrink from {widths[name]} to {width} numbers: which "
                        "of them are left is not known. Remove the feature, and add one with another name"
                    )
        self._check_fill()

    @property
    def keeps_history(self) -> bool:
        """Whether every event of the history means the same: with another edge mode, a delete would delete
        other edges.
        """
        return (self.old.edges, self.old.directed) == (self.new.edges, self.new.directed)

    def events(self, events: EventBatch) -> EventBatch:
        """Events of the old graph, as events of the new one; those that it has no place for are left out."""
        if self.old.label_width != self.new.label_width and (events.element == Element.LABEL).any():
            raise SchemaChangeRefused(
                f"label_width cannot change from {self.old.label_width} to {self.new.label_width}: the graph "
                "has labels"
            )
        if self.new.edges != "keyed":
            events = replace(events, key=None)
        if self.new.ttl is None:
            events = replace(events, ttl=None)
        return self._widened(self._without_removed(self._named(events)))

    def _named(self, events: EventBatch) -> EventBatch:
        """The events with the name of their feature: which one is the default depends on the schema."""
        index = feature_index(events, self.old)
        of_vertex = np.isin(events.element, _OF_VERTEX)
        of_edge = (events.element == Element.EDGE) | (events.element == Element.EDGE_FEATURE)
        names = (*self.old.features, *self.old.edge_features)
        first = np.where(of_vertex, 0, len(self.old.features))
        has_name = (index >= 0) & (of_vertex | of_edge)
        feature = np.where(has_name, first + index, -1).astype(np.int32)
        return replace(events, feature=feature if names else None, names=names, origin=None)

    def _without_removed(self, events: EventBatch) -> EventBatch:
        """Without values of features that the new schema lacks; what they created is created without."""
        if events.feature is None:
            return events
        kept = [name in self.new.features for name in self.old.features]
        kept += [name in self.new.edge_features for name in self.old.edge_features]
        about = (events.element == Element.FEATURE) | (events.element == Element.EDGE_FEATURE)
        about |= _lengths(events) > 0
        removed = about & (events.feature >= 0) & ~np.array([*kept, True])[events.feature]
        if not removed.any():
            return events
        creates = removed & (events.op == Op.CREATE) & (events.element != Element.EDGE_FEATURE)
        element = np.where(creates & (events.element == Element.FEATURE), Element.VERTEX, events.element)
        lengths = np.where(removed, 0, _lengths(events))
        values, offsets = events.values, events.value_offsets
        if values is not None and offsets is not None:
            values = values[np.repeat(~removed, np.diff(offsets))]
            offsets = _offsets(lengths)
        feature = np.where(removed, -1, events.feature).astype(np.int32)
        stripped = replace(
            events, element=element.astype(np.int8), feature=feature, values=values, value_offsets=offsets
        )
        return stripped.take(creates | ~removed)

    def _widened(self, events: EventBatch) -> EventBatch:
        """With the new numbers of widened features behind the old ones."""
        offsets = events.value_offsets
        if events.feature is None or events.values is None or offsets is None:
            return events
        more = [self._new_numbers("features", name) for name in self.old.features]
        more += [self._new_numbers("edge_features", name) for name in self.old.edge_features]
        added = np.array([*map(len, more), 0])
        lengths = _lengths(events)
        new_offsets = _offsets(lengths + np.where(lengths > 0, added[events.feature], 0))
        values = np.empty(int(new_offsets[-1]), np.float32)
        values[np.arange(len(events.values)) + np.repeat(new_offsets[:-1] - offsets[:-1], lengths)] = (
            events.values
        )
        for i in np.flatnonzero(added):
            rows = np.flatnonzero((events.feature == i) & (lengths > 0))
            begin = new_offsets[rows] + lengths[rows]
            values[begin[:, None] + np.arange(added[i])] = more[i]
        return replace(events, values=values, value_offsets=new_offsets)

    def _new_numbers(self, which: str, name: str) -> Floats:
        widths = getattr(self.old, which)
        added = max(0, getattr(self.new, which).get(name, 0) - widths[name])
        given = (self.fill or {}).get(name, 0.0)
        numbers = np.full(added, given, np.float32) if isinstance(given, int | float) else given
        return np.asarray(numbers, np.float32)

    def _check_fill(self) -> None:
        for name, given in (self.fill or {}).items():
            grows = [
                getattr(self.new, which)[name] - getattr(self.old, which)[name]
                for which in ("features", "edge_features")
                if name in getattr(self.new, which) and name in getattr(self.old, which)
            ]
            if not any(grows):
                raise ValueError(
                    f"fill[{name!r}]: the feature is not widened. What vertices without a feature have is "
                    "GraphSchema(missing=...)"
                )
            width = 1 if isinstance(given, int | float) else len(given)
            if width != 1 and any(width != more for more in grows if more):
                raise ValueError(f"fill[{name!r}]={given!r}: must be {max(grows)} numbers, or one for all")
            if not np.isfinite(np.asarray(given, np.float32)).all():
                raise ValueError(f"fill[{name!r}]={given!r}: must be finite")


class Repartition:
    """Applies a log again, with other parts and another partitioner, in the order that it has."""

    def __init__(self, evolution: Evolution, parts: int, partitioner: Partitioner) -> None:
        self._evolution = evolution
        self._partition = Partition(replace(evolution.new, max_abs=None, max_ahead=None), parts, partitioner)
        #: Events that changed nothing in the new graph, by the reason.
        self.skipped: Counter[str] = Counter()

    @property
    def expires(self) -> bool:
        """Whether edges of the new graph expire."""
        return self._evolution.new.ttl is not None

    @property
    def vertices(self) -> int:
        """Vertices of the new graph so far."""
        return self._partition.vertex_count

    @property
    def lacking(self) -> int:
        """Those that lack a feature."""
        return self._partition.lacking

    def entry(self, entry: LogEntry, clock: int, progress: Callable[[int], None] | None = None) -> LogEntry:
        """An entry of the new log from one of the old log."""
        done: list[LogEntry] = []
        self._partition.plan(entry.events)
        for events in _chunks(entry.events):
            evolved = self._evolution.events(events)
            result = self._partition.process(evolved, clock, keep_order=True)
            status = result.status
            # Edges create most vertices before their own events.
            skipped = (status != Reason.APPLIED) & (
                (status != Reason.REPEATED) | (evolved.element != Element.VERTEX)
            )
            for reason, count in zip(*np.unique(status[skipped], return_counts=True), strict=True):
                self.skipped[Reason(int(reason)).text] += int(count)
            done.append(result.entry)
            if progress is not None:
                progress(len(events))
        return LogEntry.concat(done) if done else entry


def for_streaming(snapshot: LogEntry) -> LogEntry:
    """A snapshot in the order of a stream: edges before vertices.

    A partitioner then places the master of a vertex with its first edge. After an event that creates the
    vertex alone, the id would decide, and most vertices had one more replica.
    """
    events = snapshot.events
    rank = np.select(
        [
            (events.element == Element.VERTEX) & (events.op == Op.DELETE),
            (events.element == Element.EDGE) | (events.element == Element.EDGE_FEATURE),
            events.element == Element.VERTEX,
        ],
        [0, 1, 2],
        3,
    )
    order = np.argsort(rank, kind="stable")
    part: Ints32 = snapshot.part[order]
    return LogEntry(events.take(order), part)


def _chunks(events: EventBatch) -> Iterator[EventBatch]:
    for begin in range(0, len(events), _CHUNK):
        yield events.between(begin, min(begin + _CHUNK, len(events)))


def _lengths(events: EventBatch) -> Ints:
    if events.value_offsets is None:
        return np.zeros(len(events), np.int64)
    lengths: Ints = np.diff(events.value_offsets)
    return lengths


def _offsets(lengths: Array) -> Ints:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
