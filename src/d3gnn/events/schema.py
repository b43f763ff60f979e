"""The schema of a graph: the kind of its edges, and the features of its vertices and edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

from d3gnn.events.duration import NEVER, Duration, duration
from d3gnn.events.event import DEFAULT_FEATURE
from d3gnn.events.expiry import Expiry
from d3gnn.events.limits import UNBOUNDED, check_max_abs
from d3gnn.whole_numbers import check_whole

#: Checked events refer to their feature by an 8-bit number.
_MOST_FEATURES = 127
#: The largest number of float32.
_LARGEST = 3.4028234663852886e38

#: Fields that decide which events are accepted, and not what they mean.
_LIMITS = ("max_abs", "max_ahead")

EdgeMode = Literal["simple", "multi", "keyed", "append"]
#: The rules for missing features; the others are numbers for each feature.
MissingRule = Literal["zero", "hash"]


@dataclass(frozen=True)
class GraphSchema:
    """The graph that the events describe; checked on construction.

    edges:
        `simple`: at most one edge from u to v; creating it again is a repeat, which changes nothing.
        `multi`: every create adds a parallel edge; a delete removes the newest of them.
        `keyed`: parallel edges have different keys; creating the same (u, v, key) again is a repeat.
        `append`: like `multi`, but edges are never deleted individually, so no edge table is kept.
    directed:
        Messages follow the direction of an edge. If False, they go both ways, and (u, v) and (v, u) are the
        same edge.
    features, edge_features:
        Width of each feature, by name. The model's input is the concatenation of the vertex features in this
        order.
    label_width:
        Numbers in a label.
    tombstones:
        How long the time of a vertex delete is kept, by which older events of that vertex are late: until
        another vertex is deleted at an event time that is later by more than this. `"30d"` (s, m, h, d), a
        `timedelta`, or a number in the unit of the event times (microseconds, if they are timestamps). None:
        for ever.
    ttl:
        Lifetime of an edge after its last event, by event time: text such as `30d`, a timedelta, or an
        integer in the unit of the event times. Then the edge is deleted. `never`: only edges whose own event
        has a `ttl` expire. By default, no edge expires. See docs/expiry.md.
    vertex_ttl:
        Lifetime of a vertex after the last event of it and of its edges; at least `ttl`.
    idle:
        How far the newest event time may stay behind the clock: an idle stream expires by the clock.
    max_abs:
        Bound on the absolute value of each number in a feature or label: an event with a larger one is a
        dead letter. By default, there is none.
    max_ahead:
        How far an event time may be ahead of the event's arrival: beyond, it is a dead letter. `"1d"` (s, m,
        h, d), a `timedelta`, or a number of microseconds; None: there is no bound.

    missing:
        The model's input where a vertex lacks a feature. `zero`: zeros, the default. `hash`: numbers in
        [-1, 1) that are a function of its id; the default if no features are declared. Or numbers for each
        feature, such as the means of the data that the model was trained on: `{"x": [0.1, 2.5]}`; features
        that are left out are zero.

    >>> GraphSchema(features={"x": 8, "risk": 1}).width
    9
    >>> GraphSchema(features={"x": 2, "risk": 1}, missing={"risk": 0.5}).missing_values()
    (0.0, 0.0, 0.5)
    >>> GraphSchema(tombstones="30d").tombstones
    2592000000000
    """

    edges: EdgeMode = "simple"
    directed: bool = True
    features: Mapping[str, int] = field(default_factory=dict)
    edge_features: Mapping[str, int] = field(default_factory=dict)
    label_width: int = 1
    tombstones: Duration | None = None
    ttl: Duration | None = None
    vertex_ttl: Duration | None = None
    idle: Duration | None = None
    max_abs: float | None = None
    max_ahead: Duration | None = "1d"
    missing: MissingRule | Mapping[str, float | Sequence[float]] | None = None

    def __post_init__(self) -> None:
        if self.edges not in get_args(EdgeMode):
            raise ValueError(f"edges={self.edges!r}: choose one of {', '.join(get_args(EdgeMode))}")
        for which in ("features", "edge_features"):
            widths = dict(getattr(self, which))
            if len(widths) > _MOST_FEATURES:
                raise ValueError(f"{which}: {len(widths)} are declared; at most {_MOST_FEATURES} are allowed")
            for name, width in widths.items():
                if not name or not isinstance(width, int) or width < 1:
                    raise ValueError(f"{which}[{name!r}]={width!r}: give a name and a width of at least 1")
            object.__setattr__(self, which, MappingProxyType(widths))
        if self.edges == "append" and self.edge_features:
            raise ValueError("edges='append' keeps no edge table, so its edges cannot have features")
        check_whole("label_width", self.label_width)
        if self.tombstones is not None:
            object.__setattr__(self, "tombstones", duration("tombstones", self.tombstones))
        self._check_expiry()
        self._check_limits()
        object.__setattr__(self, "missing", _checked_missing(self.missing, self.features))

    @property
    def width(self) -> int:
        """Width of the model's input: the sum over all vertex features."""
        return sum(self.features.values())

    @property
    def keep_deletes(self) -> int:
        """`tombstones` as an integer; -1: for ever."""
        return self.tombstones if isinstance(self.tombstones, int) else -1

    @property
    def expiry(self) -> Expiry | None:
        """The lifetimes as integers; None if nothing expires."""
        return None if self.ttl is None else Expiry(self.ttl, self.vertex_ttl, self.idle)  # type: ignore[arg-type]

    @property
    def longest_ahead(self) -> int:
        """`max_ahead` in microseconds."""
        assert isinstance(self.max_ahead, int)
        return self.max_ahead

    def _check_limits(self) -> None:
        if self.max_abs is not None:
            object.__setattr__(self, "max_abs", check_max_abs(self.max_abs))
        bounded = self.max_ahead not in (None, UNBOUNDED)
        ahead = duration("max_ahead", self.max_ahead, least=0) if bounded else UNBOUNDED
        object.__setattr__(self, "max_ahead", ahead)

    def _check_expiry(self) -> None:
        for name in ("ttl", "vertex_ttl", "idle"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, duration(name, given, never=name == "ttl"))
                if self.ttl is None:
                    raise ValueError(f"{name}={given!r} needs ttl=: without it, no edge expires")
        if self.ttl is None:
            return
        if self.edges == "append":
            raise ValueError(
                "edges='append' keeps no edge table, so its edges cannot expire: use edges='multi', or no ttl"
            )
        _, vertex_ttl, _ = self.expiry or Expiry(0)
        lifetime = "never" if self.ttl == NEVER else self.ttl
        if vertex_ttl is not None and vertex_ttl < self.ttl:  # type: ignore[operator]  # integers by now
            raise ValueError(
                f"vertex_ttl={vertex_ttl}: must be at least the ttl of edges ({lifetime}), since a vertex "
                "must not expire before its edges"
            )

    @property
    def rule(self) -> MissingRule | Mapping[str, Any]:
        """The rule for missing features, also if none was given."""
        return self.missing or ("zero" if self.features else "hash")

    def missing_values(self) -> tuple[float, ...] | None:
        """The model's input for a vertex without features; None for `hash`, which depends on its id."""
        if self.rule == "hash":
            return None
        given: Mapping[str, Any] = self.rule if isinstance(self.rule, Mapping) else {}
        return tuple(x for name, width in self.features.items() for x in given.get(name, (0.0,) * width))

    def for_model(self, in_width: int, edge_dim: int = 0) -> GraphSchema:
        """This schema; if it declares no vertex feature, with one feature `x` as wide as the model's input.

        `edge_dim` is the width of the model's edge input, which the edge features must add up to.
        """
        on_edges = sum(self.edge_features.values())
        if edge_dim and on_edges != edge_dim:
            raise ValueError(
                f"the model takes {edge_dim} numbers per edge, the schema's edge features have {on_edges}; "
                f"declare them, as in GraphSchema(edge_features={{'w': {edge_dim}}})"
            )
        if not self.features:
            return replace(self, features={DEFAULT_FEATURE: in_width}, missing=self.missing or "hash")
        if self.width != in_width:
            widths = ", ".join(f"{name} ({width})" for name, width in self.features.items())
            raise ValueError(
                f"the model takes {in_width} inputs, but the schema's vertex features are {self.width} wide "
                f"in total: {widths}. Declare features whose widths add up to {in_width}."
            )
        return self

    def __eq__(self, other: object) -> bool:
        # The order of features matters: it is the order of the model's input.
        return isinstance(other, GraphSchema) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[Any, ...]:
        values = (vars(self) | {"missing": self.rule}).values()
        return tuple(tuple(v.items()) if isinstance(v, Mapping) else v for v in values)

    def to_dict(self, *, limits: bool = True) -> dict[str, Any]:
        """Plain values for JSON; `GraphSchema(**d)` is the inverse.

        Without `limits`, `max_abs` and `max_ahead` are left out: they may change while a store lives.
        """
        values = vars(self) | ({"missing": self.rule} if self.features else {})
        plain = {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}
        # What is not set is left out, too: a store that is older than a setting has the same schema.
        return {k: v for k, v in plain.items() if v is not None and (limits or k not in _LIMITS)}

    def __reduce__(self) -> Any:
        return _from_dict, (self.to_dict(),)


