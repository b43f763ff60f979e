"""What a partitioner is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from d3gnn.types import Doubles, Ints, Ints32

_KNOWN: dict[str, type[Partitioner]] = {}


class Placement(NamedTuple):
    """What partitioners see: which parts hold a replica of a vertex, and how much the parts hold."""

    replicas: Ints32  # by vertex: its first replica, plus 1
    replica_part: Ints32
    replica_next: Ints32
    degree: Ints32  # by vertex: edges ever created at it
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
