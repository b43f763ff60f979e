"""Each rule of the protocol is broken in turn; the comparison with the oracle must fail.

The rules are those of docs/architecture.md ("The protocol that makes it exact"). Mutations change what
operators send and receive, so that they do not depend on how operators are implemented.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import Element, Event, EventBatch, delete_edge, delete_vertex, edge, feature, vertex
from d3gnn.events.check import order
from d3gnn.kernel.adjacency import Adjacency
from d3gnn.kernel.aggregators import EdgeArrays, Messages, aggregator_types
from d3gnn.kernel.blocks import Block, BlockKind, by_kind, split
from d3gnn.kernel.operators import Edge, Partition, Vertex
from d3gnn.kernel.operators import edge as edge_operator
from d3gnn.kernel.operators import partition as partition_operator
from d3gnn.kernel.operators import vertex as vertex_operator
from d3gnn.kernel.operators.part_graph import FollowedGraph
from d3gnn.kernel.operators.partition import PartitionedBatch
from d3gnn.kernel.operators.sharing import Shared
from d3gnn.kernel.topology import Topology, apart
from d3gnn.kernel.touched import NEVER
from d3gnn.nn import GNN, GCNConv, SAGEConv
from d3gnn.testing import OracleChecker, random_batches
from d3gnn.types import Array, Ints

Patch = pytest.MonkeyPatch
Blocks = list[Block]
SCHEMA = GraphSchema(features={"x": 3}, missing="hash")

# ---------------------------------------------------------------------- streams


def hub_and_ring() -> list[Event]:
    """A hub (0) and a ring (1 to 12), so that every part has a replica of the hub."""
    ring = range(1, 13)
    return [
        *(feature(i, [i / 3, -i / 5, 0.5]) for i in range(13)),
        *(edge(0, i) for i in ring),
        *(edge(i, 0) for i in ring),
        *(edge(i, i % 12 + 1) for i in ring),
    ]


#: The batches after `hub_and_ring`.
CRAFTED: dict[str, list[list[Event]]] = {
    "a value changes": [[feature(0, [2, 2, 2], time=1)], [feature(0, [-1, 2, 3], time=2)]],
    "a source gets replicas in other parts": [
        [vertex(30, [1, 2, 3], time=1)],
        [edge(30, i, time=2) for i in range(1, 13)],
        [feature(30, [3, 2, 1], time=3)],
    ],
    "a value changes and its edges are deleted": [
        [feature(0, [4, 4, 4], time=1), *(delete_edge(0, i, time=1) for i in range(1, 7))]
    ],
    "a value changes and edges are added": [
        [feature(0, [4, 4, 4], time=1), *(edge(0, i, time=1) for i in range(20, 26))]
    ],
    "the last edge of a destination is deleted": [[delete_edge(0, 5, time=1), delete_edge(4, 5, time=1)]],
    "a vertex is deleted, and created again later": [
        [delete_vertex(0, time=1)],
        [edge(0, 1, time=2), edge(2, 0, time=2)],
    ],
    "a vertex is deleted and created again in one batch": [[delete_vertex(3, time=1), edge(3, 4, time=1)]],
    "the newest vertex is deleted and created again": [
        [edge(1, 99, time=1)],
        [delete_vertex(99, time=2)],
        [edge(1, 99, time=3)],
    ],
    "an edge is created twice": [[edge(0, 1, time=1), edge(1, 2, time=1)]],
    "events are not in order": [
        [delete_edge(20, 21, time=5), edge(20, 21, time=4), edge(20, 22, time=3)],
        [edge(20, 21, time=7)._replace(arrival=1), delete_edge(20, 21, time=7)._replace(arrival=2)],
        [delete_edge(20, 22, time=8)._replace(arrival=4), edge(20, 22, time=8)._replace(arrival=3)],
    ],
    "a feature is late": [[feature(0, [5, 5, 5], time=9)], [feature(0, [6, 6, 6], time=8)]],
    "a large message is added and retracted": [
        [feature(40, [3e8, 3e8, 3e8], time=1), *(edge(i, 50, time=1) for i in range(40, 50))],
        [delete_vertex(40, time=2)],
    ],
}


def make_checker(parts: int = 3) -> OracleChecker:
    torch.manual_seed(4)
    # No activation, which could hide errors; one layer that sends its value, and one that narrows it.
    model = GNN([SAGEConv(3, 4, "mean"), SAGEConv(4, 2, "sum")])
    return OracleChecker(LocalEngine(model, parts=parts, partitioner="random", schema=SCHEMA))


def streams() -> Iterator[list[Any]]:
    for events in CRAFTED.values():
        yield [hub_and_ring(), *events]
    yield list(random_batches(SCHEMA, seed=1, n_batches=8, batch_size=60, n_vertices=20, delete_vertex=0.03))


def run_all() -> None:
    """Run every stream on three parts; AssertionError if the engine differs from the oracle."""
    for stream in streams():
        checker = make_checker()
        for events in stream:
            checker.apply(events)
    checker = make_checker(parts=1)
    for events in large_messages():
        checker.apply(events)
    torch.manual_seed(5)
    # The first layer leaves self-loops out, the second one does not.
    model = GNN([GCNConv(3, 4, normalize=False), SAGEConv(4, 2, "sum")])
    checker = OracleChecker(LocalEngine(model, parts=2, schema=SCHEMA))
    for events in ([*hub_and_ring(), edge(3, 3)], [edge(i, i, time=1) for i in range(4, 9)]):
        checker.apply(events)


def large_messages() -> Iterator[list[Event]]:
    """Messages that are large, but not so large that their destination is recomputed after them."""
    yield [*(feature(i, [7 / 3] * 3) for i in range(3)), edge(0, 2), edge(1, 2)]
    rng = np.random.default_rng(1)
    for n in range(1, 250):
        large, small = rng.uniform(1500, 2000, 3).tolist(), rng.uniform(2, 3, 3).tolist()
        yield [feature(0, large, time=n), feature(1, small, time=n)]
    yield [feature(0, [1, 1, 1], time=250)]


# ---------------------------------------------------------------------- mutations

MUTATIONS: dict[str, Callable[[Patch], None]] = {}


def breaks(rule: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(mutation: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTATIONS[f"{rule}: {mutation.__name__}"] = mutation
        return mutation

    return register


def kept(block: Block, mask: Array) -> Block:
    return replace(block, columns=tuple(column[mask] for column in block.columns))


def change_partition(patch: Patch, change: Callable[[Partition, Blocks], Blocks]) -> None:
    """Change what Partition sends."""
    process = Partition.process

    def changed(self: Partition, batch: EventBatch, clock: int, replay: Any = None) -> PartitionedBatch:
        result = process(self, batch, clock, replay)
        return replace(result, blocks=change(self, result.blocks))

    patch.setattr(Partition, "process", changed)


def change_input(patch: Patch, operator: type[Vertex] | type[Edge], change: Callable[[Block], Block]) -> None:
    """Change what an operator receives, block by block."""
    step = operator.step

    def changed(self: Any, part: int, topology: Topology, blocks: Blocks, context: Any) -> Blocks:
        topology, rest = apart([change(block) for block in (*topology.blocks, *blocks)])
        return step(self, part, topology, rest, context)

    patch.setattr(operator, "step", changed)


def change_output(
    patch: Patch, operator: type[Vertex] | type[Edge], change: Callable[[Any, int, Blocks, Blocks], Blocks]
) -> None:
    """Change what an operator sends: `change` gets the operator, the part, received and sent blocks."""
    step = operator.step

    def changed(self: Any, part: int, topology: Topology, blocks: Blocks, context: Any) -> Blocks:
        sent = [*step(self, part, topology, blocks, context), *self.flush(part)]
        return change(self, part, [*topology.blocks, *blocks], sent)

    patch.setattr(operator, "step", changed)


def change_aggregator(patch: Patch, method: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the arrays, by name, that an aggregator's method is called with; never pull."""
    patch.setattr(edge_operator, "prefers_pull", lambda *_: False)
    for kind in aggregator_types():
        original = getattr(kind, method)
        signature = inspect.signature(original)

        def changed(*args: Any, _original: Any = original, _signature: Any = signature) -> Any:
            bound = _signature.bind(*args)
            arrays = bound.arguments["arrays"]._asdict()
            change(arrays)
            bound.arguments["arrays"] = EdgeArrays(**arrays)
            return _original(*bound.args)

        patch.setattr(kind, method, changed)


