"""Events as the oracle reads them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from d3gnn.events import Element, EventBatch, GraphSchema, Key
from d3gnn.events.check import feature_index
from d3gnn.events.event import NO_TIME

Value: TypeAlias = tuple[float, ...]

#: The name of the one label.
LABEL = "label"


class Change(NamedTuple):
    """A valid event, as its handler reads it."""

    src: Key
    dst: Key
    key: Key | None
    name: str
    value: Value | None
    time: int
    ttl: int | None


def columns_of(batch: EventBatch, schema: GraphSchema) -> list[Sequence[Any]]:
    """The columns of a batch as lists, one for each field of `Change`."""
    nothing: list[None] = [None] * len(batch)
    src = batch.src.to_list()
    dst = nothing if batch.dst is None else batch.dst.to_list()
    key = nothing if batch.key is None or schema.edges != "keyed" else batch.key.to_list()
    values: Sequence[Value | None] = nothing
    if batch.values is not None and batch.value_offsets is not None:
        flat = batch.values.tolist()
        values = [tuple(flat[begin:end]) or None for begin, end in pairwise(batch.value_offsets.tolist())]
    index = feature_index(batch, schema).tolist()
    names = [_names(schema, element) for element in Element]
    named = [names[e][i] if i >= 0 else "" for e, i in zip(batch.element.tolist(), index, strict=True)]
    ttl: Sequence[int | None] = nothing
    if batch.ttl is not None:
        ttl = [None if each == NO_TIME else each for each in batch.ttl.tolist()]
    return [src, dst, key, named, values, batch.time.tolist(), ttl]


def _names(schema: GraphSchema, element: Element) -> list[str]:
    if element is Element.LABEL:
        return [LABEL]
    return list(schema.features if element in (Element.VERTEX, Element.FEATURE) else schema.edge_features)
