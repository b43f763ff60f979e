"""Edge lists as arrays in the order of time."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from d3gnn.sources.columns import Roles, find_roles, ids_of, is_integers, ops_of, times_of
from d3gnn.sources.errors import EdgeListError
from d3gnn.sources.parquet import is_parquet, read_parquet
from d3gnn.sources.text import Text, read_text
from d3gnn.types import Ints, Small

__all__ = ["EdgeList", "EdgeListError", "read_edge_list"]

#: An int64 array or a pyarrow string array; pyarrow has no static types.
Ids: TypeAlias = Any


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Edges in the order of their times; edges with equal times are in the order of the file.

    `src` and `dst` are int64 arrays, or both pyarrow string arrays if some id is not an integer. `time` is
    int64: the file's integers, microseconds for fractional seconds or dates, or the position in the file if
    it has no times. `op` is +1 for a created edge and -1 for a deleted one.
    """

    src: Ids
    dst: Ids
    time: Ints
    op: Small

    def __len__(self) -> int:
        return len(self.time)


def read_edge_list(path: str | PathLike[str], *, limit: int | None = None) -> EdgeList:
    r"""Read an edge list from text or Parquet, gzipped or not, with or without a header.

    Text is separated by white space, comma, tab or semicolon; lines that begin with # or % are comments. A
    header names the columns (`src,dst,time`, `u,v,t`, `source,target,timestamp`, ...). Without one the first
    two columns are the ids, and the time is the first later column that looks like a clock or a date, else
    the third column if it has integers. A column of only + and - creates and deletes edges; if it is the
    second, the time is the first. `limit` keeps only the earliest edges.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w") as file:
    ...     print("ann bob 20\nbob cid 10", file=file, flush=True)
    ...     edges = read_edge_list(file.name)
    >>> edges.src.to_pylist(), edges.time.tolist()
    (['bob', 'ann'], [10, 20])
    """
    path = Path(path)
    if limit is not None and limit < 0:
        raise ValueError(f"limit={limit}: must be 0 or more, or None for all edges")
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"edge list {path} {what}; give the path of a text or Parquet file")
    try:
        edges = _from_parquet(path) if is_parquet(path) else _from_text(path)
    except pa.ArrowInvalid as error:
        raise EdgeListError(f"{path} cannot be read as an edge list: {error}; {_advice(error)}") from error
    return _in_time_order(edges, limit)


def _advice(error: Exception) -> str:
    if "UTF8" in str(error):
        return "save it as UTF-8"
    return "give every line the same number of columns" if "CSV" in str(error) else "write the file again"


def _from_parquet(path: Path) -> EdgeList:
    table, names = read_parquet(path)
    roles = find_roles(path, table, names)
    return _edges(path, table, roles, table.column(roles.src), table.column(roles.dst))


def _from_text(path: Path) -> EdgeList:
    text = Text.load(path)
    table = read_text(text)
    roles = find_roles(path, table, text.header)
    ends = [roles.src, roles.dst]
    if not all(is_integers(table.column(end)) for end in ends):
        # Inferred types lose leading zeros, ids beyond 64 bits, and "NA" and "true" as names.
        src, dst = read_text(text, as_strings=ends).select(ends).columns
    else:
        src, dst = table.column(roles.src), table.column(roles.dst)
    return _edges(path, table, roles, src, dst)


def _edges(path: Path, table: Any, roles: Roles, src: Ids, dst: Ids) -> EdgeList:
    src_ids, dst_ids = ids_of(path, src, dst)
    return EdgeList(src_ids, dst_ids, times_of(path, table, roles.time), ops_of(path, table, roles.op))


def _in_time_order(edges: EdgeList, limit: int | None) -> EdgeList:
    if bool(np.all(edges.time[1:] >= edges.time[:-1])):
        if limit is None or limit >= len(edges):
            return edges
        return EdgeList(edges.src[:limit], edges.dst[:limit], edges.time[:limit], edges.op[:limit])
    order = np.argsort(edges.time, kind="stable")[:limit]
    return EdgeList(_take(edges.src, order), _take(edges.dst, order), edges.time[order], edges.op[order])


def _take(ids: Ids, order: Ints) -> Ids:
    return ids[order] if isinstance(ids, np.ndarray) else ids.take(pa.array(order))
