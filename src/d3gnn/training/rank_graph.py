"""The parts of one rank side by side: masters of all of them in one matrix, edges in compressed rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from d3gnn.kernel.csr import Csr, Edges, both_ways, over_rows
from d3gnn.kernel.csr.extremes import best_rows
from d3gnn.kernel.csr.sums import sum_rows
from d3gnn.training.halo import Halo
from d3gnn.training.part_graph import Labels, PartGraph
from d3gnn.training.ranks import Ranks
from d3gnn.types import Floats, Hashes, Ints, Ints32

_RANK_BITS = 40


@dataclass
class LayerEdges:
    """The edges that a layer reads, between rows of two halos."""

    sources: Halo  # rows of values
    destinations: Halo  # rows of partial aggregates
    edges: Edges
    #: By edge, NaN where it lacks a number.
    features: Floats
    #: By destination, its row of values; only for layers that read destinations.
    place: Ints32
    #: By master [masters, 1]: the number of its messages.
    count: Tensor

    @cached_property
    def per_message(self) -> Tensor:
        """By master [masters, 1]: 1 over the number of its messages."""
        return self.count.clamp(min=1.0).reciprocal()

    @cached_property
    def ends(self) -> tuple[Tensor, Tensor]:
        """By edge, the rows of values of source and destination."""
        row = np.repeat(np.arange(self.edges.into.rows), np.diff(self.edges.into.ends))
        return torch.from_numpy(self.edges.into.other.astype(np.int64)), torch.from_numpy(
            self.place[row].astype(np.int64)
        )

    @cached_property
    def masters(self) -> tuple[Tensor, Tensor]:
        """By edge, the row of values of its source, and the number of the destination's master.

        Only where all masters are in this rank.
        """
        row = np.repeat(np.arange(self.edges.into.rows), np.diff(self.edges.into.ends))
        source = torch.from_numpy(self.edges.into.other.astype(np.int64))
        return source, self.destinations.index[torch.from_numpy(row)]

    @cached_property
    def by_edge(self) -> Edges:
        """The same destinations, where each edge has a row of its own instead of its source's."""
        n = len(self.edges.into.other)
        number = np.arange(n, dtype=np.int32)
        row = np.repeat(np.arange(self.edges.into.rows, dtype=np.int32), np.diff(self.edges.into.ends))
        into = Csr(self.edges.into.ends, number, number)
        return Edges(into, Csr(np.arange(n + 1, dtype=np.int64), row, number))


