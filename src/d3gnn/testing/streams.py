"""Random event streams from a seed, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import numpy as np

from d3gnn.events import Element, Event, EventBatch, GraphSchema, Op
from d3gnn.events.keys import IntKeys, Keys, keys_of
from d3gnn.types import Array, Ints

Ids = Literal["int", "str"]


def positive(events: EventBatch | Iterable[Event]) -> EventBatch:
    """The same events with positive values, for edge weights of degree-normalised models.

    >>> from d3gnn.events import feature
    >>> positive([feature("a", [-1.0, 0.5])]).values.tolist()
    [1.25, 0.75]
    """
    batch = EventBatch.of(events)
    return batch if batch.values is None else replace(batch, values=np.abs(batch.values) + np.float32(0.25))


def random_batches(
    schema: GraphSchema,
    seed: int,
    n_batches: int,
    batch_size: int,
    n_vertices: int,
    *,
    ids: Ids = "int",
    delete: float = 0.15,
    delete_vertex: float = 0.01,
    feature: float = 0.1,
    edge_feature: float = 0.05,
    late: float = 0.1,
    bad: float = 0.02,
) -> list[EventBatch]:
    """A reproducible stream that mixes all kinds of events; most create edges, and some vertices are hubs.

    Args:
        schema: The schema of the graph; an `append` graph has no edge deletes and no edge features. seed:
        Seed of the random generator; the same arguments give the same events. n_batches: Number of batches.
        batch_size: Events per batch. n_vertices: Number of different ids. ids: Integer or string ids. delete,
        delete_vertex, feature, edge_feature: Fraction of the events that delete an edge, delete a vertex, set
        a
            feature of a vertex, or set one of an edge. All others create edges.
        late: Fraction of the events whose time lies two batches back.
        bad: Fraction of the events that are made invalid.

    >>> [len(batch) for batch in random_batches(GraphSchema(features={"x": 2}), 1, 2, 100, 20)]
    [100, 100]
    """
    rng = np.random.default_rng(seed)
    if schema.edges == "append":
        delete = edge_feature = 0.0
    if not schema.edge_features:
        edge_feature = 0.0
    kinds = [
        (Op.CREATE, Element.EDGE, 1 - delete - delete_vertex - feature - edge_feature),
        (Op.DELETE, Element.EDGE, delete),
        (Op.DELETE, Element.VERTEX, delete_vertex),
        (Op.CREATE, Element.FEATURE, feature),
        (Op.UPDATE, Element.EDGE_FEATURE, edge_feature),
    ]
    shares = [share for *_, share in kinds]
    if min(shares) < 0:
        raise ValueError(f"the fractions of events add up to {1 - shares[0]:g}: must be at most 1")
    created = np.zeros((0, 3), np.int64)  # source, destination and key of each edge created so far
    batches = []
    for b in range(n_batches):
        kind = rng.choice(len(kinds), batch_size, p=shares)
        element = np.array([e for _, e, _ in kinds], np.int8)[kind]
        op = np.array([o for o, _, _ in kinds], np.int8)[kind]
        ends = (n_vertices * rng.random((batch_size, 2)) ** 2).astype(np.int64)  # squaring makes low ids hubs
        edges = np.column_stack([ends, rng.integers(0, 3, batch_size)])
        created = np.concatenate([created, edges[kind == 0]])
        old = np.isin(kind, (1, 4))
        if len(created):
            edges[old] = created[rng.integers(0, len(created), int(old.sum()))]
        time = b * batch_size + np.arange(batch_size)
        time[rng.random(batch_size) < late] -= 2 * batch_size
        names, feature_of, lengths = _random_features(rng, schema, element)
        values = rng.standard_normal(int(lengths.sum()), np.float32)
        is_bad = rng.random(batch_size) < bad
        op[is_bad & (rng.random(batch_size) < 0.5)] = -1
        values[np.repeat(is_bad, lengths)] = np.nan
        batches.append(
            EventBatch(
                op=op,
                element=element,
                src=_random_keys(edges[:, 0], ids),
                dst=_random_keys(edges[:, 1], ids),
                key=IntKeys(edges[:, 2].copy()) if schema.edges == "keyed" else None,
                time=time.astype(np.int64),
                feature=feature_of,
                names=names,
                values=values,
                value_offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            )
        )
    return batches


def _random_features(
    rng: np.random.Generator, schema: GraphSchema, element: Array
) -> tuple[tuple[str, ...], Array, Ints]:
    """Feature names, the index of the name of each event, and the number of values of each event."""
    names = (*schema.features, *schema.edge_features)
    feature = np.full(len(element), -1, np.int32)
    lengths = np.zeros(len(element), np.int64)
    for which, declared, begin in (
        (Element.FEATURE, schema.features, 0),
        (Element.EDGE_FEATURE, schema.edge_features, len(schema.features)),
    ):
        rows = np.flatnonzero(element == which)
        if declared:
            choice = rng.integers(0, len(declared), len(rows))
            feature[rows] = begin + choice
            lengths[rows] = np.array(list(declared.values()))[choice]
    return names, feature, lengths


def _random_keys(numbers: Ints, ids: Ids) -> Keys:
    return IntKeys(numbers.copy()) if ids == "int" else keys_of([f"v{i}" for i in numbers.tolist()])
