"""Streams of events that look for trouble: few vertices, so that repeats, deletes and re-creations meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Literal, TypeVar

import numpy as np
from hypothesis import strategies as st

from d3gnn.events import EdgeMode, Element, Event, EventBatch, GraphSchema, IntKeys, Key, Keys, Op, keys_of
from d3gnn.types import Array, Ints

Ids = Literal["int", "str"]
Draw = st.DrawFn
_T = TypeVar("_T")

#: Ids that have gone wrong elsewhere: negative, beyond 32 bits, empty, with a NUL, outside ASCII.
_POOLS: dict[str, list[Key]] = {
    "int": [0, 1, 2, 3, -1, 2**40, 7, 8],
    "str": ["a", "b", "", "a\0", "é", "a much longer id than eight bytes", "0", "c"],
}

#: What a stream is made of, and how often; the simplest first, since hypothesis shrinks towards it.
_MIX: list[tuple[tuple[str, str], int]] = [
    (("create", "edge"), 12),
    (("delete", "edge"), 4),
    (("create", "vertex"), 2),
    (("delete", "vertex"), 2),
    (("create", "feature"), 4),
    (("update", "feature"), 2),
    (("delete", "feature"), 1),
    (("update", "vertex"), 1),
    (("update", "edge"), 1),
    (("create", "edge_feature"), 1),
    (("update", "edge_feature"), 1),
    (("delete", "edge_feature"), 1),
    (("create", "label"), 1),
    (("update", "label"), 1),
    (("delete", "label"), 1),
    (("again", "edge"), 1),
    (("again", "vertex"), 1),
    (("create", "query"), 2),
    (("bad", ""), 3),
]
_KINDS = [kind for kind, times in _MIX for _ in range(times)]


# Made once, since making a strategy takes longer than drawing from it.
_BOOLEANS = st.booleans()
_HALVES = st.integers(-4, 4)
_KEYS = st.integers(0, 1)
_TIMES = st.integers(-5, 5)
_ORDER = st.sampled_from([None, 0, 1, 2])


@cache
def _one_of(*choices: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(choices)


@st.composite
def schemas(
    draw: Draw,
    *,
    edges: tuple[EdgeMode, ...] = ("simple", "multi", "keyed", "append"),
    width: int | None = None,
    edge_features: bool = True,
) -> GraphSchema:
    """Graphs of every kind, with one or two features; `width` fixes their width together, for a model."""
    mode = draw(st.sampled_from(edges))
    total = width or draw(st.integers(1, 4))
    first = draw(st.integers(1, total))
    features = {"x": first} if first == total else {"x": first, "y": total - first}
    on_edges: dict[str, int] = {}
    if edge_features and mode != "append":
        on_edges = draw(st.sampled_from([{}, {"w": 1}, {"x": 2, "w": 1}]))
    return GraphSchema(
        edges=mode,
        directed=draw(st.sampled_from([True, False])),
        features=features,
        edge_features=on_edges,
        label_width=draw(st.integers(1, 2)),
    )


@st.composite
def event_batches(
    draw: Draw,
    schema: GraphSchema,
    ids: Ids = "int",
    *,
    max_batches: int = 5,
    max_events: int = 12,
    n_vertices: int = 6,
    bad: bool = True,
) -> list[list[Event]]:
    """Batches of events for this schema, with repeats, late events and, unless `bad` is off, queries and bad
    ones.
    """
    kinds = [kind for kind in _KINDS if bad or (kind[0] != "bad" and kind[1] != "query")]
    pool = _POOLS[ids][:n_vertices]
    entry = _entry(schema, pool + 2 * pool[:3], kinds)  # some ids more often, so that events meet
    batches = []
    for b, drawn in enumerate(draw(_lists(_lists(entry, max_events), max_batches))):
        events = [event for entry in drawn for event in entry]
        events = [e if e.time is None else e._replace(time=e.time + 2 * b) for e in events]
        events = _with_order(draw, events)
        batches.append(_with_foreign_ids(draw, events) if bad and b > 0 else events)
    return batches


def _lists(elements: st.SearchStrategy[_T], most: int) -> st.SearchStrategy[list[_T]]:
    """Lists that are long more often than hypothesis makes them by itself, and shrink as well."""
    return st.lists(elements, max_size=most) | st.lists(elements, min_size=most // 2, max_size=most)


@st.composite
def _entry(draw: Draw, schema: GraphSchema, pool: list[Key], kinds: list[tuple[str, str]]) -> list[Event]:
    """One event, or two that belong together; times are around 0."""
    op, element = draw(_one_of(*kinds))
    if op == "bad":
        return [draw(_one_of(*_BAD))(draw, schema, pool)]
    if op == "again":
        last = _event(draw, schema, pool, "create", element)
        return [last._replace(op="delete", value=None), last]
    return [_event(draw, schema, pool, op, element)]


def _event(draw: Draw, schema: GraphSchema, pool: list[Key], op: str, element: str) -> Event:
    """An event that is good in itself wherever the schema allows such events."""
    is_edge, asks = element.startswith("edge"), element == "query"
    widths: Mapping[str, int] = schema.edge_features if is_edge else schema.features
    name, width = None, schema.label_width if element == "label" else 0
    if element not in ("label", "query") and widths:
        name = draw(_one_of(*widths, *([None] if "x" in widths else [])))
        width = widths[name or "x"]
    value = None
    needs_value = element not in ("vertex", "edge") or op == "update"
    if width and op != "delete" and (needs_value or draw(_BOOLEANS)):
        first = draw(_HALVES)
        value = [first / 2 + j for j in range(width)]
    src, dst = draw(_one_of(*pool)), draw(_one_of(*pool)) if is_edge or asks else None
    key = draw(_KEYS) if is_edge and schema.edges == "keyed" else None
    return Event(op, element, src, dst, key, name, value, draw(_TIMES))


def _with_order(draw: Draw, events: list[Event]) -> list[Event]:
    """Now and then, columns that order the events otherwise than their rows do."""
    columns = draw(
        st.sampled_from([(), (), (), ("arrival",), ("partition", "offset"), ("arrival", "offset")])
    )
    return [_changed(event, {name: draw(_ORDER) for name in columns}) for event in events]


def _with_foreign_ids(draw: Draw, events: list[Event]) -> list[Event]:
    """Now and then, ids or keys of the other type, in whole columns: Arrow has no other kind."""
    columns = draw(st.sampled_from([()] * 14 + [("src", "dst"), ("dst",), ("key",)]))
    return [_changed(event, {name: _foreign(getattr(event, name)) for name in columns}) for event in events]


def _changed(event: Event, changes: dict[str, Any]) -> Event:
    return event._replace(**changes)


def _foreign(key: Key | None) -> Key | None:
    if isinstance(key, str):
        return len(key)
    return None if key is None else str(key)


_MakeBad = Callable[[Draw, GraphSchema, list[Key]], Event]


def _bad_edge(**changes: Any) -> _MakeBad:
    def make(draw: Draw, schema: GraphSchema, pool: list[Key]) -> Event:
        return _event(draw, schema, pool, "create", "edge")._replace(**changes)

    return make


def _bad_query(draw: Draw, schema: GraphSchema, pool: list[Key]) -> Event:
    event = _event(draw, schema, pool, "create", "query")
    wrong = draw(st.sampled_from([("op", "delete"), ("op", "update"), ("dst", None), ("value", [1.0])]))
    return _changed(event, dict([wrong]))


def _bad_feature(**changes: Any) -> _MakeBad:
    def make(draw: Draw, schema: GraphSchema, pool: list[Key]) -> Event:
        return _event(draw, schema, pool, "create", "feature")._replace(**changes)

    return make


def _wrong_width(draw: Draw, schema: GraphSchema, pool: list[Key]) -> Event:
    event = _event(draw, schema, pool, draw(_one_of("create", "update")), "feature")
    return event._replace(value=[*(event.value or []), 1.0])


def _not_finite(draw: Draw, schema: GraphSchema, pool: list[Key]) -> Event:
    event = _event(draw, schema, pool, "create", draw(st.sampled_from(["feature", "label"])))
    worst = draw(st.sampled_from([float("nan"), float("inf"), -float("inf"), 1e39]))
    return event._replace(value=[*(event.value or [])[1:], worst])


def _wrong_key(draw: Draw, schema: GraphSchema, pool: list[Key]) -> Event:
    event = _event(draw, schema, pool, draw(_one_of("create", "delete")), "edge")
    return event._replace(key=None if schema.edges == "keyed" else 0)


_BAD: list[_MakeBad] = [
    _bad_edge(src=None),
    _bad_edge(dst=None),
    _bad_edge(time=None),
    _bad_edge(op="destroy"),
    _bad_edge(element="hyperedge"),
    _wrong_key,
    _wrong_key,
    _bad_query,
    _bad_query,
    _bad_feature(src=None),
    _bad_feature(feature="nope"),
    _bad_feature(value=None),
    _bad_feature(op="delete"),
    _wrong_width,
    _not_finite,
]


def positive(events: EventBatch | Iterable[Event]) -> EventBatch:
    """The same events with values above 0, of which degrees can be made."""
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
    """A larger stream with the same troubles, from a seed: mostly edges, some of whose ends are hubs.

    The fractions say how many of the events delete an edge, delete a vertex, set a feature of a vertex or of
    an edge, come late, or are bad; all others create edges.

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
        raise ValueError(f"the fractions add up to {1 - shares[0]:g}: at most 1, please")
    made = np.zeros((0, 3), np.int64)  # source, destination and key of every edge created so far
    batches = []
    for b in range(n_batches):
        kind = rng.choice(len(kinds), batch_size, p=shares)
        element = np.array([e for _, e, _ in kinds], np.int8)[kind]
        op = np.array([o for o, _, _ in kinds], np.int8)[kind]
        ends = (n_vertices * rng.random((batch_size, 2)) ** 2).astype(np.int64)  # the square makes hubs
        edges = np.column_stack([ends, rng.integers(0, 3, batch_size)])
        made = np.concatenate([made, edges[kind == 0]])
        old = np.isin(kind, (1, 4))
        if len(made):
            edges[old] = made[rng.integers(0, len(made), int(old.sum()))]
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
    """Names, which of them each event is about, and how many values it brings."""
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
