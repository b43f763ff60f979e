"""What every aggregator promises; those that are added are found here by themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from d3gnn import GraphSchema, LocalEngine
from d3gnn.kernel.adjacency import Adjacency
from d3gnn.kernel.aggregators import (
    Aggregator,
    Arrays,
    Attention,
    Carried,
    Degrees,
    aggregator,
    aggregator_types,
)
from d3gnn.kernel.arrays import Space
from d3gnn.kernel.touched import VERTEX, clear, make_touched, size
from d3gnn.nn import GNN, SAGE
from d3gnn.nn.layer import AttentionSpec
from d3gnn.testing import Witness, random_batches
from d3gnn.types import Doubles, Floats, Ints, Ints32

VERTICES, WIDTH = 12, 3
#: Several at once, and what messages of attention are: two heads of two channels, and logits by edges.
SEVERAL = ["mean,max", "min,sum,max"]
_SCORES = np.array([[0.5, -1.0]], np.float32)
ATTENTION = [Attention(AttentionSpec(1, 1), 1), Attention(AttentionSpec(1, 2, 0.25, _SCORES), 0)]
EACH: list[Aggregator] = [
    *(kind() for kind in aggregator_types() if kind is not Attention),
    *map(aggregator, SEVERAL),
    *ATTENTION,
]


def name_of(aggregator: Aggregator) -> str:
    return "-".join([type(aggregator).__name__, *map(str, aggregator.codes)])


every = pytest.mark.parametrize("aggregator", EACH, ids=name_of)


def nothing(n: int) -> Any:
    return np.zeros(n, np.int64)


@dataclass
class Part:
    """One part's edges and what an aggregator keeps for it."""

    aggregator: Aggregator
    values: Floats
    edge_values: Floats
    state: Doubles
    count: Ints32
    touched: Ints
    hits: Ints
    adjacency: Adjacency

    @staticmethod
    def make(aggregator: Aggregator, seed: int = 1) -> Part:
        space, rng = Space(), np.random.default_rng(seed)
        adjacency = Adjacency(space, space.counters[:3])
        adjacency.reserve(VERTICES, 500)
        width, edge_width = widths_of(aggregator)
        # Multiples of 1/64: their sums and small products are exact, so that "equal" means equal.
        values = (rng.integers(-640, 640, (VERTICES, width)) / 64).astype(np.float32)
        edge_values = (rng.integers(1, 128, (500, edge_width)) / 64).astype(np.float32)
        state = np.zeros((VERTICES, aggregator.state_width(width)), np.float64)
        count, touched, hits = np.zeros(VERTICES, np.int32), make_touched(VERTICES), make_touched(VERTICES)
        return Part(aggregator, values, edge_values, state, count, touched, hits, adjacency)

    @property
    def arrays(self) -> Arrays:
        return Arrays(self.values, self.edge_values, self.state, self.count)

    def add(self, slots: Ints32, src: Ints32, dst: Ints32) -> None:
        self.adjacency.add(slots, src, dst)
        self.aggregator.add(
            Carried(src, dst, slots, nothing(len(src)), nothing(len(src))),
            self.arrays,
            self.touched,
            self.hits,
        )
        self.mend()

    def remove(self, slots: Ints32) -> None:
        n = len(slots)
        none = np.zeros(0, np.int32)
        removed = self.adjacency.remove(slots, nothing(n), nothing(n), none, nothing(0), nothing(0))
        self.aggregator.retract(Carried(*removed), self.arrays, self.touched, self.hits)
        self.mend()

    def replace(self, sources: Ints32, fresh: Floats) -> int:
        n = len(sources)
        messages = self.aggregator.replace(
            sources, fresh, nothing(n), nothing(n), self.arrays, self.adjacency.out, self.touched, self.hits
        )
        self.mend()
        return messages

    def mend(self) -> None:
        """Recompute the hits."""
        hits = self.hits[1 : size(self.hits) + 1, VERTEX].astype(np.int32)
        assert not (len(hits) and self.aggregator.invertible)
        assert set(hits.tolist()) <= set(self.touched[1 : size(self.touched) + 1, VERTEX].tolist())
        clear(self.hits)
        self.recompute(hits)

    def recompute(self, destinations: Ints32) -> None:
        self.aggregator.recompute(destinations, self.arrays, self.adjacency.into)

    def known(self) -> Any:
        """State and counts; what is equal but for rounding compares equal."""
        exact = not isinstance(self.aggregator, Attention)
        return pytest.approx(self.state.copy(), abs=0 if exact else 1e-9), self.count.tolist()

    def same(self, other: Any) -> bool:
        return bool(other[0] == self.state and other[1] == self.count.tolist())

    def was_touched(self) -> set[int]:
        vertices = set(self.touched[1 : size(self.touched) + 1, VERTEX].tolist())
        clear(self.touched)
        return vertices


