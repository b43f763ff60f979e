"""The effects of a batch on the graph: lists of vertices, replicas and edges, each with its event.

Python passes the lists to compiled code as two arrays, because each argument takes time in every batch.
Both sides read them by name: compiled code as `Decisions`, Python by `DecisionRows.of`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np

from d3gnn.kernel.compiled import inlined
from d3gnn.types import Ints, Ints32

# `event` is the row of the causing event in the batch. Vertices, replicas and records are given by number.


class NewVertices(NamedTuple):
    """New vertices; their numbers follow those of earlier batches, in order."""

    event: Ints32


class NewReplicas(NamedTuple):
    """New replicas; their numbers follow those of earlier batches, in order."""

    vertex: Ints32


class NewSources(NamedTuple):
    """Replicas whose vertex must send its values to them from now on."""

    replica: Ints32
    vertex: Ints32


class Adds(NamedTuple):
    """New edges, some of which may be removed again in the same batch."""

    record: Ints32  # in the edge table; or REMOVED, or NO_RECORD
    part: Ints32
    slot: Ints32
    u: Ints32
    v: Ints32
    u_replica: Ints32
    v_replica: Ints32
    event: Ints32


class Removes(NamedTuple):
    """Removed edges of earlier batches, except those of deleted vertices."""

    part: Ints32
    slot: Ints32
    is_loop: Ints32
    event: Ints32


class VertexDeletes(NamedTuple):
    """Deleted vertices of earlier batches."""

    vertex: Ints32
    event: Ints32


class FeatureUpdates(NamedTuple):
    """Created, updated and deleted vertex features."""

    vertex: Ints32
    event: Ints32


class EdgeFeatureUpdates(NamedTuple):
    """Created, updated and deleted edge features."""

    record: Ints32
    event: Ints32


class LabelUpdates(NamedTuple):
    """Created, updated and deleted labels of vertices that exist; and labels parked for a new vertex."""

    vertex: Ints32
    event: Ints32


#: Values of `Adds.record` instead of a record: the edge was removed again; or the graph has no edge table.
REMOVED, NO_RECORD = -1, -2


class Decisions(NamedTuple):
    """All lists, as compiled code sees them: columns with room for more, and how long each list is."""

    counts: Ints  # [N_VERTICES ... N_LABELS]
    vertices: NewVertices
    replicas: NewReplicas
    sources: NewSources
    adds: Adds
    removes: Removes
    vertex_deletes: VertexDeletes
    features: FeatureUpdates
    edge_features: EdgeFeatureUpdates
    labels: LabelUpdates


# Places in `counts`, in the order of the fields of `Decisions`.
(
    N_VERTICES, N_REPLICAS, N_SOURCES, N_ADDS, N_REMOVES, N_VERTEX_DELETES, N_FEATURES, N_EDGE_FEATURES,
    N_LABELS,
) = range(9)  # fmt: skip
LISTS: tuple[type[Any], ...] = (
    NewVertices, NewReplicas, NewSources, Adds, Removes, VertexDeletes, FeatureUpdates, EdgeFeatureUpdates,
    LabelUpdates,
)  # fmt: skip
_FIRST_ROWS = np.cumsum([0, *(len(kind._fields) for kind in LISTS)]).tolist()
#: By name of the list: its place in `counts`, its first row, the row after its last.
_PLACES = {kind.__name__: (i, *_FIRST_ROWS[i : i + 2]) for i, kind in enumerate(LISTS)}

List = TypeVar("List", bound=tuple[Any, ...])


class DecisionRows(NamedTuple):
    """All lists, as Python passes them to compiled code.

    >>> decisions = make_decisions(2)
    >>> decisions.counts[N_SOURCES] = 1
    >>> [len(column) for column in decisions.of(NewSources)]
    [1, 1]
    """

    counts: Ints
    rows: Ints32  # one row for each column of each list

    def of(self, kind: type[List]) -> List:
        """One list, with its columns cut to its length."""
        count, begin, end = _PLACES[kind.__name__]
        return kind(*self.rows[begin:end, : self.counts[count]])


def make_decisions(n: int) -> DecisionRows:
    """Empty lists for a batch of n events. An event creates at most two vertices and three replicas."""
    return DecisionRows(np.zeros(len(LISTS), np.int64), np.empty((_FIRST_ROWS[-1], 3 * n), np.int32))


def with_room(decisions: DecisionRows, n: int) -> DecisionRows:
    """The same lists, with room for a batch of n events."""
    longer = make_decisions(n)
    longer.counts[:] = decisions.counts
    for count, (_, begin, end) in zip(decisions.counts.tolist(), _PLACES.values(), strict=True):
        if count:
            longer.rows[begin:end, :count] = decisions.rows[begin:end, :count]
    return longer


@inlined
def add_entry(counts: Ints, kind: int) -> int:
    """The place of a new entry in a list, which is one entry longer from now on."""
    counts[kind] += 1
    return counts[kind] - 1  # type: ignore[no-any-return]


@inlined
def named(counts: Ints, r: Ints32) -> Decisions:
    """The rows by name, for compiled code; row numbers appear only here.

    Only for functions decorated with `@lean`: they do not count references to the columns, as this does not.
    """
    return Decisions(
        counts,
        NewVertices(r[0]),
        NewReplicas(r[1]),
        NewSources(r[2], r[3]),
        Adds(r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11]),
        Removes(r[12], r[13], r[14], r[15]),
        VertexDeletes(r[16], r[17]),
        FeatureUpdates(r[18], r[19]),
        EdgeFeatureUpdates(r[20], r[21]),
        LabelUpdates(r[22], r[23]),
    )
