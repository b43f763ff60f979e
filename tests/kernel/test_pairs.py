"""Scores of edges and answers to queries equal those of a static forward pass."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

from d3gnn import Alerts, GraphSchema, LocalEngine
from d3gnn.events import Element, EventBatch, Reason, delete_edge, delete_vertex, edge, feature, query
from d3gnn.nn import GNN, GATConv, LinkPredictor, PairHead, SAGEConv, Similarity
from d3gnn.oracle import Oracle, embeddings
from d3gnn.runtime.updates import Updates
from d3gnn.testing import event_batches, random_batches
from d3gnn.windows import Tumbling

HEADS: dict[str, Any] = {
    "dot": lambda edges: LinkPredictor(edges=edges),
    "product": lambda edges: LinkPredictor(
        nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)), edges=edges
    ),
    "cat": lambda edges: LinkPredictor(nn.Linear(8, 1), combine="cat", edges=edges),
    "cosine": lambda edges: Similarity(edges=edges),
    "dot similarity": lambda edges: Similarity(nn.Linear(4, 3), measure="dot", edges=edges),
}


def model_of(head: str, edges: bool, attention: bool = False) -> GNN:
    torch.manual_seed(1)
    last = GATConv(4, 2, 2) if attention else SAGEConv(4, 4)
    return GNN([SAGEConv(3, 4, act="relu"), last], HEADS[head](edges))


class Table:
    """The pairs as a reader of the output sees them, and their expected scores."""

    def __init__(self, model: GNN, schema: GraphSchema) -> None:
        assert isinstance(model.head, PairHead)
        self.model, self.head, self.schema = model, model.head, schema
        self.oracle = Oracle(schema, answers=True)
        self.scores: dict[tuple[Any, Any], float] = {}
        self.reasons: list[Reason] = []

    def expected(self, pairs: Iterable[tuple[Any, Any]]) -> dict[tuple[Any, Any], float]:
        pairs = list(pairs)
        if not pairs:
            return {}
        found = embeddings(self.model, self.oracle)
        src, dst = (torch.from_numpy(np.stack([found[pair[end]] for pair in pairs])) for end in (0, 1))
        with torch.inference_mode():
            return dict(zip(pairs, self.head.score(src, dst).tolist(), strict=True))

    def read(self, updates: Updates) -> None:
        """Apply emitted pairs. If a pair was deleted and created again in one batch, the new score counts."""
        assert updates.pairs is not None
        emitted = [pair for pair in updates.pairs if not pair.is_query]
        for pair in sorted(emitted, key=lambda pair: not pair.deleted):
            if pair.deleted:
                assert np.isnan(pair.score)
                self.scores.pop((pair.src, pair.dst), None)
            else:
                self.scores[pair.src, pair.dst] = pair.score

    def check(self, batch: EventBatch, updates: Updates, drained: bool = True) -> None:
        """Check after a batch that the oracle has applied, too."""
        assert updates.pairs is not None
        asks = np.flatnonzero(batch.element == Element.QUERY).tolist()
        answered = [(batch.row(i).src, batch.row(i).dst) for i in asks if updates.status[i] == Reason.APPLIED]
        answers = [pair for pair in updates.pairs if pair.is_query]
        assert sorted(map(str, answered)) == sorted(str((pair.src, pair.dst)) for pair in answers)
        if not drained:
            return
        right = self.expected(answered)
        for pair in answers:
            assert pair.score == pytest.approx(right[pair.src, pair.dst], abs=1e-5)
        edges = self.expected(self.oracle.edges()) if self.head.edges else {}
        assert self.scores.keys() == edges.keys()
        for ends, score in edges.items():
            assert self.scores[ends] == pytest.approx(score, abs=1e-5)


@settings(max_examples=60)
@given(data=st.data())
def test_scores_and_answers_after_every_batch(data: st.DataObject) -> None:
    schema = GraphSchema(
        features={"x": 3},
        edges=data.draw(st.sampled_from(["simple", "append"])),
        directed=data.draw(st.booleans(), "directed"),
    )
    model = model_of(data.draw(st.sampled_from(list(HEADS)), "head"), data.draw(st.booleans(), "edges"))
    engine = LocalEngine(model, parts=data.draw(st.integers(1, 3), "parts"), schema=schema)
    table = Table(model, schema)
    for events in data.draw(event_batches(schema, "int") | event_batches(schema, "str"), "batches"):
        batch = EventBatch.of(events)
        reasons = table.oracle.apply(batch)
        updates = engine.apply(batch)
        assert updates.status.tolist() == reasons
        table.read(updates)
        table.check(batch, updates)


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_a_longer_stream(parts: int, attention: bool, tmp_path: Path) -> None:
    schema = GraphSchema(features={"x": 3})
    model = model_of("product", edges=True, attention=attention)
    engine, table = LocalEngine(model, parts=parts, schema=schema), Table(model, schema)
    batches = random_batches(schema, seed=3, n_batches=6, batch_size=200, n_vertices=60)
    for batch in batches:
        table.oracle.apply(batch)
        updates = engine.apply(batch)
        table.read(updates)
        table.check(batch, updates)
    engine.save(tmp_path)
    again = LocalEngine.load(tmp_path)
    table.scores.clear()
    table.read(again.refresh())  # emits everything again
    asks = EventBatch.of([query(u, v) for u, v in table.oracle.edges()[:50]])
    table.oracle.apply(asks)
    table.check(asks, again.apply(asks))


def test_windows_delay_scores_and_a_drain_makes_them_exact() -> None:
    schema = GraphSchema(features={"x": 3})
    model = model_of("cosine", edges=True)
    engine = LocalEngine(model, parts=2, schema=schema, window=Tumbling(1.0))
    table = Table(model, schema)
    was_pending = False
    for b, batch in enumerate(random_batches(schema, seed=5, n_batches=6, batch_size=60, n_vertices=30)):
        table.oracle.apply(batch)
        updates = engine.apply(batch, clock=1 + b * 300_000)
        table.read(updates)
        table.check(batch, updates, drained=False)
        was_pending |= bool(sum(engine.pending().values()))
    assert was_pending
    asks = EventBatch.of([query(*table.oracle.edges()[0])])
    table.oracle.apply(asks)
    table.read(engine.drain())
    table.check(asks, engine.apply(asks))


def test_only_changed_scores_of_edges_are_emitted() -> None:
    engine = LocalEngine(model_of("dot", edges=True))
    first = engine.apply([edge("a", "b"), edge("c", "d")])
    assert first.pairs is not None
    assert {(pair.src, pair.dst) for pair in first.pairs} == {("a", "b"), ("c", "d")}
    second = engine.apply([feature("a", [1.0, 2.0, 3.0], time=1)])
    assert second.pairs is not None
    assert [(pair.src, pair.dst) for pair in second.pairs] == [("a", "b")]
    third = engine.apply([edge("a", "b", time=2), query("c", "d", time=7)])
    assert third.pairs is not None
    assert [(pair.src, pair.is_query, pair.time) for pair in third.pairs] == [("c", True, 7)]


def test_a_threshold_filters_edges_and_not_answers() -> None:
    model = model_of("dot", edges=True)
    plain, strict = LocalEngine(model), LocalEngine(model, alerts=Alerts(threshold=0.6))
    batches = random_batches(
        GraphSchema(features={"x": 3}), seed=9, n_batches=5, batch_size=60, n_vertices=30
    )
    emitted: set[tuple[Any, Any]] = set()
    for batch in batches:
        all_pairs, few = plain.apply(batch).pairs, strict.apply(batch).pairs
        assert all_pairs is not None
        assert few is not None
        assert {(p.src, p.dst, p.score) for p in few if not p.deleted} <= {
            (p.src, p.dst, p.score) for p in all_pairs if p.score >= 0.6
        }
        for p in sorted(few, key=lambda p: not p.deleted):
            assert not p.deleted or (p.src, p.dst) in emitted, "a tombstone of an edge that was never emitted"
            emitted.add((p.src, p.dst))
    assert emitted
    low = min((p for p in plain.refresh().pairs or [] if not p.deleted), key=lambda p: p.score)
    assert low.score < 0.6
    answer = strict.apply([query(low.src, low.dst)]).pairs
    assert answer is not None
    assert [p.score for p in answer] == pytest.approx([low.score], abs=1e-6)


def test_edges_that_existed_at_a_rebuild_get_tombstones() -> None:
    engine = LocalEngine(model_of("dot", edges=True), alerts=Alerts(threshold=2.0))  # no score is that high
    engine.apply([edge("a", "b"), edge("b", "c"), edge("c", "d")])
    updates = engine.apply([delete_edge("a", "b", time=1)]).pairs
    assert updates is not None
    assert not len(updates), "it was never emitted"
    engine.refresh()
    engine.apply([edge("d", "a", time=2)])
    tombstones = engine.apply([delete_edge("b", "c", time=3), delete_edge("d", "a", time=3)]).pairs
    assert tombstones is not None
    assert [(pair.src, pair.dst, pair.deleted) for pair in tombstones] == [("b", "c", True)]


def test_queries_need_existing_vertices() -> None:
    engine = LocalEngine(model_of("dot", edges=False))
    updates = engine.apply([query("a", "b", time=5), edge("a", "b", time=9), query("a", "z")])
    assert updates.pairs is not None
    assert [(pair.src, pair.dst) for pair in updates.pairs] == [("a", "b")], (
        "queries see the graph after the batch"
    )
    assert [letter.reason for letter in updates.dead_letters] == ["the vertex does not exist"]
    updates = engine.apply([delete_vertex("b"), query("a", "b")])
    assert updates.pairs is not None
    assert not len(updates.pairs)
    assert updates.count(Reason.NO_SUCH_VERTEX) == 1
    assert engine.apply([query(1, 2)]).count(Reason.WRONG_ID_TYPE) == 1


def test_without_a_pair_head_a_query_is_a_dead_letter() -> None:
    engine = LocalEngine(GNN([SAGEConv(3, 4)]))
    updates = engine.apply([edge("a", "b"), query("a", "b")])
    assert updates.count(Reason.NO_ANSWER) == 1
    assert updates.pairs is None
    assert "LinkPredictor" in updates.dead_letters[0].reason


def test_queries_are_not_stored(tmp_path: Path) -> None:
    model = model_of("dot", edges=False)
    engine = LocalEngine(model, arrays=tmp_path / "arrays")
    engine.apply([edge(1, 2), edge(2, 3), delete_edge(1, 2, time=1)])
    queries = [query(2, 3)] * 40
    engine.apply(queries)  # arrays grow to this number of events
    before = engine.memory()
    for _ in range(50):
        engine.apply(queries)
    assert engine.memory() == before
    engine.save(tmp_path / "saved")
    assert len(LocalEngine.load(tmp_path / "saved")) == 3


@pytest.mark.parametrize("edges", ["multi", "keyed"])
def test_parallel_edges_are_not_scored(edges: Any) -> None:
    schema = GraphSchema(features={"x": 3}, edges=edges)
    with pytest.raises(ValueError, match="edges=False"):
        LocalEngine(model_of("dot", edges=True), schema=schema)
    LocalEngine(model_of("dot", edges=False), schema=schema)


@pytest.mark.parametrize("head", HEADS)
def test_heads_are_saved_with_the_model(head: str, tmp_path: Path) -> None:
    model = model_of(head, edges=True)
    model.save(tmp_path / "model.safetensors")
    again = GNN.load(tmp_path / "model.safetensors")
    assert again.digest == model.digest
    assert again.scores_edges
    x = torch.randn(5, 4)
    assert isinstance(model.head, PairHead)
    assert isinstance(again.head, PairHead)
    assert torch.equal(model.head.score(x, x), again.head.score(x, x))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinkPredictor(combine="sum"), "combine"),
        (lambda: LinkPredictor(combine="cat"), "net"),
        (lambda: Similarity(measure="l3"), "cosine"),
    ],
)
def test_bad_heads_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