def _checked_missing(missing: Any, features: Mapping[str, int]) -> Any:
    """The rule for missing features; numbers as one tuple for each feature, in the order of the features."""
    if missing is None or missing in get_args(MissingRule):
        return missing
    if missing == "mean":
        raise ValueError(
            "missing='mean': a mean over the stream would change with every event, and with it the embedding "
            "of each vertex without features. Fix the numbers, as in missing={'x': [0.1, 2.5]}; "
            "GraphLog.feature_means() computes them from a graph log, and d3gnn fork --missing mean does so "
            "for a new store"
        )
    if missing == "drop":
        raise ValueError(
            "missing='drop': leaving out vertices until they have features would cost a search through all "
            "edges when the features come. Let edges wait in the stream before, in a join with the features "
            "of both ends (docs/events.md#missing-features); or give numbers, as in missing={'x': [0.1, 2.5]}"
        )
    if not isinstance(missing, Mapping):
        rules = ", ".join(get_args(MissingRule))
        raise ValueError(f"missing={missing!r}: choose {rules}, or give numbers for each feature")
    checked: dict[str, tuple[float, ...]] = {}
    for name, given in missing.items():
        if name not in features:
            declared = ", ".join(features) or "no feature"
            raise ValueError(f"missing[{name!r}]: the schema declares {declared}")
        numbers = (given,) * features[name] if isinstance(given, int | float) else tuple(given)
        if len(numbers) != features[name] or not all(_is_finite(x) for x in numbers):
            raise ValueError(
                f"missing[{name!r}]={given!r}: must be {features[name]} finite numbers, or one for all"
            )
        checked[name] = tuple(map(float, numbers))
    return MappingProxyType({name: checked[name] for name in features if name in checked})


def _is_finite(x: Any) -> bool:
    """Whether it is a number that float32 can hold."""
    return isinstance(x, int | float) and abs(x) <= _LARGEST


def _from_dict(plain: dict[str, Any]) -> GraphSchema:
    return GraphSchema(**plain)
