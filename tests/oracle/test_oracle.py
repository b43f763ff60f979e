"""The oracle: its forward pass compared with PyG, its events with the documentation."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch_geometric.nn import SAGEConv as PyGSAGEConv

from d3gnn.events import (
    EdgeMode,
    Event,
    EventBatch,
    GraphSchema,
    Key,
    Reason,
    delete_edge,
    delete_feature,
    delete_vertex,
    edge,
    edge_feature,
    feature,
    label,
    vertex,
)
from d3gnn.events.keys import keys_of
from d3gnn.kernel.hashing import initial_values
from d3gnn.nn import GNN, GraphSAGE, Layer, SAGEConv
from d3gnn.nn.models import sage_from_widths
from d3gnn.oracle import Oracle, embeddings, forward, relative_error
from d3gnn.types import Floats, Ints

APPLIED, REPEATED, LATE = Reason.APPLIED, Reason.REPEATED, Reason.LATE
NO_SUCH_VERTEX, NO_SUCH_EDGE = Reason.NO_SUCH_VERTEX, Reason.NO_SUCH_EDGE
WRONG_ID_TYPE = Reason.WRONG_ID_TYPE


def oracle(edges: EdgeMode = "simple", *, directed: bool = True) -> Oracle:
    edge_features = {} if edges == "append" else {"w": 1}
    return Oracle(GraphSchema(edges, directed, {"x": 2, "y": 1}, edge_features, missing="hash"))


def update(event: Event) -> Event:
    return event._replace(op="update")


def delete_edge_feature(src: Key, dst: Key, *, time: int = 0) -> Event:
    return Event("delete", "edge_feature", src, dst, time=time)


def delete_label(id: Key, *, time: int = 0) -> Event:
    return Event("delete", "label", id, time=time)


def x_of(graph: Oracle, id: Key) -> list[float]:
    row: list[float] = graph.inputs()[graph.vertices.index(id)].tolist()
    return row


def initial(id: Key, width: int = 3) -> list[float]:
    values: list[float] = initial_values(keys_of([id]), width)[0].tolist()
    return values


class TestForward:
    @pytest.mark.parametrize("aggregator", ["mean", "sum"])
    @pytest.mark.parametrize("widths", [[5, 3], [3, 5], [4, 4], [8, 16, 4], [4, 3, 6], [6, 9, 9, 2]])
    @pytest.mark.parametrize("seed", [1, 2])
    def test_equals_torch_geometric(self, aggregator: str, widths: list[int], seed: int) -> None:
        model = sage_from_widths(widths, aggr=aggregator, seed=seed)
        x, src, dst = random_multigraph(seed, widths[0])
        expected = with_torch_geometric(model, x, src, dst)
        got = forward(model, x, src, dst)
        assert got.dtype == np.float32
        assert got.shape == (len(x), widths[-1])
        assert relative_error(got, expected) < 1e-5

    def test_goes_through_many_edges_in_chunks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = GraphSAGE(4, 4, 1, seed=1)
        x, src, dst = random_multigraph(3, 4)
        whole = forward(model, x, src, dst)
        monkeypatch.setattr("d3gnn.nn.forward._CHUNK", 7)
        np.testing.assert_allclose(forward(model, x, src, dst), whole, rtol=1e-6)

    @pytest.mark.parametrize("aggregator", ["mean", "sum"])
    def test_a_vertex_without_in_edges_aggregates_to_zero(self, aggregator: str) -> None:
        model = GNN([SAGEConv(2, 2, aggregator)])
        x, none = np.ones((1, 2), np.float32), np.zeros(0, np.int64)
        layer = model.layers[0]
        with torch.no_grad():
            expected = layer.update(torch.ones(1, 2), torch.zeros(1, 2)).numpy()
        np.testing.assert_array_equal(forward(model, x, none, none), expected)

    def test_an_empty_graph_gives_an_empty_matrix(self) -> None:
        none = np.zeros(0, np.int64)
        assert forward(GraphSAGE(2, 3, 1, seed=1), np.zeros((0, 2), np.float32), none, none).shape == (0, 3)

    def test_sums_do_not_lose_what_is_small(self) -> None:
        """Float32 would: 2^24 + 1 is not among its numbers."""
        layer = SAGEConv(1, 1, "sum")
        with torch.no_grad():
            layer.lin_l.weight.fill_(1)
            layer.lin_l.bias.fill_(0)
            layer.lin_r.weight.fill_(0)
        x = np.array([[2.0**24], [1.0], [-(2.0**24)], [0.0]], np.float32)
        out = forward(GNN([layer]), x, np.array([0, 1, 2]), np.array([3, 3, 3]))
        assert out[3] == 1

    def test_an_unknown_aggregator_is_named(self) -> None:
        layer: Layer = SAGEConv(1, 1)
        layer.aggr = "median"
        none = np.zeros(0, np.int64)
        with pytest.raises(ValueError, match="unknown aggregation 'median'; known are sum"):
            forward(GNN([layer]), np.zeros((1, 1), np.float32), none, none)

    def test_embeddings_are_named_by_id(self) -> None:
        model = GraphSAGE(3, 4, 2, 2, seed=1)
        graph = oracle()
        graph.apply([edge("a", "b"), edge("b", "c"), vertex("d", [1, 2], name="x")])
        by_id = embeddings(model, graph)
        assert list(by_id) == ["a", "b", "c", "d"]
        whole = forward(model, graph.inputs(), np.array([0, 1]), np.array([1, 2]))
        np.testing.assert_array_equal(np.stack(list(by_id.values())), whole)


class TestRelativeError:
    def test_is_measured_by_the_largest_expected(self) -> None:
        expected = np.array([[1.0, -4.0], [0.0, 0.0]])
        assert relative_error(expected + np.array([[0, 0], [0, 0.5]]), expected) == 0.125

    def test_of_nothing_is_zero(self) -> None:
        assert relative_error(np.zeros((0, 4)), np.zeros((0, 4))) == 0

    def test_where_zero_is_expected_is_the_difference(self) -> None:
        assert relative_error(np.full((2, 2), 0.25), np.zeros((2, 2))) == 0.25

    def test_of_nan_is_never_small(self) -> None:
        assert not relative_error(np.array([np.nan]), np.array([1.0])) < 1e-5

    def test_of_other_shapes_is_refused(self) -> None:
        with pytest.raises(ValueError, match="shapes"):
            relative_error(np.zeros((1, 4)), np.zeros((2, 4)))


class TestOrder:
    def test_time_orders_a_batch(self) -> None:
        graph = oracle()
        assert graph.apply([delete_edge(1, 2, time=5), edge(1, 2, time=4)]) == [APPLIED, APPLIED]
        assert graph.edges() == []

    def test_reasons_come_in_the_order_of_rows(self) -> None:
        assert oracle().apply([delete_edge(1, 2, time=3), edge(1, 2, time=4)]) == [NO_SUCH_EDGE, APPLIED]

    @pytest.mark.parametrize("column", ["arrival", "partition", "offset"])
    def test_equal_times_are_ordered_by_the_other_columns(self, column: str) -> None:
        graph = oracle()
        last = edge(1, 2)._replace(**{column: 2})  # type: ignore[arg-type]
        first = delete_edge(1, 2)._replace(**{column: 1})  # type: ignore[arg-type]
        assert graph.apply([last, first]) == [APPLIED, NO_SUCH_EDGE]

    def test_nulls_come_first(self) -> None:
        graph = oracle()
        graph.apply([feature(1, [1, 1])._replace(arrival=0), feature(1, [2, 2])])
        assert x_of(graph, 1)[:2] == [1, 1]

    def test_rows_decide_last(self) -> None:
        graph = oracle()
        graph.apply([feature(1, [1, 1]), feature(1, [2, 2])])
        assert x_of(graph, 1)[:2] == [2, 2]

    def test_batches_apply_one_after_another_whatever_their_times(self) -> None:
        graph = oracle()
        graph.apply([edge(1, 2, time=9)])
        assert graph.apply([delete_edge(1, 2, time=1)]) == [APPLIED]


class TestBadEvents:
    def test_are_in_no_way_applied(self) -> None:
        graph = oracle()
        bad = [edge(1, 2, [1, 2, 3]), feature(3, [float("nan"), 0]), Event("create", "edge", 4, None)]
        assert graph.apply(bad) == [Reason.WRONG_WIDTH, Reason.NOT_FINITE, Reason.NULL_ID]
        assert graph.vertices == []

    def test_ids_keep_the_type_that_they_began_with(self) -> None:
        graph = oracle()
        assert graph.apply([edge(1, 2)]) == [APPLIED]
        assert graph.apply([vertex("1"), edge("a", "b")]) == [WRONG_ID_TYPE] * 2
        assert graph.apply([vertex(3)]) == [APPLIED]

    def test_another_reason_goes_before_the_type(self) -> None:
        graph = oracle()
        graph.apply([edge(1, 2)])
        assert graph.apply([feature("a", [1])]) == [Reason.WRONG_WIDTH]

    def test_ends_of_two_types_are_wrong_and_the_rest_of_the_batch_is_not(self) -> None:
        assert oracle().apply([edge(1, "2"), vertex(3)]) == [WRONG_ID_TYPE, APPLIED]

    def test_a_dead_letter_does_not_fix_the_type(self) -> None:
        graph = oracle()
        graph.apply([])
        graph.apply([Event("create", "vertex", None)])
        graph.apply([feature(7, [1])])
        assert graph.apply([vertex("a")]) == [APPLIED]

    def test_edge_keys_keep_the_type_that_they_began_with(self) -> None:
        graph = oracle("keyed")
        assert graph.apply([vertex(1), vertex(2)]) == [APPLIED] * 2
        assert graph.apply([edge(1, 2, key="a")]) == [APPLIED]
        assert graph.apply([edge(1, 2, key=1), vertex(5)]) == [WRONG_ID_TYPE, APPLIED]


class TestVertices:
    def test_create(self) -> None:
        graph = oracle()
        assert graph.apply([vertex(1), vertex(1)]) == [APPLIED, REPEATED]
        assert graph.vertices == [1]

    def test_create_with_a_value_sets_the_feature(self) -> None:
        graph = oracle()
        assert graph.apply([vertex(1, [1, 2], time=5)]) == [APPLIED]
        assert graph.apply([vertex(1, [3, 4], time=6)]) == [APPLIED]
        assert graph.apply([vertex(1, [5, 6], time=5)]) == [LATE]
        assert x_of(graph, 1)[:2] == [3, 4]

    def test_update_needs_the_vertex(self) -> None:
        graph = oracle()
        assert graph.apply([update(vertex(1, [1, 2]))]) == [NO_SUCH_VERTEX]
        assert graph.apply([vertex(1), update(vertex(1, [1, 2]))]) == [APPLIED, APPLIED]
        assert x_of(graph, 1)[:2] == [1, 2]

    def test_delete_takes_the_edges_along(self) -> None:
        graph = oracle()
        graph.apply([edge(1, 2), edge(2, 1), edge(2, 3), edge(2, 2), edge(3, 1)])
        assert graph.apply([delete_vertex(2), delete_vertex(2)]) == [APPLIED, NO_SUCH_VERTEX]
        assert (graph.vertices, graph.edges()) == ([1, 3], [(3, 1)])
        assert graph.apply([delete_edge(1, 2)]) == [NO_SUCH_EDGE]

    def test_delete_takes_all_copies_along(self) -> None:
        graph = oracle("multi")
        graph.apply([edge(1, 2, [7]), edge(1, 2, [8]), delete_vertex(1), edge(1, 2)])
        assert graph.edges() == [(1, 2)]
        assert graph.edge_features(1, 2) == [{}]

    def test_creating_again_starts_afresh(self) -> None:
        graph = oracle()
        graph.apply([feature(1, [1, 2], time=9), label(1, 3, time=9), vertex(2, time=9)])
        graph.apply([delete_vertex(1, time=10)])
        assert graph.apply([vertex(1, time=10)]) == [APPLIED]
        assert graph.vertices == [2, 1]
        assert x_of(graph, 1) == initial(1)
        assert graph.labels == {}
        assert graph.apply([feature(1, [5, 6], time=10), label(1, 4, time=10)]) == [APPLIED, APPLIED]

    def test_events_that_are_older_than_the_delete_are_late(self) -> None:
        graph = oracle()
        graph.apply([edge(1, 2, time=9), delete_vertex(1, time=10)])
        late = [vertex(1, time=9), feature(1, [5, 6], time=9), label(1, 4, time=9), edge(2, 1, time=9)]
        assert graph.apply(late) == [LATE] * 4
        assert graph.apply([edge(1, 3, time=9), update(feature(1, [1, 2], time=9))]) == [LATE, NO_SUCH_VERTEX]
        assert graph.vertices == [2]
        assert graph.apply([edge(1, 2, time=10)]) == [APPLIED]
        assert graph.apply(late) == [LATE] * 4

    def test_deletes_are_forgotten_after_a_much_newer_one(self) -> None:
        graph = Oracle(GraphSchema(tombstones=5))
        graph.apply([vertex(1), vertex(2), delete_vertex(1, time=10), delete_vertex(2, time=15)])
        assert graph.apply([vertex(1, time=9), vertex(2, time=9)]) == [LATE, LATE]
        graph.apply([vertex(3), delete_vertex(3, time=16)])
        assert graph.apply([vertex(1, time=9), vertex(2, time=9)]) == [APPLIED, LATE]


class TestFeatures:
    def test_create_makes_the_vertex_and_update_does_not(self) -> None:
        graph = oracle()
        assert graph.apply([feature(1, [1, 2]), update(feature(2, [1, 2]))]) == [APPLIED, NO_SUCH_VERTEX]
        assert graph.vertices == [1]

    def test_the_input_holds_them_side_by_side_and_initial_values_between(self) -> None:
        graph = oracle()
        graph.apply(
            [feature("a", [5], name="y"), vertex("b"), feature("c", [1, 2]), feature("c", [3], name="y")]
        )
        assert x_of(graph, "a") == [*initial("a")[:2], 5]
        assert x_of(graph, "b") == initial("b")
        assert x_of(graph, "c") == [1, 2, 3]

    def test_the_last_writer_wins_by_time(self) -> None:
        graph = oracle()
        graph.apply([feature(1, [1, 1], time=5)])
        assert graph.apply([feature(1, [2, 2], time=4)]) == [LATE]
        assert graph.apply([feature(1, [3, 3], time=5)]) == [APPLIED]
        assert x_of(graph, 1)[:2] == [3, 3]

    def test_each_name_has_its_own_time(self) -> None:
        graph = oracle()
        graph.apply([feature(1, [1, 1], time=5)])
        assert graph.apply([feature(1, [2], name="y", time=4)]) == [APPLIED]

    def test_delete_falls_back_to_the_initial_value_and_leaves_its_time(self) -> None:
        graph = oracle()
        graph.apply([feature(1, [1, 1], time=5), delete_feature(1, time=6)])
        assert x_of(graph, 1) == initial(1)
        assert graph.apply([feature(1, [2, 2], time=5)]) == [LATE]
        assert graph.apply([delete_feature(1, time=5), delete_feature(1, time=6)]) == [LATE, APPLIED]
        assert graph.apply([delete_feature(2)]) == [NO_SUCH_VERTEX]


class TestEdges:
    def test_create_makes_the_ends_source_first(self) -> None:
        graph = oracle()
        graph.apply([edge(5, 3), edge(4, 5)])
        assert graph.vertices == [5, 3, 4]

    @pytest.mark.parametrize(
        ("mode", "reasons", "copies"),
        [("simple", [APPLIED, REPEATED], 1), ("multi", [APPLIED] * 2, 2), ("append", [APPLIED] * 2, 2)],
    )
    def test_a_repeated_edge(self, mode: EdgeMode, reasons: list[Reason], copies: int) -> None:
        graph = oracle(mode)
        assert graph.apply([edge(1, 2), edge(1, 2)]) == reasons
        assert graph.edges() == [(1, 2)] * copies

    def test_keys_tell_edges_apart(self) -> None:
        graph = oracle("keyed")
        events = [edge(1, 2, key="a"), edge(1, 2, key="b"), edge(1, 2, key="a"), delete_edge(1, 2, key="b")]
        assert graph.apply(events) == [APPLIED, APPLIED, REPEATED, APPLIED]
        assert graph.edges() == [(1, 2)]
        assert graph.apply([delete_edge(1, 2, key="b"), delete_edge(1, 2, key="a")]) == [
            NO_SUCH_EDGE,
            APPLIED,
        ]

    def test_a_repeat_with_a_value_sets_the_feature(self) -> None:
        graph = oracle()
        events = [edge(1, 2, [1], time=5), edge(1, 2, [2], time=6)]
        assert graph.apply(events) == [APPLIED, APPLIED]
        assert graph.apply([edge(1, 2, [3], time=4)]) == [LATE]
        assert graph.edge_features(1, 2) == [{"w": (2,)}]

    def test_update_needs_the_edge(self) -> None:
        graph = oracle()
        assert graph.apply([update(edge(1, 2, [1])), vertex(1), vertex(2)]) == [
            NO_SUCH_EDGE,
            APPLIED,
            APPLIED,
        ]
        assert graph.apply([update(edge(1, 2, [1])), edge(1, 2)]) == [NO_SUCH_EDGE, APPLIED]
        assert graph.apply([update(edge(1, 2, [1]))]) == [APPLIED]
        assert graph.edge_features(1, 2) == [{"w": (1,)}]

    def test_delete_needs_the_edge_and_leaves_the_ends(self) -> None:
        graph = oracle()
        events = [edge(1, 2), delete_edge(2, 1), delete_edge(1, 2), delete_edge(1, 2)]
        assert graph.apply(events) == [APPLIED, NO_SUCH_EDGE, APPLIED, NO_SUCH_EDGE]
        assert (graph.vertices, graph.edges()) == ([1, 2], [])

    def test_delete_takes_the_newest_copy(self) -> None:
        graph = oracle("multi")
        graph.apply([edge(1, 2, [1]), edge(1, 2, [2]), edge(1, 2, [3]), delete_edge(1, 2)])
        assert graph.edge_features(1, 2) == [{"w": (1,)}, {"w": (2,)}]

    def test_creating_again_forgets_features_and_their_times(self) -> None:
        graph = oracle()
        graph.apply([edge(1, 2, [1], time=9), delete_edge(1, 2, time=9)])
        assert graph.apply([edge(1, 2, time=1)]) == [APPLIED]
        assert graph.edge_features(1, 2) == [{}]
        assert graph.apply([edge_feature(1, 2, [5], time=1)]) == [APPLIED]

    def test_append_only(self) -> None:
        graph = oracle("append")
        assert graph.apply([edge(1, 2), delete_edge(1, 2)]) == [APPLIED, Reason.APPEND_ONLY]
        assert graph.apply([delete_vertex(1)]) == [APPLIED]
        assert graph.edges() == []


class TestEdgeFeatures:
    def test_need_the_edge(self) -> None:
        events = [edge_feature(1, 2, [1]), update(edge_feature(1, 2, [1])), delete_edge_feature(1, 2)]
        assert oracle().apply(events) == [NO_SUCH_EDGE] * 3

    def test_the_last_writer_wins_by_time(self) -> None:
        graph = oracle()
        graph.apply([edge(1, 2), edge_feature(1, 2, [1], time=5)])
        assert graph.apply([edge_feature(1, 2, [2], time=4)]) == [LATE]
        assert graph.apply([update(edge_feature(1, 2, [3], time=5))]) == [APPLIED]
        assert graph.edge_features(1, 2) == [{"w": (3,)}]

    def test_delete_leaves_none_and_its_time(self) -> None:
        graph = oracle()
        graph.apply([edge(1, 2, [1], time=5), delete_edge_feature(1, 2, time=6)])
        assert graph.edge_features(1, 2) == [{}]
        assert graph.apply([edge_feature(1, 2, [2], time=5)]) == [LATE]

    def test_are_those_of_the_newest_copy(self) -> None:
        graph = oracle("multi")
        graph.apply([edge(1, 2, [1], time=9), edge(1, 2, time=9)])
        assert graph.apply([edge_feature(1, 2, [2], time=1)]) == [APPLIED]
        assert graph.edge_features(1, 2) == [{"w": (1,)}, {"w": (2,)}]

    def test_of_no_edge_are_none(self) -> None:
        assert oracle().edge_features(1, 2) == []


class TestUndirected:
    def test_both_directions_name_one_edge(self) -> None:
        graph = oracle(directed=False)
        assert graph.apply([edge(1, 2), edge(2, 1)]) == [APPLIED, REPEATED]
        assert sorted(graph.edges()) == [(1, 2), (2, 1)]
        assert graph.apply([edge_feature(2, 1, [4])]) == [APPLIED]
        assert graph.edge_features(1, 2) == [{"w": (4,)}]
        assert graph.apply([delete_edge(2, 1)]) == [APPLIED]
        assert graph.edges() == []

    def test_a_self_loop_is_one_directed_edge(self) -> None:
        graph = oracle(directed=False)
        graph.apply([edge("a", "a")])
        assert graph.edges() == [("a", "a")]
        assert graph.apply([delete_edge("a", "a")]) == [APPLIED]

    def test_copies_of_both_directions_are_copies_of_one(self) -> None:
        graph = oracle("multi", directed=False)
        graph.apply([edge(1, 2, [1]), edge(2, 1, [2]), delete_edge(1, 2)])
        assert graph.edge_features(2, 1) == [{"w": (1,)}]
        assert len(graph.edges()) == 2

    def test_edges_as_positions(self) -> None:
        graph = oracle(directed=False)
        graph.apply([edge("b", "a"), edge("a", "a")])
        src, dst = graph.edge_index()
        names = graph.vertices
        assert {(names[u], names[v]) for u, v in zip(src, dst, strict=True)} == set(graph.edges())


class TestLabels:
    def test_are_parked_until_the_vertex_comes(self) -> None:
        graph = oracle()
        assert graph.apply([label(1, 3)]) == [APPLIED]
        assert (graph.vertices, graph.labels, graph.parked_labels) == ([], {}, {1: (3,)})
        graph.apply([vertex(1)])
        assert (graph.labels, graph.parked_labels) == ({1: (3,)}, {})

    def test_the_last_writer_wins_by_time(self) -> None:
        graph = oracle()
        graph.apply([vertex(1), label(1, 3, time=5)])
        assert graph.apply([label(1, 4, time=4)]) == [LATE]
        assert graph.apply([update(label(1, 5, time=5))]) == [APPLIED]
        assert graph.labels == {1: (5,)}

    def test_delete_needs_one(self) -> None:
        graph = oracle()
        assert graph.apply([delete_label(1), vertex(1), delete_label(1)]) == [
            NO_SUCH_VERTEX,
            APPLIED,
            REPEATED,
        ]

    def test_delete_leaves_its_time(self) -> None:
        graph = oracle()
        graph.apply([vertex(1), label(1, 3, time=5)])
        assert graph.apply([delete_label(1, time=4)]) == [LATE]
        assert graph.apply([delete_label(1, time=6)]) == [APPLIED]
        assert graph.labels == {}
        assert graph.apply([label(1, 4, time=5)]) == [LATE]
        assert graph.apply([delete_label(1, time=7)]) == [REPEATED]

    def test_a_parked_label_can_be_deleted(self) -> None:
        graph = oracle()
        assert graph.apply([label(1, 3), delete_label(1), delete_label(1)]) == [
            APPLIED,
            APPLIED,
            NO_SUCH_VERTEX,
        ]
        assert graph.parked_labels == {}


def test_columns_and_rows_mean_the_same() -> None:
    rows, columns = oracle("multi"), oracle("multi")
    assert rows.apply([edge(1, 2), edge(2, 3)]) == columns.apply(EventBatch.edges([1, 2], [2, 3]))
    assert columns.apply(EventBatch.of([feature(2, [1, 2])]).to_arrow()) == rows.apply([feature(2, [1, 2])])
    np.testing.assert_array_equal(rows.inputs(), columns.inputs())
    assert rows.edges() == columns.edges()


def random_multigraph(seed: int, width: int) -> tuple[Floats, Ints, Ints]:
    rng = np.random.default_rng(seed)
    n, m = 40, 200
    x = rng.standard_normal((n, width), np.float32)
    src, dst = rng.integers(0, n, m), rng.integers(0, n // 2, m)  # half of the vertices get no message
    return x, np.append(src, src[:20]), np.append(dst, dst[:20])


def with_torch_geometric(model: GNN, x: Floats, src: Ints, dst: Ints) -> Floats:
    out, edge_index = torch.from_numpy(x), torch.from_numpy(np.stack([src, dst]))
    layers = model.layers
    with torch.no_grad():
        for layer, following in pairwise([*layers, None]):
            assert isinstance(layer, SAGEConv)
            conv = PyGSAGEConv(layer.in_width, layer.out_width, aggr=layer.aggr)
            conv.load_state_dict(layer.state_dict())
            out = conv(out, edge_index)
            out = out if following is None else torch.relu(out)
    result: Floats = out.numpy()
    return result