# ---------------------------------------------------------------------- rule 1: order, repeats, deletes, ids


@breaks("1")
def a_batch_is_not_sorted(patch: Patch) -> None:
    patch.setattr(partition_operator, "order_of", lambda _: None)


@breaks("1")
def a_batch_is_sorted_by_time_alone(patch: Patch) -> None:
    def by_time(batch: EventBatch) -> Ints | None:
        return order(replace(batch, arrival=None, partition=None, offset=None))

    patch.setattr(partition_operator, "order_of", by_time)


@breaks("1")
def repeats_are_not_ignored(patch: Patch) -> None:
    make = Partition.__init__

    def without(self: Partition, schema: GraphSchema, *args: Any) -> None:
        make(self, replace(schema, edges="multi"), *args)

    patch.setattr(Partition, "__init__", without)


@breaks("1")
def a_vertex_delete_is_sent_only_to_the_part_of_its_master(patch: Patch) -> None:
    def change(_: Partition, blocks: Blocks) -> Blocks:
        masters = {block.target for block in blocks if block.kind is BlockKind.VERTEX_DELETES}
        return [b for b in blocks if b.kind is not BlockKind.REPLICA_DELETES or b.target in masters]

    change_partition(patch, change)


@breaks("1")
def internal_ids_are_reused(patch: Patch) -> None:
    def change(partition: Partition, blocks: Blocks) -> Blocks:
        deleted = sum(len(block) for block in blocks if block.kind is BlockKind.VERTEX_DELETES)
        partition.graph().counters[0] -= deleted  # the newest ids are assigned again
        return blocks

    change_partition(patch, change)


