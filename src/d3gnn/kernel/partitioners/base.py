"""What a partitioner is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from d3gnn.types import Doubles, Ints, Ints32

# Columns of `Placement.vertex`: the code of its id, its master's part and row, its first replica plus 1, and
# the number of edges ever created at it.
CODE, MASTER_PART, MASTER_ROW, FIRST_REPLICA, DEGREE = range(5)
VERTEX_FIELDS = 5
# Columns of `Placement.replica`: its part and slot, the vertex's next replica plus 1, whether it is a source.
REPLICA_PART, REPLICA_SLOT, NEXT_REPLICA, IS_SOURCE = range(4)
REPLICA_FIELDS = 4

_KNOWN: dict[str, type[Partitioner]] = {}


class Placement(NamedTuple):
    """What partitioners see: which parts hold a replica of a vertex, and how much the parts hold."""

    vertex: Ints32  # [vertex, VERTEX_FIELDS]
    replica: Ints32  # [replica, REPLICA_FIELDS]
    load: Ints  # by part: edges it holds
    score: Doubles  # by part: scratch


@dataclass(frozen=True)
class Partitioner:
    """Chooses the part of each edge as it comes (streaming vertex-cut; the paper's section 4.4).

    The choice itself is compiled: `d3gnn.kernel.partitioners.choose` calls it by `code`.
    """

    name: ClassVar[str]
    code: ClassVar[int]

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        _KNOWN[cls.name] = cls

    @property
    def weights(self) -> tuple[float, float]:
        """Two numbers that the compiled choice is given."""
        return 0.0, 0.0


def partitioner(which: str | Partitioner) -> Partitioner:
    """A partitioner by name, or itself."""
    return which if isinstance(which, Partitioner) else make_partitioner(which)


def make_partitioner(name: str, **settings: float) -> Partitioner:
    """A partitioner by name, with settings of its own."""
    if name not in _KNOWN:
        raise ValueError(f"no partitioner {name!r}; known are {', '.join(sorted(_KNOWN))}")
    return _KNOWN[name](**settings)


def partitioners() -> list[Partitioner]:
    """All partitioners there are, with their defaults."""
    return [_KNOWN[name]() for name in sorted(_KNOWN)]
