"""Vertex streams: an event of a new vertex that carries its neighbourhood becomes several events.

The vertex comes first, the edges directly behind it: they stay together in the order of events, so that a
partitioner of vertices finds them there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from d3gnn.events.event import Event

#: The column of neighbours in tables and DataFrames.
NEIGHBOURS = "neighbours"


def expanded(rows: list[Event]) -> list[Event]:
    """The events, with an event for each edge behind its vertex.

    >>> expanded([Event("create", "vertex", 1, time=5, neighbours=[2, 3])])
    [create vertex 1 at 5, create edge 1 -> 2 at 5, create edge 1 -> 3 at 5]
    """
    return list(_expanded(rows))


def _expanded(rows: list[Event]) -> Iterator[Event]:
    for row in rows:
        if not row.neighbours:
            yield row
            continue
        _check(row.op, row.element)
        yield row._replace(neighbours=None)
        alone = row._replace(element="edge", feature=None, value=None, ttl=None, neighbours=None)
        for neighbour in row.neighbours:
            yield alone._replace(dst=neighbour)


def expanded_table(table: pa.Table) -> pa.Table:
    """A table of events with the column of neighbours, without it: a row for each edge behind its vertex."""
    near = table[NEIGHBOURS].combine_chunks()
    if pa.types.is_null(near.type):
        return table.drop_columns([NEIGHBOURS])
    lengths = pc.fill_null(pc.list_value_length(near), 0).to_numpy().astype(np.int64)
    has_element = "element" in table.column_names
    element = table["element"] if has_element else pa.nulls(len(table), pa.string())
    default = "edge" if "dst" in table.column_names else "vertex"
    element = pc.fill_null(pc.cast(element, pa.string()), default)
    with_some = np.flatnonzero(lengths)
    ops = pc.fill_null(table["op"], "create").take(with_some) if "op" in table.column_names else None
    for kind in pc.unique(element.take(with_some)).to_pylist():
        for op in ["create"] if ops is None else pc.unique(ops).to_pylist():
            _check(op, kind)
    table = table.drop_columns([NEIGHBOURS])
    table = _with(table, "element", element)
    repeats = np.repeat(np.arange(len(table)), 1 + lengths)
    of_edge = np.ones(len(repeats), np.bool_)
    of_edge[np.cumsum(1 + lengths) - 1 - lengths] = False
    found = table.take(repeats)
    ends = pc.list_flatten(near)
    places = np.where(of_edge, np.cumsum(of_edge) - 1, -1)
    edges = pa.array(of_edge)
    dst = ends.take(pa.array(places, mask=~of_edge))
    if "dst" in table.column_names:
        dst = pc.if_else(edges, dst, found["dst"].combine_chunks())
    found = _with(found, "dst", dst)
    found = _with(found, "element", pc.if_else(edges, "edge", found["element"].combine_chunks()))
    for name in ("key", "feature", "value", "ttl"):
        if name in found.column_names:
            column = found[name].combine_chunks()
            found = _with(found, name, pc.if_else(edges, pa.nulls(len(edges), column.type), column))
    return found


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    if name not in table.column_names:
        return table.append_column(name, column)
    return table.set_column(table.column_names.index(name), name, column)


def _check(op: str, element: str) -> None:
    if op != "create" or element not in ("vertex", "feature"):
        raise ValueError(
            f"{op} {element} with neighbours: only the event that creates a vertex, or its feature, can have "
            "them; write other edges as events of their own"
        )