@breaks("1")
def the_last_feature_update_in_a_batch_wins(patch: Patch) -> None:
    process = Partition.process

    def timeless(self: Partition, batch: EventBatch, clock: int, replay: Any = None) -> PartitionedBatch:
        time = np.where(batch.element == Element.FEATURE, 100, batch.time)
        return process(self, replace(batch, time=time), clock, replay)

    patch.setattr(Partition, "process", timeless)


# ---------------------------------------------------------------------- rule 2: values


@breaks("2")
def a_changed_value_is_sent_only_to_new_replicas(patch: Patch) -> None:
    def change(_: Vertex, part: int, received: Blocks, sent: Blocks) -> Blocks:
        new = {
            (target, slot)
            for block in received
            if block.kind is BlockKind.SOURCES
            for target, slot in zip(block.columns[1].tolist(), block.columns[2].tolist(), strict=True)
        }
        return [
            kept(
                block, np.array([(block.target, slot) in new for slot in block.columns[0].tolist()], np.bool_)
            )
            if block.kind is BlockKind.VALUES and block.target != part
            else block
            for block in sent
        ]

    change_output(patch, Vertex, change)


@breaks("2")
def an_unchanged_value_is_not_sent_to_new_replicas(patch: Patch) -> None:
    def change(_: Vertex, __: int, ___: Blocks, sent: Blocks) -> Blocks:
        return [kept(b, b.columns[2] != NEVER) if b.kind is BlockKind.VALUES else b for b in sent]

    change_output(patch, Vertex, change)


@breaks("2")
def masters_are_not_notified_of_new_replicas(patch: Patch) -> None:
    change_partition(patch, lambda _, blocks: [b for b in blocks if b.kind is not BlockKind.SOURCES])


@breaks("2")
def values_travel_as_differences(patch: Patch) -> None:
    last: dict[tuple[Any, ...], Array] = {}

    def change(vertex: Vertex, _: int, __: Blocks, sent: Blocks) -> Blocks:
        out = []
        for block in sent:
            if block.kind is BlockKind.VALUES:
                *rest, values = block.columns
                difference = values.copy()
                for i, slot in enumerate(block.columns[0].tolist()):
                    at = (id(vertex), block.target, slot)
                    difference[i] -= last.get(at, np.float32(0))
                    last[at] = values[i].copy()
                block = replace(block, columns=(*rest, difference))
            out.append(block)
        return out

    change_output(patch, Vertex, change)


@breaks("2")
def differences_are_taken_against_a_copy_that_is_not_kept(patch: Patch) -> None:
    def change(arguments: dict[str, Any]) -> None:
        arguments["values"] = arguments["values"].copy()

    change_aggregator(patch, "replace", change)


