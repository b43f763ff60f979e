"""Partitioners choose parts as their papers define."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from d3gnn import HDRF, GraphSchema, Random
from d3gnn.events import Element, Event, EventBatch, Op, delete_edge, delete_vertex, edge, vertex
from d3gnn.kernel.operators import Partition
from d3gnn.kernel.partitioners import Fennel, Partitioner, make_partitioner, partitioner
from d3gnn.types import Ints


def power_law(seed: int, n: int, vertices: int) -> tuple[Ints, Ints]:
    rng = np.random.default_rng(seed)
    src, dst = (vertices * rng.random((2, n)) ** 2).astype(np.int64)
    return src, dst


def parts_of(which: str | Partitioner, parts: int, src: Ints, dst: Ints, batch: int = 1000) -> list[int]:
    """The part of every edge of a multigraph."""
    partition = Partition(GraphSchema(edges="multi", features={"x": 1}), parts, which)
    chosen: list[int] = []
    for begin in range(0, len(src), batch):
        events = EventBatch.edges(src[begin : begin + batch], dst[begin : begin + batch])
        chosen += partition.process(events, 1).entry.part.tolist()
    return chosen


class NaiveHDRF:
    """HDRF with dictionaries, straight from the paper's equations."""

    def __init__(self, parts: int, balance: float, epsilon: float) -> None:
        self.balance, self.epsilon = balance, epsilon
        self.load = [0] * parts
        self.degree: Counter[int] = Counter()
        self.replicas: defaultdict[int, set[int]] = defaultdict(set)

    def scores(self, u: int, v: int) -> list[float]:
        d_u, d_v = self.degree[u] + 1, self.degree[v] + 1
        most, least = max(self.load), min(self.load)
        scores = []
        for p, load in enumerate(self.load):
            score = self.balance * (most - load) / (self.epsilon + most - least)
            score += (2 - d_u / (d_u + d_v)) * (p in self.replicas[u])
            score += (2 - d_v / (d_u + d_v)) * (p in self.replicas[v])
            scores.append(score)
        return scores

    def put(self, u: int, v: int, part: int) -> None:
        self.load[part] += 1
        for end in (u, v):
            self.degree[end] += 1
            self.replicas[end].add(part)


@pytest.mark.parametrize(("balance", "epsilon"), [(2.0, 1.0), (1.0, 1.0), (0.0, 1.0), (5.0, 0.1)])
@pytest.mark.parametrize("parts", [2, 5])
def test_hdrf_equals_a_naive_implementation(parts: int, balance: float, epsilon: float) -> None:
    src, dst = power_law(seed=parts, n=2000, vertices=200)  # includes loops
    naive = NaiveHDRF(parts, balance, epsilon)
    chosen = parts_of(HDRF(balance, epsilon), parts, src, dst, batch=77)
    for u, v, part in zip(src.tolist(), dst.tolist(), chosen, strict=True):
        scores = naive.scores(u, v)
        best = [p for p, score in enumerate(scores) if score > max(scores) - 1e-9]
        assert part in best  # equal scores may differ by rounding
        if len(set(scores)) == 1:
            assert part == 0
        naive.put(u, v, part)


def test_hdrf_counts_deleted_edges_as_free_load() -> None:
    partition = Partition(GraphSchema(features={"x": 1}), 2, HDRF(balance=100.0))
    first = partition.process(EventBatch.of([edge(i, i + 100) for i in range(10)]), 1).entry.part
    assert sorted(Counter(first.tolist()).values()) == [5, 5]
    deletes = [delete_edge(i, i + 100) for i in range(10) if first[i] == 1]
    partition.process(EventBatch.of(deletes), 1)
    after = partition.process(EventBatch.of([edge(i, i + 100) for i in range(20, 25)]), 1).entry.part
    assert after.tolist() == [1] * 5


def test_hdrf_eventually_frees_the_load_of_a_deleted_hub() -> None:
    partition = Partition(GraphSchema(features={"x": 1}), 2, HDRF(balance=0.1))
    star = partition.process(EventBatch.of([edge("hub", str(i)) for i in range(1000)]), 1).entry.part
    assert (star == 0).all()
    partition.process(EventBatch.of([delete_vertex("hub")]), 1)
    after: list[int] = []
    for begin in range(0, 2000, 100):
        events = [edge(f"a{i}", f"b{i}") for i in range(begin, begin + 100)]
        after += partition.process(EventBatch.of(events), 1).entry.part.tolist()
    assert 900 < after.count(0) < 1100


def test_hdrf_cuts_the_hub_and_not_the_leaf() -> None:
    """An edge between a hub and a leaf in different parts is assigned to the leaf's part."""
    events = [edge("hub", f"h{i}") for i in range(5)] + [edge("leaf", "l0")]
    partition = Partition(GraphSchema(features={"x": 1}), 2, HDRF(balance=0.5))
    parts = partition.process(EventBatch.of(events), 1).entry.part
    if parts[0] == parts[-1]:
        pytest.fail("this test needs hub and leaf in different parts")
    chosen = partition.process(EventBatch.of([edge("hub", "leaf", time=1)]), 1).entry.part
    assert chosen.tolist() == [parts[-1]]


def test_hdrf_replicates_less_than_random_and_is_balanced() -> None:
    src, dst = power_law(seed=1, n=20_000, vertices=3000)
    factors, loads = [], []
    for which in ("hdrf", "random"):
        partition = Partition(GraphSchema(edges="append", features={"x": 1}), 8, which)
        result = partition.process(EventBatch.edges(src, dst), 1)
        factors.append(partition.replication_factor)
        loads.append(np.bincount(result.entry.part, minlength=8))
    assert 1 <= factors[0] < 0.8 * factors[1] <= 8
    for load in loads:
        assert load.max() < 1.1 * load.mean()


