"""Workloads of benchmarks: an edge list, an event file or a synthetic stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from d3gnn.events import EdgeMode, Element, EventBatch, GraphSchema, Op
from d3gnn.events.keys import IntKeys, keys_from_arrow
from d3gnn.sources import EdgeListError, SyntheticStream, read_edge_list, rebatch
from d3gnn.sources.parquet import is_parquet

#: The key of the schema in the metadata of a Parquet file, written by `d3gnn generate`.
SCHEMA_KEY = b"d3gnn.schema"
_READ_ROWS = 1 << 16
_EVENT_COLUMNS = {"op", "element", "src"}


@dataclass(frozen=True)
class Workload:
    """Events that can be read several times, in batches of any size."""

    name: str
    schema: GraphSchema
    events: int
    _batches: Callable[[int], Iterator[EventBatch]]
    #: Whether event times never decrease; the order of events then does not depend on the batch size.
    in_order: bool = False

    def batches(self, size: int) -> Iterator[EventBatch]:
        """All events, `size` at a time."""
        return self._batches(size)

    def edges(self) -> int:
        """The number of events that create, update or delete edges."""
        return sum(int(np.count_nonzero(batch.element == Element.EDGE)) for batch in self.batches(_READ_ROWS))

    def cached(self) -> Workload:
        """The same workload, read once and kept in memory."""
        whole = EventBatch.concat(list(self._batches(_READ_ROWS)))
        return replace(self, _batches=lambda size: rebatch([whole], size))

    def limited(self, limit: int | None) -> Workload:
        """The first `limit` events of this workload."""
        if limit is None or limit >= self.events:
            return self
        if limit < 1:
            raise ValueError(f"limit={limit}: must be at least 1")
        return replace(self, events=limit, _batches=lambda size: _first(self._batches(size), limit))


def synthetic_workload(stream: SyntheticStream, edges: EdgeMode | None = None) -> Workload:
    """A synthetic stream; `edges` overrides the edge mode of its schema."""
    schema = replace(stream.schema, edges=edges or stream.schema.edges)
    return Workload(f"synthetic {stream.shape}", schema, len(stream), stream.batches)


def file_workload(
    path: str | Path, edges: EdgeMode | None = None, undirected: bool = False, limit: int | None = None
) -> Workload:
    """The events of a file: an edge list, or a Parquet file in the event format.

    Without `edges` (simple, multi or append), the edge mode comes from the schema in the file's metadata. A
    file without metadata is a simple graph if it deletes edges, and a multigraph otherwise.
    """
    path = Path(path)
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}: must be at least 1")
    if path.is_file() and is_parquet(path):
        try:
            columns = pq.read_schema(path)
        except pa.ArrowInvalid as error:
            raise EdgeListError(
                f"{path} is not a valid Parquet file ({error}): write the file again"
            ) from error
        if set(columns.names) >= _EVENT_COLUMNS:
            return _event_file(path, columns.metadata or {}, edges, undirected).limited(limit)
    return _edge_list(path, edges, undirected, limit)


def _edge_list(path: Path, edges: EdgeMode | None, undirected: bool, limit: int | None) -> Workload:
    listed = read_edge_list(path, limit=limit)
    removes = bool((listed.op < 0).any())
    schema = GraphSchema(edges=edges or ("simple" if removes else "multi"), directed=not undirected)
    src, dst = (
        IntKeys(ids) if isinstance(ids, np.ndarray) else keys_from_arrow(ids)
        for ids in (listed.src, listed.dst)
    )
    whole = EventBatch(
        op=np.where(listed.op < 0, Op.DELETE, Op.CREATE).astype(np.int8),
        element=np.full(len(listed), Element.EDGE, np.int8),
        src=src,
        dst=dst,
        time=listed.time,
    )
    return Workload(path.name, schema, len(whole), lambda size: rebatch([whole], size), in_order=True)


def _event_file(
    path: Path, metadata: dict[bytes, bytes], edges: EdgeMode | None, undirected: bool
) -> Workload:
    events = int(pq.read_metadata(path).num_rows)
    if not events:
        raise EdgeListError(f"{path} has no events")
    try:
        if SCHEMA_KEY in metadata:
            schema = GraphSchema(**json.loads(metadata[SCHEMA_KEY]))
        else:
            schema = _infer_schema(path)
    except (TypeError, ValueError) as error:
        raise EdgeListError(f"{path} is not a valid event file: {error}") from error
    schema = replace(schema, edges=edges or schema.edges, directed=schema.directed and not undirected)

    def batches(size: int) -> Iterator[EventBatch]:
        with pq.ParquetFile(path) as file:
            yield from rebatch(map(EventBatch.from_arrow, file.iter_batches(_READ_ROWS)), size)

    return Workload(path.name, schema, events, batches)


def _infer_schema(path: Path) -> GraphSchema:
    """The width of the first feature, and simple edges if the file deletes any."""
    width, removes = 0, False
    with pq.ParquetFile(path) as file:
        for rows in file.iter_batches(_READ_ROWS):
            batch = EventBatch.from_arrow(rows)
            removes |= bool(((batch.op == Op.DELETE) & (batch.element == Element.EDGE)).any())
            if not width and batch.value_offsets is not None:
                about_vertex = np.isin(batch.element, (Element.VERTEX, Element.FEATURE))
                widths = np.diff(batch.value_offsets)[about_vertex]
                width = int(widths[np.argmax(widths > 0)]) if (widths > 0).any() else 0
    return GraphSchema(
        edges="simple" if removes else "multi", features={"x": width} if width else {}, missing="hash"
    )


def _first(batches: Iterator[EventBatch], limit: int) -> Iterator[EventBatch]:
    left = limit
    for batch in batches:
        yield batch if len(batch) <= left else batch.take(slice(0, left))
        left -= len(batch)
        if left <= 0:
            return


def schema_metadata(schema: GraphSchema) -> dict[bytes, bytes]:
    """The schema as metadata of an Arrow table."""
    return {SCHEMA_KEY: json.dumps(schema.to_dict()).encode()}


def with_schema(table: pa.Table, schema: GraphSchema) -> pa.Table:
    """The table with the graph's schema added to its metadata."""
    return table.replace_schema_metadata(schema_metadata(schema))