@breaks("2")
def a_changed_root_is_not_passed_on(patch: Patch) -> None:
    seen: set[tuple[Any, ...]] = set()

    def change(edge: Edge, part: int, _: Blocks, sent: Blocks) -> Blocks:
        out = []
        for block in sent:
            if block.kind is BlockKind.ROOTS:
                at = [(id(edge), part, row) for row in block.columns[0].tolist()]
                block = kept(block, np.array([a not in seen for a in at], np.bool_))
                seen.update(at)
            out.append(block)
        return out

    change_output(patch, Edge, change)


# ---------------------------------------------------------------------- rule 3: the order inside Edge


@breaks("3")
def removed_edges_are_retracted_with_new_values(patch: Patch) -> None:
    fresh: list[tuple[Array, Array]] = []
    step = Edge.step

    def watch(self: Edge, part: int, topology: Topology, blocks: Blocks, context: Any) -> Blocks:
        fresh[:] = [
            (block.columns[0], block.columns[-1]) for block in blocks if block.kind is BlockKind.VALUES
        ]
        return step(self, part, topology, blocks, context)

    def change(arguments: dict[str, Any]) -> None:
        arguments["values"] = arguments["values"].copy()
        for slot, values in fresh:
            arguments["values"][slot] = values

    patch.setattr(Edge, "step", watch)
    change_aggregator(patch, "retract", change)


@breaks("3")
def removed_edges_are_not_retracted(patch: Patch) -> None:
    def change(arguments: dict[str, Any]) -> None:
        arguments["values"] = np.zeros_like(arguments["values"])

    change_aggregator(patch, "retract", change)


@breaks("3")
def new_edges_carry_old_values(patch: Patch) -> None:
    old: list[Array] = []
    step = Edge.step

    def watch(self: Edge, part: int, topology: Topology, blocks: Blocks, context: Any) -> Blocks:
        old.clear()
        return step(self, part, topology, blocks, context)

    def remember(arguments: dict[str, Any]) -> None:
        if not old:
            old.append(arguments["values"].copy())

    def change(arguments: dict[str, Any]) -> None:
        if old:
            arguments["values"] = old[0]

    patch.setattr(Edge, "step", watch)
    change_aggregator(patch, "replace", remember)
    change_aggregator(patch, "add", change)


# ---------------------------------------------------------------------- rule 3, with one adjacency per part


@breaks("3")
def later_layers_count_new_edges_among_those_that_stay(patch: Patch) -> None:
    take = FollowedGraph.take_removes
    patch.setattr(FollowedGraph, "take_removes", lambda self, topology, reads: take(self, topology, False))
    patch.setattr(edge_operator, "prefers_pull", lambda *_: False)


@breaks("3")
def later_layers_forget_the_removed_edges(patch: Patch) -> None:
    take = FollowedGraph.take_removes
    patch.setattr(
        FollowedGraph, "take_removes", lambda self, topology, reads: take(self, topology, reads) and None
    )


@breaks("3")
def later_layers_forget_the_new_edges(patch: Patch) -> None:
    take = FollowedGraph.take_adds

    def forgetful(self: FollowedGraph, adds: Block) -> Messages:
        src, dst, slot, time, arrival = take(self, adds)
        return Messages(src[:0], dst[:0], slot[:0], time[:0], arrival[:0])

    patch.setattr(FollowedGraph, "take_adds", forgetful)


@breaks("3")
def new_edges_stay_hidden_after_a_later_layer(patch: Patch) -> None:
    patch.setattr(Adjacency, "show", lambda *_: None)


@breaks("3")
def layers_share_their_edges_whether_they_skip_self_loops_or_not(patch: Patch) -> None:
    graph = Shared.graph
    patch.setattr(Shared, "graph", lambda self, _: graph(self, True))


# ---------------------------------------------------------------------- rule 4: partials


@breaks("4")
def a_count_of_0_does_not_delete_a_partial(patch: Patch) -> None:
    change_input(
        patch,
        Vertex,
        lambda block: kept(block, block.columns[1] > 0) if block.kind is BlockKind.PARTIALS else block,
    )


@breaks("4")
def a_partial_is_added_to_the_last_one(patch: Patch) -> None:
    last: dict[tuple[Any, ...], Array] = {}

    def change(edge: Edge, part: int, _: Blocks, sent: Blocks) -> Blocks:
        out = []
        for block in sent:
            if block.kind is BlockKind.PARTIALS:
                *rest, state = block.columns
                total = state.copy()
                for i, row in enumerate(block.columns[0].tolist()):
                    at = (id(edge), part, block.target, row)
                    total[i] += last.get(at, np.float32(0))
                    last[at] = total[i].copy()
                block = replace(block, columns=(*rest, total))
            out.append(block)
        return out

    change_output(patch, Edge, change)