def widths_of(aggregator: Aggregator) -> tuple[int, int]:
    """Of messages, and of what edges add."""
    if isinstance(aggregator, Attention):
        heads, channels, _, scores = aggregator.spec
        return heads * (channels + 2) if scores is None else 2 * heads * channels, aggregator.edge_width
    return (1, 1) if isinstance(aggregator, Degrees) else (WIDTH, 1)


def edges(n: int, seed: int) -> tuple[Ints32, Ints32]:
    """Ends of n edges, loops and parallel ones among them; nothing leads to the last two vertices."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, VERTICES, n), rng.integers(0, VERTICES - 2, n)
    return src.astype(np.int32), dst.astype(np.int32)


def slots(*range_of: int) -> Ints32:
    return np.arange(*range_of, dtype=np.int32)


def filled(aggregator: Aggregator, n: int = 60) -> Part:
    part = Part.make(aggregator)
    part.add(slots(n), *edges(n, seed=2))
    return part


def recomputed(part: Part) -> Any:
    fresh = Part.make(part.aggregator)
    fresh.values, fresh.adjacency = part.values, part.adjacency
    fresh.state[:], fresh.count[:] = 7, 7  # whatever was there does not matter
    fresh.recompute(slots(VERTICES))
    return fresh.known()


@every
def test_it_says_what_it_is(aggregator: Aggregator) -> None:
    assert type(aggregator).__doc__
    assert isinstance(aggregator.invertible, bool)
    if not isinstance(aggregator, Attention):
        assert len(aggregator.codes) * WIDTH == aggregator.state_width(WIDTH)


def test_names_are_their_own() -> None:
    names = [kind.name for kind in aggregator_types()]
    assert len(set(names)) == len(names) >= 6
    assert all(name == name.lower() for name in names)


@every
def test_adding_equals_recomputing(aggregator: Aggregator) -> None:
    part = filled(aggregator)
    assert part.same(recomputed(part))
    assert part.count.sum() == 60
    assert not part.state[-2:].any(), "nothing came there"


@every
def test_retracting_leaves_exactly_what_was_before(aggregator: Aggregator) -> None:
    part = filled(aggregator)
    before = part.known()
    part.add(slots(60, 110), *edges(50, seed=3))
    assert not part.same(before)
    part.remove(slots(60, 110))
    assert part.same(before)
    part.remove(slots(60))
    assert not part.state.any()
    assert not part.count.any()


@every
@pytest.mark.parametrize("seed", range(5))
def test_replacing_equals_recomputing_and_retracting_and_adding(aggregator: Aggregator, seed: int) -> None:
    part, other = filled(aggregator), filled(aggregator)
    rng = np.random.default_rng(seed)
    sources = rng.choice(VERTICES, 4, replace=False).astype(np.int32)
    fresh = (rng.integers(-640, 640, (4, part.values.shape[1])) / 64).astype(np.float32)
    fresh[1] = part.values[sources[1]]
    fresh[2] = 0
    part.replace(sources, fresh)
    if isinstance(aggregator, Degrees):
        assert part.same(other.known()), "sources send nothing"
        return
    assert (part.values[sources] == fresh).all(), "the copy is what was received last"
    assert part.same(recomputed(part))
    # The same by hand: their edges go with the old values and come again with the new ones.
    src, dst = edges(60, seed=2)
    whose = np.isin(src, sources)
    if isinstance(aggregator, Attention):
        whose |= np.isin(dst, sources)
    theirs = slots(60)[whose]
    other.remove(theirs)
    other.values[sources] = fresh
    other.add(theirs, src[theirs], dst[theirs])
    assert other.same(part.known())


@every
def test_replacing_by_the_same_values_touches_nothing(aggregator: Aggregator) -> None:
    part = filled(aggregator)
    part.was_touched()
    assert part.replace(slots(VERTICES), part.values.copy()) == 0
    assert part.was_touched() == set()


@every
def test_it_touches_the_destinations_and_no_others(aggregator: Aggregator) -> None:
    part = Part.make(aggregator)
    src, dst = np.array([0, 0, 1], np.int32), np.array([2, 3, 2], np.int32)
    part.add(slots(3), src, dst)
    assert part.was_touched() == {2, 3}
    if not isinstance(aggregator, Degrees):
        fresh = np.full((2, part.values.shape[1]), 4, np.float32)
        assert part.replace(np.array([0, 5], np.int32), fresh) == 2
        assert part.was_touched() == {2, 3}
    part.remove(np.array([2], np.int32))
    assert part.was_touched() == {2}


@every
def test_only_what_held_an_extreme_makes_a_hit(aggregator: Aggregator) -> None:
    """Of many messages, few are the largest: most go without anybody looking at the others."""
    if aggregator.invertible:
        return
    part = Part.make(aggregator)
    n = 400
    src, dst = np.arange(n, dtype=np.int32) % 10, np.full(n, 11, np.int32)
    part.add(slots(n), src, dst)
    hits = 0
    for at in range(n - 10):
        none = np.zeros(0, np.int32)
        removed = part.adjacency.remove(
            np.array([at], np.int32), nothing(1), nothing(1), none, nothing(0), nothing(0)
        )
        part.aggregator.retract(Carried(*removed), part.arrays, part.touched, part.hits)
        hits += size(part.hits)
        part.mend()
    assert hits <= n / 2
    assert part.same(recomputed(part))


@every
def test_the_order_of_edges_does_not_matter(aggregator: Aggregator) -> None:
    n = 200
    src, dst = edges(n, seed=4)
    states = []
    for seed in range(3):
        part = Part.make(aggregator)
        # Values whose sums are not exact, unlike elsewhere.
        part.values[...] = np.random.default_rng(5).standard_normal(part.values.shape, np.float32)
        order = np.random.default_rng(seed).permutation(n).astype(np.int32)
        for some in np.array_split(order, 9):
            part.add(some, src[some], dst[some])
        states.append((part.state.copy(), part.count.tolist()))
    for state, count in states[1:]:
        np.testing.assert_allclose(state, states[0][0], rtol=1e-12, atol=1e-12)
        assert count == states[0][1]


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", *SEVERAL])
@pytest.mark.parametrize("pulls", [True, False])
def test_streaming_equals_the_oracle(name: str, pulls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    decide: Callable[..., bool] = lambda *_: pulls  # noqa: E731
    monkeypatch.setattr("d3gnn.kernel.operators.edge.prefers_pull", decide)
    torch.manual_seed(1)
    schema = GraphSchema(edges="multi", features={"x": 3})
    model = GNN([SAGE(3, 5, name, "tanh"), SAGE(5, 2, name)])
    witness = Witness(LocalEngine(model, 3, schema=schema))
    for batch in random_batches(schema, seed=6, n_batches=10, batch_size=50, n_vertices=25):
        witness.apply(batch)
