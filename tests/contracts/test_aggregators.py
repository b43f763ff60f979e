"""The contract of all aggregators; new ones are found automatically."""

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
    Attention,
    Degrees,
    EdgeArrays,
    Messages,
    Mixed,
    aggregator_types,
)
from d3gnn.kernel.part_state import PartState
from d3gnn.kernel.touched import VERTEX, clear, make_touched, size
from d3gnn.nn import GNN, SAGEConv
from d3gnn.nn.layer import AttentionSpec
from d3gnn.testing import OracleChecker, random_batches
from d3gnn.types import Doubles, Floats, Ints, Ints32

VERTICES, WIDTH = 12, 3
#: Several aggregators at once; attention with two heads of two channels, and with logits from edges.
SEVERAL = ["mean,max", "min,sum,max"]
_SCORES = np.array([[0.5, -1.0]], np.float32)
ATTENTION = [
    Attention(AttentionSpec(1, 1), 1),
    Attention(AttentionSpec(1, 2, 0.25, torch.from_numpy(_SCORES)), 0),
]
EACH: list[Aggregator] = [
    *(kind() for kind in aggregator_types() if kind is not Attention),
    *(Mixed(*names.split(",")) for names in SEVERAL),
    *ATTENTION,
]


def name_of(aggregator: Aggregator) -> str:
    return "-".join([type(aggregator).__name__, *map(str, aggregator.params.tolist())])


every = pytest.mark.parametrize("aggregator", EACH, ids=name_of)


def nothing(n: int) -> Any:
    return np.zeros(n, np.int64)


@dataclass
class Part:
    """The edges of a part and the aggregator's state for it."""

    aggregator: Aggregator
    values: Floats
    edge_values: Floats
    state: Doubles
    count: Ints32
    touched: Ints
    invalidated: Ints
    adjacency: Adjacency
    bounds: Doubles

    @staticmethod
    def make(aggregator: Aggregator, seed: int = 1) -> Part:
        part_state, rng = PartState(), np.random.default_rng(seed)
        adjacency = Adjacency(part_state)
        adjacency.reserve(VERTICES, 500)
        width, edge_width = widths_of(aggregator)
        # Multiples of 1/64: their sums and small products are exact, so that "equal" means equal.
        values = (rng.integers(-640, 640, (VERTICES, width)) / 64).astype(np.float32)
        edge_values = (rng.integers(1, 128, (500, edge_width)) / 64).astype(np.float32)
        state = np.zeros((VERTICES, aggregator.state_width(width)), np.float64)
        count, touched, invalidated = (
            np.zeros(VERTICES, np.int32),
            make_touched(VERTICES),
            make_touched(VERTICES),
        )
        bounds = np.zeros((VERTICES, 2))
        return Part(aggregator, values, edge_values, state, count, touched, invalidated, adjacency, bounds)

    @property
    def arrays(self) -> EdgeArrays:
        return EdgeArrays(self.values, self.edge_values, self.state, self.count, self.bounds)

    def add(self, slots: Ints32, src: Ints32, dst: Ints32) -> None:
        self.adjacency.add(slots, src, dst)
        self.aggregator.add(
            Messages(src, dst, slots, nothing(len(src)), nothing(len(src))),
            self.arrays,
            self.touched,
            self.invalidated,
        )
        self.repair()

    def remove(self, slots: Ints32) -> None:
        n = len(slots)
        none = np.zeros(0, np.int32)
        removed = self.adjacency.remove(slots, nothing(n), nothing(n), none, nothing(0), nothing(0))
        self.aggregator.retract(Messages(*removed), self.arrays, self.touched, self.invalidated)
        self.repair()

    def replace(self, sources: Ints32, fresh: Floats) -> int:
        n = len(sources)
        messages = self.aggregator.replace(
            sources,
            fresh,
            nothing(n),
            nothing(n),
            self.arrays,
            self.adjacency.out,
            self.touched,
            self.invalidated,
        )
        self.repair()
        return messages

    def repair(self) -> None:
        """Recompute the invalidated destinations."""
        invalidated = self.invalidated[1 : size(self.invalidated) + 1, VERTEX].astype(np.int32)
        assert not (len(invalidated) and self.aggregator.invertible)
        assert set(invalidated.tolist()) <= set(self.touched[1 : size(self.touched) + 1, VERTEX].tolist())
        clear(self.invalidated)
        self.recompute(invalidated)

    def recompute(self, destinations: Ints32) -> None:
        self.aggregator.recompute(destinations, self.arrays, self.adjacency.into)

    def snapshot(self) -> Any:
        """State and counts, for comparison up to rounding."""
        exact = not isinstance(self.aggregator, Attention)
        return pytest.approx(self.state.copy(), abs=0 if exact else 1e-9), self.count.tolist()

    def same(self, other: Any) -> bool:
        return bool(other[0] == self.state and other[1] == self.count.tolist())

    def was_touched(self) -> set[int]:
        vertices = set(self.touched[1 : size(self.touched) + 1, VERTEX].tolist())
        clear(self.touched)
        return vertices


