"""Output rows as Arrow tables and pandas frames."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch import nn

from d3gnn import Alerts, LocalEngine
from d3gnn.events import delete_edge, delete_vertex, edge, feature, query
from d3gnn.nn import GNN, Classifier, GraphSAGE, SAGEConv, Similarity

TIMESTAMP = pa.timestamp("us", tz="UTC")
COMMON = {
    "time": TIMESTAMP,
    "arrival": TIMESTAMP,
    "batch_id": pa.int64(),
    "model_version": pa.int64(),
    "deleted": pa.bool_(),
}


def types(table: pa.Table) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in table.schema}


def test_without_a_head_rows_are_embeddings() -> None:
    engine = LocalEngine(GraphSAGE(2, 3, 1, seed=1))
    first = engine.apply([edge("ann", "bob", time=1_000_001)], clock=2_000_000).to_arrow()
    assert {name: type for name, type in types(first).items() if name != "embedding"} == {
        "id": pa.string()
    } | COMMON
    assert first.schema.names[:2] == ["id", "embedding"]
    row = first.filter(pa.compute.equal(first["id"], "bob")).to_pylist()[0]
    assert row["time"] == datetime(1970, 1, 1, 0, 0, 1, 1, UTC)
    assert row["arrival"] == datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert (row["batch_id"], row["deleted"]) == (0, False)
    np.testing.assert_array_equal(row["embedding"], engine.embeddings(["bob"])[0])
    second = engine.apply([delete_vertex("bob", time=3)], clock=2_000_000)
    tombstones = second.to_arrow().to_pylist()
    assert [(row["id"], row["deleted"], row["batch_id"]) for row in tombstones] == [("bob", True, 1)]
    assert engine.apply([]).to_arrow().schema == first.schema, "an empty batch has the same columns"


def test_a_pandas_frame_has_timestamps() -> None:
    frame = LocalEngine(GraphSAGE(2, 3, 1, seed=1)).apply([edge(1, 2, time=5)], clock=7).to_pandas()
    assert list(frame.columns) == ["id", "embedding", *COMMON]
    assert set(frame["time"]) == {pd.Timestamp(5, unit="us", tz="UTC")}
    assert set(frame["arrival"]) == {pd.Timestamp(7, unit="us", tz="UTC")}


def test_a_vertex_head_adds_its_prediction_and_score() -> None:
    torch.manual_seed(1)
    engine = LocalEngine(GNN([SAGEConv(2, 3)], Classifier(nn.Linear(3, 2))))
    table = engine.apply([edge(1, 2)]).to_arrow()
    assert table.schema.names == ["id", "embedding", "prediction", "score", *COMMON]
    assert types(table)["score"] == pa.float32()
    tombstones = engine.apply([delete_vertex(1)]).to_arrow().to_pylist()
    assert [(row["id"], row["prediction"]) for row in tombstones if row["deleted"]] == [(1, None)]


def test_a_pair_head_emits_pairs_only_by_default(tmp_path: Path) -> None:
    model = GNN([SAGEConv(2, 3)], Similarity(edges=True))
    batch = [edge("a", "b"), query("b", "a")]
    updates = LocalEngine(model).apply(batch)
    assert not len(updates)
    pairs = updates.to_arrow()
    assert pairs.schema.names == ["src", "dst", "score", "is_query", *COMMON]
    found = {(row["src"], row["dst"], row["is_query"]) for row in pairs.to_pylist()}
    assert found == {("a", "b", False), ("b", "a", True)}

    engine = LocalEngine(model, emit="all")
    both = engine.apply(batch).to_arrow()
    assert both.schema.names == ["id", "embedding", "src", "dst", "score", "is_query", *COMMON]
    rows = both.to_pylist()
    vertices, scores = ([row for row in rows if (row["id"] is None) == flag] for flag in (False, True))
    assert {row["id"] for row in vertices} == {"a", "b"}
    assert all(row["src"] is row["score"] is row["is_query"] is None for row in vertices)
    assert {(row["src"], row["dst"]) for row in scores} == {("a", "b"), ("b", "a")}
    assert all(row["embedding"] is None for row in scores)
    tombstones = engine.apply([delete_edge("a", "b", time=1)]).to_arrow().to_pylist()
    assert [(row["src"], row["score"]) for row in tombstones if row["deleted"]] == [("a", None)]
    engine.save(tmp_path)
    assert len(LocalEngine.load(tmp_path).refresh()) == 2, "a loaded engine keeps `emit`"


def test_alerts_alone_or_marked_among_all_rows() -> None:
    torch.manual_seed(1)
    model = GNN([SAGEConv(2, 3)], Classifier(nn.Linear(3, 2)))
    batch = [edge(i, i + 1) for i in range(20)]
    middle = float(np.median(LocalEngine(model).apply(batch).to_pandas()["score"]))
    alerts = Alerts(threshold=middle)
    few = LocalEngine(model, alerts=alerts).apply(batch).to_arrow()
    assert few.schema.names == ["id", "embedding", "prediction", "score", *COMMON]
    engine = LocalEngine(model, parts=2, alerts=alerts, emit="all")
    everything = engine.apply(batch)
    rows = everything.to_arrow().to_pylist()
    assert list(rows[0]) == ["id", "embedding", "prediction", "score", "is_alert", *COMMON]
    assert len(rows) == 21 > len(few) > 0
    assert {row["id"] for row in rows if row["is_alert"]} == set(few["id"].to_pylist())
    assert everything.is_alert is not None
    assert everything.is_alert.tolist() == [row["is_alert"] for row in rows]
    gone = engine.apply([delete_vertex(1)]).to_arrow().to_pylist()
    assert [row["is_alert"] for row in gone if row["deleted"]] == [False]


@pytest.mark.parametrize("parts", [1, 3])
def test_all_scores_of_pairs_with_a_mark_for_alerts(parts: int) -> None:
    torch.manual_seed(1)
    model = GNN([SAGEConv(2, 3)], Similarity(edges=True))
    batches = [[edge(i, (i * 7 + 1) % 20) for i in range(20)], [feature(3, [4.0, -5.0], time=1), query(1, 2)]]
    plain, strict, engine = (
        LocalEngine(model, parts=parts, **settings)
        for settings in (
            {},
            {"alerts": Alerts(threshold=0.5)},
            {"alerts": Alerts(threshold=0.5), "emit": "all"},
        )
    )
    edges: list[dict[str, Any]] = []
    for batch in batches:
        rows = engine.apply(batch).to_arrow().to_pylist()
        assert list(rows[0]) == ["id", "embedding", "src", "dst", "score", "is_query", "is_alert", *COMMON]
        pairs = [row for row in rows if row["id"] is None]
        assert all(row["is_alert"] is None for row in rows if row["id"] is not None)
        assert keys_of(pairs) == keys_of(plain.apply(batch).to_arrow().to_pylist())
        assert all(row["is_alert"] == (row["score"] >= np.float32(0.5)) for row in pairs)
        few = strict.apply(batch).to_arrow().to_pylist()
        alerts = [row for row in pairs if row["is_alert"] or row["is_query"]]
        assert keys_of(few) == keys_of(alerts)
        edges += [row for row in pairs if not row["is_query"]]
    assert any(row["is_alert"] for row in edges)
    low = next(row for row in edges if not row["is_alert"])
    gone = engine.apply([delete_edge(low["src"], low["dst"], time=2)])
    assert gone.pairs is not None
    deleted = [(pair.src, pair.dst, pair.is_alert) for pair in gone.pairs if pair.deleted]
    assert deleted == [(low["src"], low["dst"], False)], "every edge was emitted, alert or not"
    assert LocalEngine(model).apply(batches[0]).pairs.is_alert is None  # type: ignore[union-attr]
    nothing = engine.apply([])
    assert nothing.to_arrow().schema.names == list(rows[0])
    assert nothing.pairs is not None
    assert nothing.pairs.is_alert is not None


def keys_of(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["src"], row["dst"], row["is_query"], row["score"]) for row in rows)
