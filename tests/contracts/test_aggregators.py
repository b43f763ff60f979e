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
from d3gnn.kernel.aggregators import Aggregator, aggregators
from d3gnn.kernel.arrays import Space
from d3gnn.kernel.touched import VERTEX, clear, make_touched, size
from d3gnn.nn import GNN, SAGE
from d3gnn.testing import Witness, random_batches
from d3gnn.types import Doubles, Floats, Ints, Ints32

VERTICES, WIDTH = 12, 3

every = pytest.mark.parametrize("aggregator", aggregators(), ids=lambda a: a.name)


def nothing(n: int) -> Any:
    return np.zeros(n, np.int64)


@dataclass
class Part:
    """One part's edges and what an aggregator keeps for it."""

    aggregator: Aggregator
    values: Floats
    state: Doubles
    count: Ints32
    touched: Ints
    adjacency: Adjacency

    @staticmethod
    def make(aggregator: Aggregator, seed: int = 1) -> Part:
        space = Space()
        adjacency = Adjacency(space, space.counters[:3])
        adjacency.reserve(VERTICES, 500)
        # Multiples of 1/64: their sums are exact, so that "equal" means equal.
        sixty_fourths = np.random.default_rng(seed).integers(-640, 640, (VERTICES, WIDTH))
        values = (sixty_fourths / 64).astype(np.float32)
        state, count = np.zeros((VERTICES, WIDTH), np.float64), np.zeros(VERTICES, np.int32)
        return Part(aggregator, values, state, count, make_touched(VERTICES), adjacency)

    def add(self, slots: Ints32, src: Ints32, dst: Ints32) -> None:
        self.adjacency.add(slots, src, dst)
        args = (src, dst, nothing(len(src)), nothing(len(src)), self.values, self.state, self.count)
        self.aggregator.add(*args, self.touched)

    def remove(self, slots: Ints32) -> None:
        n = len(slots)
        none = np.zeros(0, np.int32)
        removed = self.adjacency.remove(slots, nothing(n), nothing(n), none, nothing(0), nothing(0))
        self.aggregator.retract(*removed, self.values, self.state, self.count, self.touched)
        if not self.aggregator.invertible:
            self.recompute(np.unique(removed.dst))

    def replace(self, sources: Ints32, fresh: Floats) -> int:
        n, out = len(sources), self.adjacency.out
        return self.aggregator.replace(
            sources, fresh, nothing(n), nothing(n), self.values, out, self.state, self.touched
        )

    def recompute(self, destinations: Ints32) -> None:
        self.aggregator.recompute(destinations, self.values, self.adjacency.into, self.state, self.count)

    def known(self) -> tuple[list[Any], list[Any]]:
        return self.state.tolist(), self.count.tolist()

    def was_touched(self) -> set[int]:
        vertices = set(self.touched[1 : size(self.touched) + 1, VERTEX].tolist())
        clear(self.touched)
        return vertices


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


def recomputed(part: Part) -> tuple[list[Any], list[Any]]:
    fresh = Part.make(part.aggregator)
    fresh.values, fresh.adjacency = part.values, part.adjacency
    fresh.state[:], fresh.count[:] = 7, 7  # whatever was there does not matter
    fresh.recompute(slots(VERTICES))
    return fresh.known()


@every
def test_it_says_what_it_is(aggregator: Aggregator) -> None:
    assert aggregator.name == aggregator.name.lower()
    assert isinstance(aggregator.invertible, bool)
    assert isinstance(aggregator.divides, bool)
    assert type(aggregator).__doc__


def test_names_are_their_own() -> None:
    names = [aggregator.name for aggregator in aggregators()]
    assert len(set(names)) == len(names) >= 2


@every
def test_adding_equals_recomputing(aggregator: Aggregator) -> None:
    part = filled(aggregator)
    assert part.known() == recomputed(part)
    assert part.count.sum() == 60
    assert not part.state[-2:].any(), "nothing came there"


@every
def test_retracting_leaves_exactly_what_was_before(aggregator: Aggregator) -> None:
    part = filled(aggregator)
    before = part.known()
    part.add(slots(60, 110), *edges(50, seed=3))
    assert part.known() != before
    part.remove(slots(60, 110))
    assert part.known() == before
    part.remove(slots(60))
    assert not part.state.any()
    assert not part.count.any()


@every
def test_replacing_equals_recomputing_and_retracting_and_adding(aggregator: Aggregator) -> None:
    part, other = filled(aggregator), filled(aggregator)
    sources = np.array([1, 4, 7], np.int32)
    fresh = np.array([[0.5, -2, 3], [9, 9, 9], [0, 0, 0]], np.float32)
    part.replace(sources, fresh)
    assert (part.values[sources] == fresh).all(), "the copy is what was received last"
    assert part.known() == recomputed(part)
    # The same by hand: their edges go with the old values and come again with the new ones.
    src, dst = edges(60, seed=2)
    theirs = slots(60)[np.isin(src, sources)]
    other.remove(theirs)
    other.values[sources] = fresh
    other.add(theirs, src[theirs], dst[theirs])
    assert other.known() == part.known()


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
    assert part.replace(np.array([0, 5], np.int32), np.full((2, WIDTH), 4, np.float32)) == 2
    assert part.was_touched() == {2, 3}
    part.remove(np.array([2], np.int32))
    assert part.was_touched() == {2}


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


@every
@pytest.mark.parametrize("pulls", [True, False])
def test_streaming_equals_the_oracle(
    aggregator: Aggregator, pulls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide: Callable[..., bool] = lambda *_: pulls  # noqa: E731
    monkeypatch.setattr("d3gnn.kernel.operators.edge.prefers_pull", decide)
    torch.manual_seed(1)
    schema = GraphSchema(edges="multi", features={"x": 3})
    model = GNN([SAGE(3, 5, aggregator.name, "tanh"), SAGE(5, 2, aggregator.name)])
    witness = Witness(LocalEngine(model, 3, schema=schema))
    for batch in random_batches(schema, seed=6, n_batches=10, batch_size=50, n_vertices=25):
        witness.apply(batch)
