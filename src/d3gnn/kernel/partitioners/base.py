"""The interface of partitioners, and their registry."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, NamedTuple

import numpy as np

from d3gnn.kernel.compiled import inlined
from d3gnn.registry import is_skeleton, register
from d3gnn.types import Doubles, Ints, Ints32

# Columns of `Placement.vertex`: the code of the id, part and row of the master, first replica plus 1,
# number of edges ever created here.
CODE, MASTER_PART, MASTER_ROW, FIRST_REPLICA, DEGREE = range(5)
VERTEX_FIELDS = 5
# Columns of `Placement.replica`: part, slot, the vertex's next replica plus 1, whether it is a source.
REPLICA_PART, REPLICA_SLOT, NEXT_REPLICA, IS_SOURCE = range(4)
REPLICA_FIELDS = 4
# Places in `Placement.totals`: vertices and replicas created since the last rebuild; vertices that exist, and
# those of them that lack a feature; edges of the graph that an offline partitioner has planned.
VERTEX_COUNT, REPLICA_COUNT, LIVE_COUNT, LACKING_COUNT, PLANNED_EDGES = range(5)
TOTALS = 5

#: The settings of a partitioner as compiled code receives them: its fields, in order.
Settings = tuple[float, ...]

_REGISTRY: dict[str, type[Partitioner]] = {}


class Placement(NamedTuple):
    """Where replicas are, and how many edges each part holds."""

    vertex: Ints32  # [vertex, VERTEX_FIELDS]
    replica: Ints32  # [replica, REPLICA_FIELDS]
    load: Ints  # by part: number of edges
    masters: Ints  # by part: number of masters
    totals: Ints  # [VERTEX_COUNT ... PLANNED_EDGES]
    planned: Ints32  # by code of the id: its planned part plus 1; shorter, or empty, without a plan
    score: Doubles  # by part: scratch space


@inlined
def choose(
    u: int, v: int, hash_u: np.uint64, hash_v: np.uint64, placement: Placement, settings: Settings
) -> int:
    """The step that a compiled loop calls, and that `specialised` replaces by a partitioner's `choose`."""
    return 0


@inlined
def place(v: int, hash_v: np.uint64, neighbours: int, placement: Placement, settings: Settings) -> int:
    """The step that a compiled loop calls for a vertex without edges: by default, its hash decides."""
    return int(hash_v % np.uint64(len(placement.load)))


@dataclass(frozen=True)
class Partitioner:
    """Chooses a part for each new edge of a stream: a streaming vertex-cut (section 4.4 of the paper).

    A partitioner is one subclass, a frozen dataclass with a `name` and a compiled `choose`. Its fields are
    its settings, which must be numbers. Defining the class registers it. Two more steps are optional: `place`
    for vertices that an event creates before their edges, and `plan` for offline partitioners.

    >>> @dataclass(frozen=True)
    ... class LeastLoaded(Partitioner):
    ...     name = "least-loaded"
    ...
    ...     @staticmethod
    ...     @inlined
    ...     def choose(u, v, hash_u, hash_v, placement, settings):
    ...         best = 0
    ...         for part in range(len(placement.load)):
    ...             if placement.load[part] < placement.load[best]:
    ...                 best = part
    ...         return best
    >>> partitioner("least-loaded")
    LeastLoaded()
    >>> del _REGISTRY["least-loaded"]
    """

    name: ClassVar[str]
    #: Whether `plan` is called.
    offline: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if is_skeleton(cls):
            return
        if not hasattr(cls, "name"):
            raise TypeError(f"partitioner {cls.__name__}: define a class attribute 'name'")
        if not hasattr(cls.choose, "py_func"):
            raise TypeError(
                f"partitioner {cls.__name__}: define 'choose', decorated with @staticmethod and @inlined"
            )
        register(_REGISTRY, cls.name, cls, "partitioner")

    @staticmethod
    def choose(
        u: int, v: int, hash_u: np.uint64, hash_v: np.uint64, placement: Placement, settings: Settings
    ) -> int:
        """The part, from 0 to `len(placement.load) - 1`, of a new edge from vertex `u` to vertex `v`.

        It is compiled into the loop over events, which calls it in their order, and only with two parts or
        more. The same calls must return the same parts. Of `placement`, only `score` may be changed.
        """
        raise NotImplementedError

    #: `place(v, hash_v, neighbours, placement, settings)`: the part of the master of a new vertex that an
    #: event creates; one that an edge creates has the part of the edge. `neighbours` is the number of known
    #: vertices to which the event has edges; if it is not 0, `placement.score` has them by the part of their
    #: master.
    place = staticmethod(place)

    def plan(self, src: Ints32, dst: Ints32, vertices: int, parts: int) -> Ints32:
        """The part of each vertex of a graph with these edges, whose ends are numbered from 0.

        If `offline`, it is called once for an empty graph: for the edges of its first batch, or for all edges
        of a store that is partitioned again. `choose` finds the result in `placement.planned`.
        """
        raise NotImplementedError

    @property
    def settings(self) -> Settings:
        """The fields in order, for `choose`."""
        return tuple(float(getattr(self, field.name)) for field in fields(self))


def partitioner(which: str | Partitioner) -> Partitioner:
    """A partitioner by name, with its defaults; an instance is returned as it is."""
    return which if isinstance(which, Partitioner) else make_partitioner(which)


def make_partitioner(name: str, **settings: float) -> Partitioner:
    """A partitioner by name, with these settings."""
    if name not in _REGISTRY:
        raise ValueError(f"no partitioner {name!r}; known are {', '.join(sorted(_REGISTRY))}")
    return _REGISTRY[name](**settings)


def partitioners() -> list[Partitioner]:
    """All registered partitioners, with their defaults."""
    return [_REGISTRY[name]() for name in sorted(_REGISTRY)]