class RankGraph:
    """What one rank computes with. All ranks must build theirs at the same time."""

    def __init__(self, parts: Sequence[PartGraph], ranks: Ranks) -> None:
        self.ranks, self.parts = ranks, [each.part for each in parts]
        masters = [len(each.x) for each in parts]
        self.masters = sum(masters)
        first = np.concatenate([[0], np.cumsum(masters)]).astype(np.int64)
        self.x = torch.from_numpy(np.concatenate([each.x for each in parts]))
        self.hashes: Hashes = np.concatenate([each.hashes for each in parts])
        self._place = _places(ranks, self.parts, first[:-1])
        self._alone = ranks.size == 1 and len(parts) == 1
        # An end of an edge: rank and number of its master there; and the part that holds the edge.
        src, dst, holder = [], [], []
        for i, each in enumerate(parts):
            rank, begin = self._place[:, each.home_part]
            home = (rank << _RANK_BITS) + begin + each.home
            src.append(home[each.src])
            dst.append(home[each.dst])
            holder.append(np.full(len(each.src), i, np.int64))
        self._src, self._dst, self._holder = (np.concatenate(column) for column in (src, dst, holder))
        self._features = np.concatenate([each.edge_features for each in parts])
        self._made: dict[tuple[bool, bool], LayerEdges] = {}
        self._degrees: dict[bool, Tensor] = {}

    def own(self, labels: Labels) -> tuple[Ints, Ints]:
        """The labels whose masters are in this rank: their rows, and numbers of the masters."""
        rank, begin = self._place[:, labels.part]
        rows = np.flatnonzero(rank == self.ranks.rank)
        return rows, begin[rows] + labels.master[rows]

    def edges(self, *, loops: bool, reads_destination: bool) -> LayerEdges:
        """The edges of a layer; without `loops`, those from a vertex to itself are left out."""
        kind = loops, reads_destination
        if kind not in self._made:
            self._made[kind] = self._make(*kind)
        return self._made[kind]

    def _make(self, loops: bool, reads_destination: bool) -> LayerEdges:
        src, dst, holder, features = self._src, self._dst, self._holder, self._features
        if not loops:
            kept = np.flatnonzero(src != dst)
            src, dst, holder, features = src[kept], dst[kept], holder[kept], features[kept]
        if self._alone:
            every = np.arange(self.masters, dtype=np.int64)
            halo = self.halo(every)
            sources, destinations = halo, halo
            source, destination, place = src.astype(np.int32), dst.astype(np.int32), every.astype(np.int32)
        else:
            # Each part has rows of its own, as it has replicas of its own.
            used = np.stack([src, holder]), np.stack([dst, holder])
            if reads_destination:
                rows, number = _distinct(np.concatenate(used, 1))
                source = number[: len(src)]
            else:
                rows, source = _distinct(used[0])
            sources = self.halo(rows[0])
            own, destination = _distinct(used[1])
            destinations = self.halo(own[0])
            place = np.zeros(own.shape[1], np.int32)
            if reads_destination:
                place[destination] = number[len(src) :]
        edges, order = both_ways(source, destination, sources.rows, destinations.rows)
        counts = torch.from_numpy(np.diff(edges.into.ends).astype(np.float32)).unsqueeze(1)
        count = destinations.to_masters(counts)
        return LayerEdges(sources, destinations, edges, features[order], place, count)

    def key(self, rank: int, master: Ints) -> Ints:
        """What identifies masters among those of all ranks, in the order of ranks."""
        return (rank << _RANK_BITS) + master

    def halo(self, key: Ints) -> Halo:
        """Copies of these masters, given in order. All ranks must ask for theirs at the same time."""
        return Halo(self.ranks, key >> _RANK_BITS, key & ((1 << _RANK_BITS) - 1), self.masters)

    def degrees(self, weighted: bool) -> Tensor:
        """By master: the degree as `d3gnn.nn.layer.DEGREE_WIDTH` describes it."""
        if weighted not in self._degrees:
            self._degrees[weighted] = self._count_degrees(weighted)
        return self._degrees[weighted]

    def _count_degrees(self, weighted: bool) -> Tensor:
        made = self.edges(loops=True, reads_destination=True)
        into = made.edges.into
        n = len(into.other)
        source, destination = (end.numpy() for end in made.ends)
        # Rows of values are those of a part: both ends of a loop are the same row.
        loop = source == destination
        weight = np.ones(n, np.float32)
        if weighted:
            weight = np.nan_to_num(made.features[:, 0], nan=1.0, copy=True)
        sums = np.stack([np.where(loop, 0, weight), np.where(loop, weight, 0), loop], 1).astype(np.float32)
        number = np.arange(n, dtype=np.int32)
        rows = Csr(into.ends, number, number)
        partial, none = np.empty((rows.rows, 3), np.float32), np.zeros(0, np.float32)
        over_rows(sum_rows, rows, 3, none, sums, partial)
        heaviest = np.where(loop, weight, -np.inf).astype(np.float32)[:, None]
        best = np.empty((rows.rows, 1), np.float32)
        over_rows(best_rows, rows, 1, none, heaviest, np.float32(1.0), best)
        total = made.destinations.to_masters(torch.from_numpy(partial))
        largest = made.destinations.best(torch.from_numpy(best)).clamp(min=0.0)
        return torch.cat([total[:, :2], largest, total[:, 2:]], 1)


def _distinct(pairs: Ints) -> tuple[Ints, Ints32]:
    """Distinct columns of (master, part), in order, and which of them each given one is."""
    parts = int(pairs[1].max(initial=0)) + 1
    assert pairs.shape[1] == 0 or int(pairs[0].max()) < 2**62 // parts
    rows, number = np.unique(pairs[0] * parts + pairs[1], return_inverse=True)
    return np.stack([rows // parts, rows % parts]), number.astype(np.int32)


def _places(ranks: Ranks, parts: Sequence[int], first: Ints) -> Ints:
    """By part: its rank, and the number of its first master there."""
    own = torch.from_numpy(np.stack([np.array(parts, np.int64), first], 1))
    every = ranks.join(own)
    place = np.zeros((2, sum(map(len, every))), np.int64)
    for rank, rows in enumerate(every):
        part, begin = rows.numpy().T
        place[0, part], place[1, part] = rank, begin
    return place