def test_random_keeps_parallel_edges_together_and_has_no_state() -> None:
    src, dst = power_law(seed=2, n=5000, vertices=100)
    chosen = parts_of("random", 4, src, dst)
    by_pair: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for u, v, part in zip(src.tolist(), dst.tolist(), chosen, strict=True):
        by_pair[u, v].add(part)
    assert all(len(parts) == 1 for parts in by_pair.values())
    assert parts_of("random", 4, src[::-1].copy(), dst[::-1].copy()) == chosen[::-1]


def test_random_depends_on_the_direction() -> None:
    n = 400
    there = parts_of("random", 2, np.arange(n), np.arange(n) + n)
    back = parts_of("random", 2, np.arange(n) + n, np.arange(n))
    assert 0.3 < np.mean(np.array(there) == back) < 0.7


def test_both_directions_of_an_undirected_edge_have_one_part() -> None:
    partition = Partition(GraphSchema(edges="multi", directed=False, features={"x": 1}), 4, "random")
    events = [edge(u, v) for i in range(50) for u, v in ((i, i + 50), (i + 50, i))]
    parts = partition.process(EventBatch.of(events), 1).entry.part
    assert (parts[::2] == parts[1::2]).all()


def test_deletes_have_no_part() -> None:
    partition = Partition(GraphSchema(features={"x": 1}), 3, "hdrf")
    partition.process(EventBatch.edges([1, 2], [2, 3]), 1)
    assert partition.process(EventBatch.edges([1], [2], op=Op.DELETE), 1).entry.part.tolist() == [-1]


@pytest.mark.parametrize("settings", [{"balance": -1.0}, {"epsilon": 0.0}, {"epsilon": -1.0}])
def test_bad_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"HDRF\(balance=.*, epsilon=.*\): balance must be at least 0"):
        make_partitioner("hdrf", **settings)


def test_unknown_partitioners_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"no partitioner 'best'; known are clda, fennel, hdrf, metis, random"
    ):
        partitioner("best")


def test_a_partitioner_may_be_an_object_or_a_name() -> None:
    assert partitioner(HDRF(balance=1.0)) == HDRF(balance=1.0)
    assert partitioner("random") == Random()


@pytest.mark.parametrize("parts", [0, -1])
def test_there_is_at_least_one_part(parts: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Partition(GraphSchema(features={"x": 1}), parts)


def test_clda_is_greedy_for_low_degrees_and_hdrf_for_others() -> None:
    src, dst = power_law(4, 3000, 400)
    naive, vertices = NaiveHDRF(4, 2.0, 1.0), set[int]()
    chosen = parts_of("clda", 4, src, dst)
    greedy = 0
    for k, (u, v, part) in enumerate(zip(src.tolist(), dst.tolist(), chosen, strict=True)):
        vertices |= {u, v}
        if (naive.degree[u] + naive.degree[v] + 2) * len(vertices) <= 2 * (k + 1):
            greedy += 1
            held = [(p in naive.replicas[u]) + (p in naive.replicas[v]) for p in range(4)]
            equal = [p for p in range(4) if held[p] == max(held)]
            assert part == min(equal, key=lambda p: naive.load[p])
        else:
            scores = naive.scores(u, v)
            assert scores[part] == pytest.approx(max(scores))
        naive.put(u, v, part)
    assert 20 < greedy < 2900


def test_fennel_places_vertices_with_their_neighbours() -> None:
    """Straight from the paper's equation, on a stream of vertices with neighbourhoods."""
    rng, parts, gamma, slack = np.random.default_rng(3), 4, 1.5, 3.0
    partition = Partition(GraphSchema(features={"x": 1}), parts, Fennel(gamma, slack))
    placed: dict[int, int] = {}
    masters, edges = [0] * parts, 0
    for v in range(300):
        known = sorted({int(w) for w in rng.integers(0, max(v, 1), 4)} & placed.keys())
        found = Counter(placed[w] for w in known)
        n, m = len(placed) + 1, edges + 1
        alpha = np.sqrt(parts) * m / n**gamma
        scores = [found[p] - alpha * gamma * masters[p] ** (gamma - 1) for p in range(parts)]
        fits = [p for p in range(parts) if masters[p] < slack * n / parts + 1]
        batch = EventBatch.of([vertex(v, neighbours=known, time=v)])
        log = partition.process(batch, 1).entry
        part = int(log.part[0])
        assert part in fits
        assert scores[part] == pytest.approx(max(scores[p] for p in fits))
        if edges > 20:  # before, parts are full at once
            assert all(log.part[1 + i] in (part, placed[w]) for i, w in enumerate(known))
        placed[v] = part
        masters[part] += 1
        edges += len(known)


def test_a_vertex_stream_has_fewer_replicas_than_its_edges_alone() -> None:
    rng, size = np.random.default_rng(5), 100  # eight communities, in random order
    order, seen, rows = rng.permutation(8 * size), dict[int, list[int]](), list[Event]()
    for v in order.tolist():
        community = seen.setdefault(v // size, [])
        near = {int(w) for w in rng.choice(community, 5)} if community else set[int]()
        rows.append(vertex(v, neighbours=sorted(near), time=len(rows)))
        community.append(v)
    whole = EventBatch.of(rows)
    edges = whole.take(np.flatnonzero(whole.element == Element.EDGE))
    replication = []
    for batch in (whole, edges):
        partition = Partition(GraphSchema(features={"x": 1}), 8, "fennel")
        partition.process(batch, 1)
        replication.append(partition.replication_factor)
    assert replication[0] < 0.9 * replication[1]