def widths_of(aggregator: Aggregator) -> tuple[int, int]:
    """The widths of messages and of edge values."""
    if isinstance(aggregator, Attention):
        heads, channels, _, scores = aggregator.spec
        return heads * (channels + 2) if scores is None else 2 * heads * channels, aggregator.edge_width
    return (1, 1) if isinstance(aggregator, Degrees) else (WIDTH, 1)


def edges(n: int, seed: int) -> tuple[Ints32, Ints32]:
    """Ends of n edges, including loops and parallel edges; the last two vertices have no in-edges."""
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
    fresh.state[:], fresh.count[:] = 7, 7  # previous contents do not matter
    fresh.recompute(slots(VERTICES))
    return fresh.snapshot()


@every
def test_its_attributes_are_complete(aggregator: Aggregator) -> None:
    assert type(aggregator).__doc__
    assert isinstance(aggregator.invertible, bool)
    assert set(aggregator.steps) == {"merge", "finish"}
    assert aggregator.state_width(WIDTH) > 0


def test_names_are_unique() -> None:
    names = [kind.name for kind in aggregator_types()]
    assert len(set(names)) == len(names) >= 6
    assert all(name == name.lower() for name in names)


@every
def test_adding_equals_recomputing(aggregator: Aggregator) -> None:
    part = filled(aggregator)
    assert part.same(recomputed(part))
    assert part.count.sum() == 60
    assert not part.state[-2:].any(), "these have no in-edges"


@every
def test_retracting_restores_the_exact_state(aggregator: Aggregator) -> None:
    part = filled(aggregator)
    before = part.snapshot()
    part.add(slots(60, 110), *edges(50, seed=3))
    assert not part.same(before)
    part.remove(slots(60, 110))
    assert part.same(before)
    part.remove(slots(60))
    assert not part.state.any()
    assert not part.count.any()


@every
@pytest.mark.parametrize("seed", range(5))
def test_replacing_equals_recomputing_and_equals_retracting_and_adding(
    aggregator: Aggregator, seed: int
) -> None:
    part, other = filled(aggregator), filled(aggregator)
    rng = np.random.default_rng(seed)
    sources = rng.choice(VERTICES, 4, replace=False).astype(np.int32)
    fresh = (rng.integers(-640, 640, (4, part.values.shape[1])) / 64).astype(np.float32)
    fresh[1] = part.values[sources[1]]
    fresh[2] = 0
    part.replace(sources, fresh)
    if isinstance(aggregator, Degrees):
        assert part.same(other.snapshot()), "sources send nothing"
        return
    assert (part.values[sources] == fresh).all(), "the part keeps the last received values"
    assert part.same(recomputed(part))
    # The same in two steps: remove their edges with old values, add them with new ones.
    src, dst = edges(60, seed=2)
    affected = np.isin(src, sources)
    if isinstance(aggregator, Attention):
        affected |= np.isin(dst, sources)
    their_slots = slots(60)[affected]
    other.remove(their_slots)
    other.values[sources] = fresh
    other.add(their_slots, src[their_slots], dst[their_slots])
    assert other.same(part.snapshot())


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
def test_only_removed_extremes_invalidate(aggregator: Aggregator) -> None:
    """Few of many messages are extremes: most are retracted without a recomputation."""
    if aggregator.invertible:
        return
    part = Part.make(aggregator)
    n = 400
    src, dst = np.arange(n, dtype=np.int32) % 10, np.full(n, 11, np.int32)
    part.add(slots(n), src, dst)
    invalidated = 0
    for at in range(n - 10):
        none = np.zeros(0, np.int32)
        removed = part.adjacency.remove(
            np.array([at], np.int32), nothing(1), nothing(1), none, nothing(0), nothing(0)
        )
        part.aggregator.retract(Messages(*removed), part.arrays, part.touched, part.invalidated)
        invalidated += size(part.invalidated)
        part.repair()
    assert invalidated <= n / 2
    assert part.same(recomputed(part))


@every
def test_the_order_of_edges_does_not_matter(aggregator: Aggregator) -> None:
    n = 200
    src, dst = edges(n, seed=4)
    states = []
    for seed in range(3):
        part = Part.make(aggregator)
        # Unlike in the other tests, sums of these values are rounded.
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
    prefers_pull: Callable[..., bool] = lambda *_: pulls  # noqa: E731
    monkeypatch.setattr("d3gnn.kernel.operators.edge.prefers_pull", prefers_pull)
    torch.manual_seed(1)
    schema = GraphSchema(edges="multi", features={"x": 3}, missing="hash")
    model = GNN([SAGEConv(3, 5, name, act="tanh"), SAGEConv(5, 2, name)])
    checker = OracleChecker(LocalEngine(model, parts=3, schema=schema))
    for batch in random_batches(schema, seed=6, n_batches=10, batch_size=50, n_vertices=25):
        checker.apply(batch)
