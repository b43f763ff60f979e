"""Short ways to write single events, for notebooks and tests.

`time` is an integer or a datetime, which counts as microseconds since 1970 (a naive one is in UTC).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from d3gnn.events.duration import Duration, duration
from d3gnn.events.event import Event, Time
from d3gnn.events.keys import Key

Value = Sequence[float]


def vertex(
    id: Key,
    value: Value | None = None,
    *,
    time: Time = 0,
    name: str | None = None,
    neighbours: Sequence[Key] | None = None,
) -> Event:
    """Create a vertex, with a feature if a value is given, and with edges to its `neighbours`.

    >>> vertex("ann", [0.5, 1.0], time=3)
    create vertex ann x=[0.5, 1.0] at 3
    """
    return Event("create", "vertex", id, value=value, time=time, feature=name, neighbours=neighbours)


def delete_vertex(id: Key, *, time: Time = 0) -> Event:
    """Delete a vertex with its features, its label and its edges."""
    return Event("delete", "vertex", id, time=time)


def edge(
    src: Key,
    dst: Key,
    value: Value | None = None,
    *,
    key: Key | None = None,
    time: Time = 0,
    name: str | None = None,
    ttl: Duration | None = None,
) -> Event:
    """Create an edge, and its ends if they do not exist yet; with a feature if a value is given.

    `ttl` is its lifetime, if it differs from that of other edges (see docs/expiry.md).

    >>> edge("ann", "bob", time=1)
    create edge ann -> bob at 1
    """
    lifetime = None if ttl is None else duration("ttl", ttl)
    return Event("create", "edge", src, dst, key, value=value, time=time, feature=name, ttl=lifetime)


def delete_edge(src: Key, dst: Key, *, key: Key | None = None, time: Time = 0) -> Event:
    """Delete an edge; of parallel edges without keys, the newest."""
    return Event("delete", "edge", src, dst, key, time=time)


def feature(id: Key, value: Value, *, time: Time = 0, name: str | None = None) -> Event:
    """Set a feature of a vertex, which is created if it does not exist yet."""
    return Event("create", "feature", id, value=value, time=time, feature=name)


def delete_feature(id: Key, *, time: Time = 0, name: str | None = None) -> Event:
    """Reset a feature of a vertex to the vertex's initial value."""
    return Event("delete", "feature", id, time=time, feature=name)


def edge_feature(
    src: Key, dst: Key, value: Value, *, key: Key | None = None, time: Time = 0, name: str | None = None
) -> Event:
    """Set a feature of an existing edge; of parallel edges without keys, of the newest."""
    return Event("create", "edge_feature", src, dst, key, value=value, time=time, feature=name)


def delete_edge_feature(
    src: Key, dst: Key, *, key: Key | None = None, time: Time = 0, name: str | None = None
) -> Event:
    """Remove a feature of an existing edge; of parallel edges without keys, of the newest."""
    return Event("delete", "edge_feature", src, dst, key, time=time, feature=name)


def label(id: Key, value: float | Value, *, time: Time = 0) -> Event:
    """Set the label of a vertex, which may be created later."""
    values = value if isinstance(value, Sequence | np.ndarray) else [value]
    return Event("create", "label", id, value=values, time=time)


def delete_label(id: Key, *, time: Time = 0) -> Event:
    """Remove the label of a vertex."""
    return Event("delete", "label", id, time=time)


def query(src: Key, dst: Key, *, time: Time = 0) -> Event:
    """Ask for the score of a pair of vertices; a pair head answers, with the embeddings after the batch.

    >>> query("ann", "bob", time=1)
    create query ann -> bob at 1
    """
    return Event("create", "query", src, dst, time=time)
