"""Hypothesis strategies for graph schemas and event streams.

Streams use few vertices, so that repeats, deletes and re-creations of the same vertices and edges are
frequent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from d3gnn.events import EdgeMode, Event, GraphSchema, Key
from d3gnn.events.limits import FIRST_REAL_CLOCK, LONGEST_ID
from d3gnn.testing.streams import Ids

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError("d3gnn.testing.strategies needs hypothesis: pip install hypothesis") from error

Draw = st.DrawFn
_T = TypeVar("_T")

#: Ids that are error-prone: negative, beyond 32 bits, empty, with a NUL, not ASCII, longer than 8 bytes.
_POOLS: dict[str, list[Key]] = {
    "int": [0, 1, 2, 3, -1, 2**40, 7, 8],
    "str": ["a", "b", "", "a\0", "é", "a much longer id than eight bytes", "0", "c"],
}

#: Kinds of events and their weights; the simplest first, because hypothesis shrinks towards it.
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
    (("recreate", "edge"), 1),
    (("recreate", "vertex"), 1),
    (("comeback", "vertex"), 1),
    (("comeback", "feature"), 1),
    (("comeback", "edge"), 1),
    (("comeback", "label"), 1),
    (("create", "query"), 2),
    (("bad", ""), 3),
]
_KINDS = [kind for kind, weight in _MIX for _ in range(weight)]


# Created once, because creating a strategy takes longer than drawing from it.
_BOOLEANS = st.booleans()
_HALVES = st.integers(-4, 4)
_KEYS = st.integers(0, 1)
_TIMES = st.integers(-5, 5)
_ORDER = st.sampled_from([None, 0, 1, 2])
_MISSING: st.SearchStrategy[Any] = st.sampled_from([None, "zero", "hash", {"x": 0.5}])


#: Lifetimes are short, and some are those of half of the events' times.
_LIFETIMES: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"ttl": 4},
        {"ttl": 1},
        {"ttl": 6, "vertex_ttl": 6},
        {"ttl": 2, "vertex_ttl": 5},
        {"ttl": "never"},
    ]
)
_OWN_LIFETIMES = st.sampled_from([None, None, 1, 3, 12])


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
    expiry: bool = False,
) -> GraphSchema:
    """Strategy for schemas of graphs with one or two vertex features.

    Args:
        edges: The edge modes to choose from.
        width: Total width of the vertex features, to fit a model; random if None.
        edge_features: Whether edges may have features.
        expiry: Whether edges expire; vertices may, too.

    Example:
        >>> from hypothesis import given
        >>> @given(schemas(edges=("simple",), width=3))
        ... def test_width(schema):
        ...     assert schema.width == 3
        >>> test_width()
    """
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
        tombstones=draw(st.sampled_from([None, None, 1, 3])),
        max_abs=draw(st.sampled_from([None, 100.0])),
        missing=draw(_MISSING),
        **(draw(_LIFETIMES) if expiry else {}),
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
    """Strategy for lists of batches of events, with repeats, late events, queries and invalid events.

    Args:
        schema: The schema of the graph.
        ids: Integer or string ids.
        max_batches: Largest number of batches.
        max_events: Largest number of drawn entries per batch; an entry is one or two events.
        n_vertices: Number of different ids, at most 8.
        bad: Whether to include queries and invalid events.

    Example:
        >>> from d3gnn.testing import OracleChecker
        >>> from d3gnn import LocalEngine
        >>> from d3gnn.nn import GraphSAGE
        >>> from hypothesis import given, settings
        >>> schema = GraphSchema(features={"x": 2})
        >>> @settings(max_examples=5)
        ... @given(event_batches(schema))
        ... def test_engine(batches):
        ...     checker = OracleChecker(LocalEngine(GraphSAGE(2, 4, 1, seed=0), schema=schema))
        ...     for batch in batches:
        ...         checker.apply(batch)
        >>> test_engine()
    """
    kinds = [kind for kind in _KINDS if bad or (kind[0] != "bad" and kind[1] != "query")]
    pool = _POOLS[ids][:n_vertices]
    entry = _entry(
        schema, pool + 2 * pool[:3], kinds
    )  # some ids more often, so that events refer to the same vertices
    batches = []
    for b, drawn in enumerate(draw(_lists(_lists(entry, max_events), max_batches))):
        events = [event for entry in drawn for event in entry]
        events = [e._replace(time=e.time + 2 * b) if isinstance(e.time, int) else e for e in events]
        events = _with_order(draw, events)
        batches.append(_with_foreign_ids(draw, events) if bad and b > 0 else events)
    return batches


def _lists(elements: st.SearchStrategy[_T], max_size: int) -> st.SearchStrategy[list[_T]]:
    """Lists that are longer on average than `st.lists`, and shrink as well."""
    return st.lists(elements, max_size=max_size) | st.lists(
        elements, min_size=max_size // 2, max_size=max_size
    )


@st.composite
def _entry(draw: Draw, schema: GraphSchema, pool: list[Key], kinds: list[tuple[str, str]]) -> list[Event]:
    """One event, a delete and a re-creation, or a delete of a vertex and an event around that time, often an
    older one, that would create it again; times are around 0.
    """
    op, element = draw(_one_of(*kinds))
    if op == "bad":
        return [draw(_one_of(*_BAD))(draw, schema, pool)]
    if op == "recreate":
        create = _event(draw, schema, pool, "create", element)
        return [create._replace(op="delete", value=None, ttl=None), create]
    if op == "comeback":
        create = _event(draw, schema, pool, "create", element)
        ends = [create.src] if create.dst is None else [create.src, create.dst]
        return [Event("delete", "vertex", draw(_one_of(*ends)), time=draw(_TIMES)), create]
    return [_event(draw, schema, pool, op, element)]


def _event(draw: Draw, schema: GraphSchema, pool: list[Key], op: str, element: str) -> Event:
    """An event that is valid if the schema allows events of its kind."""
    is_edge, is_query = element.startswith("edge"), element == "query"
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
    src, dst = draw(_one_of(*pool)), draw(_one_of(*pool)) if is_edge or is_query else None
    key = draw(_KEYS) if is_edge and schema.edges == "keyed" else None
    ttl = None
    if (op == "create" and (element == "edge" and schema.ttl)) or (element == "vertex" and schema.vertex_ttl):
        ttl = draw(_OWN_LIFETIMES)
    return Event(op, element, src, dst, key, name, value, draw(_TIMES), ttl=ttl)


def _with_order(draw: Draw, events: list[Event]) -> list[Event]:
    """Sometimes add columns that order the events differently from their rows."""
    columns = draw(
        st.sampled_from([(), (), (), ("arrival",), ("partition", "offset"), ("arrival", "offset")])
    )
    return [_changed(event, {name: draw(_ORDER) for name in columns}) for event in events]


def _with_foreign_ids(draw: Draw, events: list[Event]) -> list[Event]:
    """Sometimes convert ids or keys to the other type: whole columns, as Arrow columns have one type."""
    columns = draw(st.sampled_from([()] * 14 + [("src", "dst"), ("dst",), ("key",)]))
    return [_changed(event, {name: _foreign(getattr(event, name)) for name in columns}) for event in events]


def _changed(event: Event, changes: dict[str, Any]) -> Event:
    return event._replace(**changes)


def _foreign(key: Key | None) -> Key | None:
    if isinstance(key, str):
        return len(key)
    return None if key is None else str(key)


_BadEventFactory = Callable[[Draw, GraphSchema, list[Key]], Event]


def _bad_edge(**changes: Any) -> _BadEventFactory:
    def make(draw: Draw, schema: GraphSchema, pool: list[Key]) -> Event:
        return _event(draw, schema, pool, "create", "edge")._replace(**changes)

    return make


def _bad_query(draw: Draw, schema: GraphSchema, pool: list[Key]) -> Event:
    event = _event(draw, schema, pool, "create", "query")
    wrong = draw(st.sampled_from([("op", "delete"), ("op", "update"), ("dst", None), ("value", [1.0])]))
    return _changed(event, dict([wrong]))


def _bad_feature(**changes: Any) -> _BadEventFactory:
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


def _too_large(draw: Draw, schema: GraphSchema, pool: list[Key]) -> Event:
    """Bad where the schema has a bound on values, which is always below this one."""
    event = _event(draw, schema, pool, "create", "feature")
    return event._replace(value=[1e3] * len(event.value or ()))


def _too_far_ahead(draw: Draw, schema: GraphSchema, pool: list[Key]) -> Event:
    day = 86_400_000_000
    event = _event(draw, schema, pool, "create", "edge")
    return event._replace(time=FIRST_REAL_CLOCK + 2 * day, arrival=FIRST_REAL_CLOCK)


def _too_long(draw: Draw, schema: GraphSchema, pool: list[Key]) -> Event:
    event = _event(draw, schema, pool, "create", "edge")
    if isinstance(event.src, int):  # the ids of a batch have one type
        return event._replace(src=None)
    return event._replace(src="x" * (LONGEST_ID + 1))


def _wrong_ttl(draw: Draw, schema: GraphSchema, pool: list[Key]) -> Event:
    return _event(draw, schema, pool, "create", "edge")._replace(ttl=-1)


_BAD: list[_BadEventFactory] = [
    _bad_edge(src=None),
    _bad_edge(dst=None),
    _bad_edge(time=None),
    _bad_edge(op="destroy"),
    _bad_edge(element="hyperedge"),
    _wrong_key,
    _wrong_key,
    _wrong_key,
    _wrong_key,
    _wrong_key,
    _bad_query,
    _bad_query,
    _bad_feature(src=None),
    _bad_feature(feature="nope"),
    _bad_feature(value=None),
    _bad_feature(op="delete"),
    _wrong_width,
    _wrong_width,
    _not_finite,
    _too_large,
    _too_large,
    _too_large,
    _too_far_ahead,
    _too_long,
    _wrong_ttl,
]
