"""Adjacency lists hold exactly the edges that a dictionary of slots holds, in both directions."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from d3gnn.kernel import adjacency as adjacency_module
from d3gnn.kernel.adjacency import BEGIN, EDGE, IN_PLACE, LENGTH, OTHER, OUT_PLACE, ROOM, Adjacency
from d3gnn.kernel.mapped_state import MappedPartState
from d3gnn.kernel.part_state import PartState
from d3gnn.types import Ints32

NOTHING32, NOTHING64 = np.zeros(0, np.int32), np.zeros(0, np.int64)
VERTICES, SLOTS = 5, 40

Edges = dict[int, tuple[int, int]]


def make(part_state: PartState | None = None) -> Adjacency:
    part_state = part_state or PartState()
    adjacency = Adjacency(part_state)
    adjacency.reserve(VERTICES, SLOTS)
    return adjacency


def ints(numbers: list[int]) -> Ints32:
    return np.array(numbers, np.int32)


def add(adjacency: Adjacency, edges: Edges) -> None:
    adjacency.add(
        ints(list(edges)), ints([u for u, _ in edges.values()]), ints([v for _, v in edges.values()])
    )


def remove(
    adjacency: Adjacency, slots: list[int], deleted_vertices: list[int]
) -> list[tuple[int, int, int, int]]:
    """Remove edges. The time of each is its slot, or 1000 + the vertex; the arrival is the negative time."""
    slot_time, deleted_time = np.array(slots, np.int64), np.array(deleted_vertices, np.int64) + 1000
    removed = adjacency.remove(
        ints(slots), slot_time, -slot_time, ints(deleted_vertices), deleted_time, -deleted_time
    )
    src, dst, slot, time, arrival = (column.tolist() for column in removed)
    assert len(set(slot)) == len(slot)
    return sorted(zip(src, dst, time, arrival, strict=True))


def check(adjacency: Adjacency, edges: Edges) -> None:
    assert adjacency.edge_count == len(edges)
    for side, end, place in ((adjacency.out, 0, OUT_PLACE), (adjacency.into, 1, IN_PLACE)):
        expected = defaultdict[int, list[tuple[int, int]]](list)
        for slot, ends in edges.items():
            expected[ends[end]].append((ends[1 - end], slot))
        used: list[int] = []
        for v in range(VERTICES):
            begin, length, room = side.segments[v, [BEGIN, LENGTH, ROOM]].tolist()
            assert length <= room
            found = side.pool[begin : begin + length]
            assert sorted(zip(found[:, OTHER].tolist(), found[:, EDGE].tolist(), strict=True)) == sorted(
                expected[v]
            )
            assert adjacency._edges.data[found[:, EDGE], place].tolist() == list(range(1, length + 1))
            used.extend(range(begin, begin + room))
        assert len(used) == len(set(used)), "two segments share a place in the pool"
        absent = [slot for slot in range(SLOTS) if slot not in edges]
        assert not adjacency._edges.data[absent, place].any()


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[list[int], list[int], Edges]]:
    """Batches of (slots to remove, vertices to delete, edges to add), as Partition would send them."""
    edges: Edges = {}
    deleted: set[int] = set()
    program = []
    for _ in range(draw(st.integers(1, 6))):
        slots = draw(st.lists(st.sampled_from(sorted(edges)), unique=True)) if edges else []
        here = [v for v in range(VERTICES) if v not in deleted]
        vs = draw(st.lists(st.sampled_from(here), unique=True, max_size=1)) if len(here) > 1 else []
        deleted |= set(vs)
        for slot in slots:
            del edges[slot]
        edges = {s: e for s, e in edges.items() if not deleted & set(e)}
        free = [s for s in range(SLOTS) if s not in edges]
        end = st.sampled_from([v for v in range(VERTICES) if v not in deleted])
        fresh = draw(st.lists(st.tuples(end, end), max_size=len(free)))  # includes loops and parallel edges
        added = dict(zip(draw(st.permutations(free)), fresh, strict=False))
        edges |= added
        program.append((slots, vs, added))
    return program


@pytest.mark.parametrize("compact_from", [0, 1 << 30])
@given(program=programs())
def test_adjacency_equals_a_dictionary(
    compact_from: int, program: list[tuple[list[int], list[int], Edges]]
) -> None:
    edges: Edges = {}
    with patch.object(adjacency_module, "_COMPACT_FROM", compact_from):
        adjacency = make()
        for slots, deleted_vertices, added in program:
            expected = []
            for slot in slots:
                expected.append((*edges.pop(slot), slot, -slot))
            for v in deleted_vertices:
                for slot in [s for s, ends in edges.items() if v in ends]:
                    expected.append((*edges.pop(slot), 1000 + v, -1000 - v))
            assert remove(adjacency, slots, deleted_vertices) == sorted(expected)
            add(adjacency, added)
            edges |= added
            check(adjacency, edges)


def test_an_edge_between_two_deleted_vertices_is_removed_once() -> None:
    adjacency = make()
    add(adjacency, {0: (1, 2), 1: (2, 1), 2: (1, 1)})
    assert len(remove(adjacency, [], [1, 2])) == 3
    check(adjacency, {})


def test_an_edge_removed_by_slot_is_not_removed_again_with_its_vertex() -> None:
    adjacency = make()
    add(adjacency, {0: (1, 2), 1: (1, 3)})
    assert remove(adjacency, [0], [1]) == [(1, 2, 0, 0), (1, 3, 1001, -1001)]


def test_gaps_of_deleted_hubs_are_compacted() -> None:
    """Hubs are created, grow and are deleted, one by one: the pool stays as large as a few of them."""
    part_state = PartState()
    adjacency = Adjacency(part_state)
    hubs, degree = 60, 300
    adjacency.reserve(hubs + degree, degree)
    slots, others = np.arange(degree, dtype=np.int32), np.arange(hubs, hubs + degree, dtype=np.int32)
    for hub in range(hubs):
        adjacency.add(slots, np.full(degree, hub, np.int32), others)
        out = adjacency.out
        reached = out.pool[out.segments[hub, BEGIN] :][:degree, OTHER]
        assert sorted(reached.tolist()) == others.tolist()
        removed = adjacency.remove(
            NOTHING32, NOTHING64, NOTHING64, ints([hub]), np.zeros(1, np.int64), np.zeros(1, np.int64)
        )
        assert len(removed.src) == degree
    assert len(adjacency.out.pool) < 40 * degree  # without compaction: 60 hubs of 512 + 256 + ... places
    assert adjacency.edge_count == 0


def test_compaction_keeps_the_remaining_edges() -> None:
    edges = {slot: (slot % 3, 3) for slot in range(SLOTS)}
    with patch.object(adjacency_module, "_COMPACT_FROM", 0):
        adjacency = make()
        add(adjacency, edges)
        before = int(adjacency._counters[0])
        for _ in range(20):  # growing segments leave gaps until the pool is full
            deleted = [slot for slot, (u, _) in edges.items() if u == 1]
            remove(adjacency, deleted, [])
            for slot in deleted:
                add(adjacency, {slot: edges[slot]})
            check(adjacency, edges)
        assert int(adjacency._counters[0]) <= 2 * before


def test_adjacency_continues_over_the_same_files(tmp_path: Path) -> None:
    edges: Edges = {}
    for round in range(4):
        part_state = MappedPartState(tmp_path)
        adjacency = make(part_state)
        check(adjacency, edges)
        remove(adjacency, [s for s in edges if s % 3 == round % 3], [])
        edges = {s: e for s, e in edges.items() if s % 3 != round % 3}
        added = {s: (s % VERTICES, round) for s in range(10 * round, 10 * round + 10) if s not in edges}
        add(adjacency, added)
        edges |= added
        check(adjacency, edges)
        part_state.close()
