"""METIS: an offline partitioner plans the parts of vertices, edges follow (Karypis and Kumar, 1998)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.partitioners.base import (
    CODE,
    FIRST_REPLICA,
    MASTER_PART,
    Partitioner,
    Placement,
    Settings,
)
from d3gnn.kernel.partitioners.ends import part_of_an_end
from d3gnn.types import Ints32


@dataclass(frozen=True)
class METIS(Partitioner):
    """Plans the first batch of a graph, or a whole store that is partitioned again; the rest streams in.

    METIS divides the vertices of the planned graph, weighted by their degrees, so that few edges have ends in
    two parts. An edge goes to the part of one of its ends: the planned one, or that of the master of a vertex
    without a plan. Needs pymetis: `pip install 'd3gnn[metis]'`.

    slack:
        A part with this many times its share of the edges is full, and gets no more until the others follow.
    """

    slack: float = 1.1
    name = "metis"
    offline = True

    def __post_init__(self) -> None:
        if not self.slack >= 1:
            raise ValueError(f"METIS(slack={self.slack}): must be at least 1")

    @staticmethod
    @inlined
    def choose(
        u: int, v: int, hash_u: np.uint64, hash_v: np.uint64, placement: Placement, settings: Settings
    ) -> int:
        part_u, part_v = _part_of(u, placement), _part_of(v, placement)
        return int(np.int64(part_of_an_end(u, v, part_u, part_v, settings[0], placement)))

    @staticmethod
    @inlined
    def place(v: int, hash_v: np.uint64, neighbours: int, placement: Placement, settings: Settings) -> int:
        part = _part_of(v, placement)
        return part if part >= 0 else int(hash_v % np.uint64(len(placement.load)))

    def plan(self, src: Ints32, dst: Ints32, vertices: int, parts: int) -> Ints32:
        """The part of each vertex; parallel edges count once for the cut, and all for the balance."""
        try:
            import pymetis
        except ImportError as error:
            raise ImportError("the partitioner 'metis' needs pymetis: pip install 'd3gnn[metis]'") from error
        weights = np.bincount(src, minlength=vertices) + np.bincount(dst, minlength=vertices)
        one, two = src.astype(np.int64), dst.astype(np.int64)
        pairs = np.unique(
            np.concatenate((one * vertices + two, two * vertices + one))[np.tile(src != dst, 2)]
        )
        begins = np.zeros(vertices + 1, np.int64)
        np.cumsum(np.bincount(pairs // vertices, minlength=vertices), out=begins[1:])
        _, part = pymetis.part_graph(
            parts,
            pymetis.CSRAdjacency(begins.astype(np.int32), (pairs % vertices).astype(np.int32)),
            vweights=np.maximum(weights, 1).astype(np.int32),
            recursive=False,
            options=pymetis.Options(seed=0),
        )
        return np.asarray(part, np.int32)


@inlined
def _part_of(v: int, placement: Placement) -> int:
    """The planned part of a vertex, or that of its master; -1 if it has neither."""
    vertex, planned = placement.vertex, placement.planned
    code = vertex[v, CODE]
    if code < len(planned) and planned[code] > 0:
        return planned[code] - 1  # type: ignore[no-any-return]
    return vertex[v, MASTER_PART] if vertex[v, FIRST_REPLICA] > 0 else -1
