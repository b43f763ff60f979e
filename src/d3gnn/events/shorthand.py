"""Short ways to write events by hand, for notebooks and tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from d3gnn.events.batch import Event
from d3gnn.events.keys import Key

Value = Sequence[float]


def vertex(id: Key, value: Value | None = None, *, time: int = 0, name: str | None = None) -> Event:
    """A vertex comes to be, with a feature if a value is given.

    >>> vertex("ann", [0.5, 1.0], time=3)
    create vertex ann x=[0.5, 1.0] at 3
    """
    return Event("create", "vertex", id, value=value, time=time, feature=name)


def delete_vertex(id: Key, *, time: int = 0) -> Event:
    """A vertex goes, and its edges with it."""
    return Event("delete", "vertex", id, time=time)


def edge(
    src: Key,
    dst: Key,
    value: Value | None = None,
    *,
    key: Key | None = None,
    time: int = 0,
    name: str | None = None,
) -> Event:
    """An edge comes to be, and its ends if they are not there yet.

    >>> edge("ann", "bob", time=1)
    create edge ann -> bob at 1
    """
    return Event("create", "edge", src, dst, key, value=value, time=time, feature=name)


def delete_edge(src: Key, dst: Key, *, key: Key | None = None, time: int = 0) -> Event:
    """An edge goes; of parallel edges without keys, the newest."""
    return Event("delete", "edge", src, dst, key, time=time)


def feature(id: Key, value: Value, *, time: int = 0, name: str | None = None) -> Event:
    """A vertex's feature gets a value; the vertex comes to be if it is not there yet."""
    return Event("create", "feature", id, value=value, time=time, feature=name)


def delete_feature(id: Key, *, time: int = 0, name: str | None = None) -> Event:
    """A vertex's feature falls back to the vertex's initial value."""
    return Event("delete", "feature", id, time=time, feature=name)


def edge_feature(
    src: Key, dst: Key, value: Value, *, key: Key | None = None, time: int = 0, name: str | None = None
) -> Event:
    """A feature of an existing edge gets a value (of parallel edges without keys, the newest)."""
    return Event("create", "edge_feature", src, dst, key, value=value, time=time, feature=name)


def label(id: Key, value: float | Value, *, time: int = 0) -> Event:
    """What is known to be true of a vertex; it may come before the vertex does."""
    values = value if isinstance(value, Sequence | np.ndarray) else [value]
    return Event("create", "label", id, value=values, time=time)


def query(src: Key, dst: Key, *, time: int = 0) -> Event:
    """What score do these two have? Answered with the embeddings after the batch, by a head for pairs.

    >>> query("ann", "bob", time=1)
    create query ann -> bob at 1
    """
    return Event("create", "query", src, dst, time=time)
