"""The events of a synthetic stream, chunk by chunk, from one random number generator."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from d3gnn.events import Element, EventBatch, Op
from d3gnn.events.event import NO_TIME
from d3gnn.events.keys import IntKeys
from d3gnn.types import Array, Bools, Doubles, Floats, Ints

if TYPE_CHECKING:
    from d3gnn.sources.synthetic import SyntheticStream

#: The most further edges after which an edge is deleted; edges to be deleted are kept in memory.
_LONGEST_LIFE = 1 << 20
_BEGINNING = 1_700_000_000_000_000
_GAP = 100_000.0  # microseconds between edges, on average
_BURST = 256  # edges in a burst
_BURST_HASTE = 100.0
_LATENESS = 5_000_000.0
#: Exponents of a uniform number that favour old vertices, so that degrees follow power laws.
_SOURCE_BEND, _TARGET_BEND = 1.5, 2.5
_INSIDE = 0.9  # share of the edges of a community that stay in it
_HUB_SHARE = 0.5
#: Probabilities of the quarters of the adjacency matrix in each step of R-MAT: both ends in the older half,
#: only the source, only the destination, neither.
_RMAT_QUARTERS = (0.57, 0.19, 0.19, 0.05)
_MOVES = 0.05  # share of the feature updates that look like another community
_NOISE = 0.3
_BAD_NAME = "unheard-of"


class Rows(NamedTuple):
    """Events of one kind, with their positions among the edges; an id of -1 is null."""

    at: Doubles
    op: Array
    element: Array
    src: Ints
    dst: Ints
    #: Numbers in the value of each event; those with a value have a row in `values`, padded on the right.
    width: Ints
    values: Floats
    timeless: Bools
    misnamed: Bools


class ChunkMaker:
    """Makes chunks in order; keeps the state from one to the next."""

    def __init__(self, stream: SyntheticStream) -> None:
        self.stream, self.rng = stream, np.random.default_rng(stream.seed)
        self.clock = float(_BEGINNING)
        groups = min(stream.communities, stream.vertices)
        self.centres = np.random.default_rng([stream.seed, 1]).normal(size=(groups, stream.feature_width))
        self.doomed = (np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))
        capped = stream.shape == "capped"
        self.outs, self.ins = (np.zeros(stream.vertices if capped else 0, np.int32) for _ in range(2))

    def chunk(self, first: int, n: int) -> EventBatch:
        """The n edges from number `first` on, and all other events between them."""
        stream, rng = self.stream, self.rng
        self.first = first
        number = np.arange(first, first + n)
        # Vertices that exist with each edge. Where the count rises, the edge brings a new one.
        known = 2 + number * (stream.vertices - 2) // max(1, stream.edges - 1)
        before = 2 + np.maximum(number - 1, 0) * (stream.vertices - 2) // max(1, stream.edges - 1)
        brings = known > before
        window, heads = np.arange(n) // _BURST, known[::_BURST]
        bursts = (rng.random(len(heads)) < stream.bursts)[window]
        src, dst = self._ends(known, brings)
        if stream.bursts and stream.shape != "capped":
            crowd = (rng.random(len(heads)) * heads).astype(np.int64)[window]
            joins = bursts & ~brings & (crowd != src) & (rng.random(n) < 0.5)
            dst = np.where(joins, crowd, dst)
        times = self.clock + np.cumsum(
            np.append(0.0, rng.exponential(_GAP, n) / np.where(bursts, _BURST_HASTE, 1.0))
        )
        self.clock = float(times[-1])
        kinds = [self._edges(number, src, dst), self._deletes(number, src, dst), self._vertex_deletes(known)]
        if stream.features:
            kinds.insert(0, self._arrivals(known, brings))
        kinds += [self._updates(known), self._bad(known)]
        return self._batch([rows for rows in kinds if len(rows.at)], times)

    # ------------------------------------------------------------------ edges

    def _ends(self, known: Ints, brings: Bools) -> tuple[Ints, Ints]:
        """Source and destination of each edge; never the same vertex."""
        if self.stream.shape == "capped":
            return self._capped_ends(known, brings)
        n = len(known)
        if self.stream.shape == "rmat":
            src, dst = self._rmat_ends(known)
        elif self.stream.shape == "hubs":
            src, dst = self._pick(known), self._pick(known)
            hub = np.minimum((self.rng.random(n) * self.stream.hubs).astype(np.int64), known - 1)
            where = self.rng.random(n)
            src = np.where(where < _HUB_SHARE / 2, hub, src)
            dst = np.where((where >= _HUB_SHARE / 2) & (where < _HUB_SHARE), hub, dst)
        else:
            src, dst = self._pick(known, _SOURCE_BEND), self._pick(known, _TARGET_BEND)
        src = np.where(brings, known - 1, src)
        if self.stream.shape == "communities":
            groups = len(self.centres)
            inside = dst // groups * groups + src % groups
            inside = np.where(inside >= known, inside - groups, inside)
            inside = np.where(inside == src, inside + groups, inside)
            stays = (self.rng.random(n) < _INSIDE) & (inside >= 0) & (inside < known)
            dst = np.where(stays, inside, dst)
        return src, np.where(dst == src, (src + 1) % known, dst)

    def _rmat_ends(self, known: Ints) -> tuple[Ints, Ints]:
        """Halve the range of both ends until one vertex is left; both halves are drawn together."""
        levels = int(self.stream.vertices - 1).bit_length()
        both, source, target, _ = np.cumsum(_RMAT_QUARTERS)
        src, dst = np.zeros(len(known)), np.zeros(len(known))
        for level in range(1, levels + 1):
            quarter = self.rng.random(len(known))
            src += (quarter >= source) * 0.5**level
            dst += (((quarter >= both) & (quarter < source)) | (quarter >= target)) * 0.5**level
        return (known * src).astype(np.int64), (known * dst).astype(np.int64)

    def _capped_ends(self, known: Ints, brings: Bools) -> tuple[Ints, Ints]:
        """Draw again until no vertex exceeds the cap; half of the capacity is free, so few are needed."""
        flips = self.rng.random(len(known)) < 0.5
        one, other = np.where(brings, known - 1, self._pick(known)), self._pick(known)
        while True:
            src, dst = np.where(flips, other, one), np.where(flips, one, other)
            most = self.stream.max_degree
            again = (src == dst) | (_nth(src, self.outs) >= most) | (_nth(dst, self.ins) >= most)
            if not again.any():
                break
            one = np.where(again & ~brings, self._pick(known), one)
            other = np.where(again, self._pick(known), other)
        np.add.at(self.outs, src, 1)
        np.add.at(self.ins, dst, 1)
        return src, dst

    def _edges(self, number: Ints, src: Ints, dst: Ints) -> Rows:
        return self._rows(number, Op.CREATE, Element.EDGE, src, dst)

    def _deletes(self, number: Ints, src: Ints, dst: Ints) -> Rows:
        """Mark some of the new edges for deletion, and delete those that are due."""
        stream, rng, n = self.stream, self.rng, len(number)
        some = rng.choice(n, share_of(self.first, n, stream.deletes), replace=False)
        life = np.minimum(_LONGEST_LIFE, stream.edges - number[some]) * rng.uniform(0.001, 0.999, len(some))
        if stream.undirected:  # either end may be named first
            swap = rng.random(len(some)) < 0.5
            named = np.where(swap, dst[some], src[some]), np.where(swap, src[some], dst[some])
        else:
            named = src[some], dst[some]
        fresh = (number[some] + life, *named)
        at, u, v = (np.concatenate(pair) for pair in zip(self.doomed, fresh, strict=True))
        due = at < self.first + n
        self.doomed = at[~due], u[~due], v[~due]
        return self._rows(at[due], Op.DELETE, Element.EDGE, u[due], v[due])

    # ------------------------------------------------------------------ vertices and their features

    def _arrivals(self, known: Ints, brings: Bools) -> Rows:
        edge = np.flatnonzero(brings)
        ids = known[edge] - 1
        if self.first == 0:  # the first edge brings both its ends
            edge, ids = np.append([0, 0], edge), np.append([0, 1], ids)
        values = self._features(self.stream.community(ids))
        return self._rows(self.first + edge, Op.CREATE, Element.VERTEX, ids, values=values)

    def _vertex_deletes(self, known: Ints) -> Rows:
        at, ids = self._somewhere(known, self.stream.vertex_deletes)
        return self._rows(at, Op.DELETE, Element.VERTEX, ids)

    def _updates(self, known: Ints) -> Rows:
        at, ids = self._somewhere(known, self.stream.feature_updates)
        group = self.stream.community(ids)
        elsewhere = self.rng.integers(0, len(self.centres), len(ids))
        group = np.where(self.rng.random(len(ids)) < _MOVES, elsewhere, group)
        return self._rows(at, Op.CREATE, Element.FEATURE, ids, values=self._features(group))

    def _features(self, group: Ints) -> Floats:
        noise = self.rng.normal(size=(len(group), self.stream.feature_width))
        if self.stream.shape != "communities":
            return noise.astype(np.float32)
        return (self.centres[group] + _NOISE * noise).astype(np.float32)

    def _bad(self, known: Ints) -> Rows:
        """Rows that are bad for each possible reason in turn."""
        at, ids = self._somewhere(known, self.stream.bad)
        m, width = len(at), self.stream.feature_width
        which = (np.arange(m) + share_of(0, self.first, self.stream.bad)) % 12
        about_feature = (which >= 5) & (which <= 9)
        absent = self.stream.vertices + np.arange(m)
        values = np.zeros((m, width + 1), np.float32)
        values[:, 0] = np.choose(np.clip(which - 6, 0, 2), [0.0, np.nan, np.inf])
        widths = np.where(about_feature & (which != 9), width + (which == 6), 0)
        element = np.where(about_feature, Element.FEATURE, Element.EDGE)
        element = np.where(which == 11, Element.VERTEX, np.where(which == 4, -1, element))
        return Rows(
            at=at,
            op=np.where(which >= 10, Op.DELETE, np.where(which == 3, -1, Op.CREATE)).astype(np.int8),
            element=element.astype(np.int8),
            src=np.where(which == 0, -1, np.where(which >= 10, absent, ids)),
            dst=np.where((which == 1) | about_feature | (which == 11), -1, ids),
            width=widths,
            values=values[widths > 0],
            timeless=which == 2,
            misnamed=which == 5,
        )

    # ------------------------------------------------------------------ one batch of it all

    def _pick(self, known: Ints, bend: float = 1.0) -> Ints:
        """For each edge one of the vertices that exist by then; with `bend` older ones more often."""
        picked: Ints = (known * self.rng.random(len(known)) ** bend).astype(np.int64)
        return picked

    def _somewhere(self, known: Ints, share: float) -> tuple[Doubles, Ints]:
        """Positions for a share of further events, and for each a vertex that exists by then."""
        n = len(known)
        place = np.sort(self.rng.random(share_of(self.first, n, share)) * n)
        return self.first + place, self._pick(known[place.astype(np.int64)])

    def _rows(
        self, at: Array, op: Op, element: Element, src: Ints, dst: Ints | None = None,
        values: Floats | None = None,
    ) -> Rows:  # fmt: skip
        n, width = len(at), self.stream.feature_width
        no = np.zeros(n, np.bool_)
        return Rows(
            at=at.astype(np.float64),
            op=np.full(n, op, np.int8),
            element=np.full(n, element, np.int8),
            src=src,
            dst=np.full(n, -1) if dst is None else dst,
            width=np.full(n, 0 if values is None else width),
            values=np.zeros((0, width + 1), np.float32)
            if values is None
            else np.pad(values, ((0, 0), (0, 1))),
            timeless=no,
            misnamed=no,
        )

    def _batch(self, kinds: list[Rows], times: Doubles) -> EventBatch:
        rows = Rows(*(np.concatenate(column) for column in zip(*kinds, strict=True)))
        order = np.argsort(rows.at, kind="stable")
        at = rows.at[order]
        time = np.interp(at - self.first, np.arange(len(times)), times)
        late = self.rng.random(len(time)) < self.stream.late
        time = (time - np.where(late, self.rng.exponential(_LATENESS, len(time)), 0.0)).astype(np.int64)
        values = offsets = feature = None
        if self.stream.has_values:
            width = rows.width[order]
            place = (np.cumsum(rows.width > 0) - 1)[order][width > 0]
            inside = np.arange(rows.values.shape[1]) < width[width > 0, None]
            values, offsets = rows.values[place][inside], np.append(0, np.cumsum(width))
        if self.stream.bad:
            feature = np.where(rows.misnamed[order], 0, -1).astype(np.int32)
        return EventBatch(
            op=rows.op[order],
            element=rows.element[order],
            src=_nullable(rows.src[order]),
            dst=_nullable(rows.dst[order]),
            time=np.where(rows.timeless[order], NO_TIME, time),
            feature=feature,
            names=(_BAD_NAME,) if self.stream.bad else (),
            values=values,
            value_offsets=offsets,
        )


def share_of(first: int, n: int, share: float) -> int:
    """The number of events for n edges of this share; over the whole stream they add up."""
    return int((first + n) * share) - int(first * share)


def _nullable(ids: Ints) -> IntKeys:
    null = ids < 0
    return IntKeys(np.where(null, 0, ids), ~null) if null.any() else IntKeys(ids)


def _nth(ids: Ints, before: Array) -> Ints:
    """How often each id has occurred earlier, including `before`."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    seen = np.empty(len(ids), np.int64)
    seen[order] = np.arange(len(ids)) - np.repeat(begins, np.diff(np.append(begins, len(ids))))
    return seen + before[ids]
