"""Compile kernels and load libraries before the timed part of a benchmark."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from d3gnn.events import EventBatch, GraphSchema
from d3gnn.kernel.windows import Windows
from d3gnn.nn import GNN
from d3gnn.runtime.local import LocalEngine
from d3gnn.sources import SyntheticStream

_SAMPLE = 500


def warm_up(
    model: GNN,
    schema: GraphSchema,
    parts: int,
    partitioner: str,
    sample: Iterable[EventBatch] = (),
    window: Windows = None,
) -> None:
    """Run throw-away engines of the same configuration, so that no timed batch includes compilation.

    One engine processes synthetic batches with every kind of event, another the batches of `sample`.
    """
    width = schema.for_model(model.in_channels).width
    everything = SyntheticStream(
        edges=3 * _SAMPLE, vertices=_SAMPLE, deletes=0.3, vertex_deletes=0.02, feature_updates=0.2, bad=0.02,
        feature_width=width,
    )  # fmt: skip
    for batches in (everything.batches(_SAMPLE), islice(sample, 3)):
        engine = LocalEngine(model, parts=parts, partitioner=partitioner, schema=schema, window=window)
        for batch in batches:
            engine.apply(batch)
            engine.apply(batch.take(slice(0, 1)))
        engine.drain()