@breaks("4")
def there_is_one_partial_per_destination_and_not_one_per_part(patch: Patch) -> None:
    change_input(patch, Vertex, lambda b: replace(b, source=0) if b.kind is BlockKind.PARTIALS else b)


@breaks("4")
def sums_are_kept_in_float32(patch: Patch) -> None:
    for method in ("add", "replace", "retract"):
        # Rounded before every change, which is equivalent to rounding after it.
        def rounded(arguments: dict[str, Any]) -> None:
            arguments["state"][...] = arguments["state"].astype(np.float32)

        change_aggregator(patch, method, rounded)


# ---------------------------------------------------------------------- output rows


@breaks("one row per id")
def a_vertex_that_was_created_again_has_a_tombstone(patch: Patch) -> None:
    _set_tombstones(patch, 1)


@breaks("tombstones")
def a_deleted_vertex_has_no_tombstone(patch: Patch) -> None:
    _set_tombstones(patch, 0)


def _set_tombstones(patch: Patch, value: int) -> None:
    def change(block: Block) -> Block:
        if block.kind is not BlockKind.VERTEX_DELETES:
            return block
        row, tombstone, *rest = block.columns
        return replace(block, columns=(row, np.full_like(tombstone, value), *rest))

    change_input(patch, Vertex, change)


# ---------------------------------------------------------------------- the tests


@pytest.mark.parametrize("pulls", [True, False, None])
def test_the_protocol_holds(pulls: bool | None, monkeypatch: Patch) -> None:
    if pulls is not None:
        monkeypatch.setattr(edge_operator, "prefers_pull", lambda *_: pulls)
    run_all()


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_broken_rule_is_detected(mutation: str, monkeypatch: Patch) -> None:
    MUTATIONS[mutation](monkeypatch)
    with pytest.raises(AssertionError):
        run_all()


def _thin(patch: Patch) -> None:
    """Let Edge omit from FULL blocks the touched destinations that have no messages."""
    patch.setattr(edge_operator, "prefers_pull", lambda *_: True)

    def change(_: Edge, __: int, ___: Blocks, sent: Blocks) -> Blocks:
        roots = [block.columns[0] for block in sent if block.kind is BlockKind.ROOTS]
        touched = np.concatenate(roots) if roots else np.zeros(0, np.int32)
        return [kept(b, (b.columns[1] > 0) | ~np.isin(b.columns[0], touched)) if b.full else b for b in sent]

    change_output(patch, Edge, change)


def _whole_parts() -> None:
    checker = make_checker(parts=2)  # with one, Vertex reads what it has in common with Edge
    checker.apply(hub_and_ring())
    # 5 loses its in-edges, and every value changes: the part recomputes all destinations.
    checker.apply(
        [
            delete_edge(0, 5, time=1),
            delete_edge(4, 5, time=1),
            *(feature(i, [i, 1, -i], time=1) for i in range(13)),
        ]
    )


def test_a_full_block_clears_earlier_partials(monkeypatch: Patch) -> None:
    _thin(monkeypatch)
    _whole_parts()
    change_input(monkeypatch, Vertex, lambda block: replace(block, full=False))
    with pytest.raises(AssertionError):
        _whole_parts()


def test_the_pieces_of_a_block_are_processed_in_order(monkeypatch: Patch) -> None:
    monkeypatch.setattr(edge_operator, "prefers_pull", lambda *_: True)
    step = Vertex.step

    def backwards(self: Vertex, part: int, topology: Topology, blocks: Blocks, context: Any) -> Blocks:
        pieces = [piece for block in (*topology.blocks, *blocks) for piece in split(block, limit=1)]
        return step(self, part, *apart(pieces[::-1]), context)

    monkeypatch.setattr(Vertex, "step", backwards)
    run_all()
    in_order = by_kind

    def unsorted(blocks: Blocks) -> list[Blocks]:
        found = in_order(blocks)
        return [[block for block in blocks if block.kind == kind] for kind, _ in enumerate(found)]

    monkeypatch.setattr(vertex_operator, "by_kind", unsorted)
    with pytest.raises(AssertionError):
        run_all()
