"""A fork is the same graph with other parts and another schema; the old store stays as it was."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from d3gnn import HDRF, GraphSchema, Random
from d3gnn.events import (
    Event,
    EventBatch,
    Reason,
    delete_edge,
    delete_feature,
    edge,
    edge_feature,
    feature,
    label,
    vertex,
)
from d3gnn.kernel.evolution import Evolution, Repartition, SchemaChangeRefused, for_streaming
from d3gnn.kernel.operators import Partition
from d3gnn.oracle import Oracle
from d3gnn.runtime.fork import Forked, fork
from d3gnn.runtime.store_settings import store_settings
from d3gnn.store.entry import EntryMeta
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.store import SETTINGS, Store, StoreError
from d3gnn.testing import event_batches, random_batches, schemas

Batches = Iterable[Iterable[Event] | EventBatch]


def logged(folder: str | Path, schema: GraphSchema, batches: Batches, parts: int = 2) -> GraphLog:
    """The log of a pipeline after some batches."""
    store = Store(folder)
    keys = "string" if schema.edges == "keyed" and isinstance(folder, Path) else "int"
    store.fix(store_settings("old", parts, HDRF(), schema, "int", keys))
    log, partition = GraphLog(store), Partition(schema, parts)
    for b, events in enumerate(batches):
        batch = EventBatch.of(events)
        result = partition.process(batch, clock=b)
        log.create(b, result.entry, EntryMeta.of(b, batch, result.status, clock=b, newest_event=b))
    return log


def forked(old: GraphLog, new: str | Path, schema: GraphSchema, **options: Any) -> Forked:
    defaults: dict[str, Any] = {"name": "new", "parts": 8, "partitioner": Random()}
    return fork(old.store.uri, new, schema=schema, **defaults | options)


def content(folder: str | Path) -> dict[str, tuple[bytes, int]]:
    """All files of a folder, with the times of their last changes."""
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def replayed(log: GraphLog) -> Oracle:
    """The graph that a log creates, row by row; every event of a log must apply."""
    oracle = Oracle(GraphSchema(**log.store.settings["schema"]), replays=True)
    for entry in log.entries():
        assert entry.part.max() < log.store.settings["parts"]
        for i in range(len(entry)):
            assert oracle.apply(entry.events.take(np.array([i]))) == [Reason.APPLIED]
    return oracle


def known(oracle: Oracle) -> dict[str, Any]:
    """The oracle's state, with the times that decide which events are late."""
    return {
        "features": {id: dict(values) for id, values in oracle._features.items()},
        "copies": oracle._copies,
        "edge features": {edge: values for edge, values in oracle._edge_features.items() if values},
        "labels": {id: values for id, values in oracle._labels.items() if values},
    }


@settings(max_examples=50)
@given(data=st.data(), history=st.booleans())
def test_a_fork_is_the_same_graph(data: st.DataObject, history: bool) -> None:
    """With more parts, another partitioner, a feature added, one removed, one widened, in another order."""
    old = data.draw(schemas(edge_features=False))
    # The first event decides the types of ids and keys.
    first = edge(0, 1, key=0 if old.edges == "keyed" else None, time=-9)
    batches = [[first], *data.draw(event_batches(old, n_vertices=4))]
    features = {"new": 2, **{name: width + (name == "x") for name, width in old.features.items()}}
    removed = data.draw(st.sampled_from([None, *(name for name in features if name != "new")]))
    if removed:
        del features[removed]
    new = replace(old, features=features, missing="zero")
    fill = {"x": 7.0} if "x" in features else None
    oracle = Oracle(old)
    for batch in batches:
        oracle.apply(batch)
    with tempfile.TemporaryDirectory() as folder:
        log = logged(f"{folder}/old", old, batches)
        before = content(f"{folder}/old")
        made = forked(log, f"{folder}/new", new, history=history, fill=fill)
        assert content(f"{folder}/old") == before
        forked_log = GraphLog.open(f"{folder}/new")
        found = replayed(forked_log)
        expected = known(oracle)
        expected["features"] = {
            id: {
                name: (time, None if value is None else (*value, 7.0) if name == "x" else value)
                for name, (time, value) in values.items()
                if name != removed
            }
            for id, values in oracle._features.items()
        }
        assert known(found) == expected
        assert (made.vertices, made.lacking) == (len(found.vertices), found.lacking)
        assert made.entries == (len(batches) if history else 1)
        newest = forked_log.meta(made.entries - 1)
        assert newest is not None
        assert newest.newest_event == len(batches) - 1


MODES = [
    ("multi", "simple", True, {(1, 2): 1, (2, 1): 1, (2, 3): 1}),
    ("multi", "append", True, {(1, 2): 2, (2, 1): 1, (2, 3): 1}),
    ("simple", "multi", True, {(1, 2): 1, (2, 1): 1, (2, 3): 1}),
    ("keyed", "simple", True, {(1, 2): 1, (2, 1): 1, (2, 3): 1}),
    ("keyed", "multi", True, {(1, 2): 2, (2, 1): 1, (2, 3): 1}),
    ("append", "simple", True, {(1, 2): 1, (2, 1): 1, (2, 3): 1}),
    ("simple", "simple", False, {(1, 2): 1, (2, 3): 1}),
    ("multi", "multi", False, {(1, 2): 3, (2, 3): 1}),
]


@pytest.mark.parametrize(("old", "new", "directed", "copies"), MODES)
def test_edge_modes_that_change(
    tmp_path: Path, old: Any, new: Any, directed: bool, copies: dict[tuple[int, int], int]
) -> None:
    keys = ("a", "b") if old == "keyed" else (None, None)
    stream = [
        [edge(1, 2, key=keys[0], time=0), edge(1, 2, key=keys[1], time=0), edge(2, 1, key=keys[0], time=0)],
        [edge(2, 3, key=keys[0], time=0), edge(3, 1, key=keys[0], time=0)],
    ]
    if old != "append":
        stream.append([delete_edge(3, 1, key=keys[0], time=1)])
    else:
        copies = {**copies, (3, 1): 1}
    schema = GraphSchema(edges=old, features={"x": 1})
    forked(
        logged(tmp_path / "old", schema, stream),
        tmp_path / "new",
        replace(schema, edges=new, directed=directed),
    )
    found = replayed(GraphLog.open(tmp_path / "new"))
    assert {(u, v): n for (u, v, _), n in found._copies.items()} == copies


def test_edge_features_of_merged_edges_are_the_newest(tmp_path: Path) -> None:
    schema = GraphSchema(edges="multi", features={"x": 1}, edge_features={"w": 1, "gone": 1})
    stream = [
        [edge(1, 2, time=0), edge_feature(1, 2, [5.0], name="w", time=9)],
        [edge(1, 2, time=1), edge_feature(1, 2, [6.0], name="w", time=3)],
        [edge_feature(1, 2, [1.0], name="gone", time=4)],
    ]
    log = logged(tmp_path / "old", schema, stream)
    new = replace(schema, edges="simple", edge_features={"w": 2})
    made = forked(log, tmp_path / "new", new, fill={"w": -1.0})
    assert replayed(GraphLog.open(tmp_path / "new")).edge_features(1, 2) == [{"w": (5.0, -1.0)}]
    assert made.skipped == {Reason.REPEATED.text: 1, Reason.LATE.text: 1}


def test_the_default_feature_keeps_its_name(tmp_path: Path) -> None:
    """An event without a name is about the only feature of its schema, whatever the new one declares."""
    schema = GraphSchema(features={"risk": 1})
    log = logged(tmp_path / "old", schema, [[feature(1, [3.0], time=0), vertex(2, [4.0], time=0)]])
    forked(log, tmp_path / "new", GraphSchema(features={"x": 1, "risk": 1}))
    assert replayed(GraphLog.open(tmp_path / "new")).inputs().tolist() == [[0.0, 3.0], [0.0, 4.0]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ({}, {"edges": "keyed"}, "cannot become edges='keyed': the edges have no keys"),
        ({"directed": False}, {"directed": True}, "its edges have no direction"),
        ({}, {"features": {"x": 1}}, "cannot shrink from 2 to 1"),
        ({}, {"label_width": 2}, "label_width cannot change from 1 to 2: the graph has labels"),
    ],
)
def test_changes_without_a_meaning_are_refused(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any], message: str
) -> None:
    schema = GraphSchema(features={"x": 2}, **old)
    log = logged(tmp_path / "old", schema, [[edge(1, 2, time=0), label(1, [1.0], time=0)]])
    with pytest.raises(SchemaChangeRefused, match=message):
        forked(log, tmp_path / "new", replace(schema, **new))
    assert not [path for path in tmp_path.glob("new/*/*") if path.is_file()]


def test_a_history_with_other_deletes_is_refused(tmp_path: Path) -> None:
    schema = GraphSchema(edges="multi", features={"x": 1})
    log = logged(tmp_path / "old", schema, [[edge(1, 2, time=0)]])
    with pytest.raises(SchemaChangeRefused, match="history=True needs the same edge mode"):
        forked(log, tmp_path / "new", replace(schema, edges="simple"), history=True)


def test_the_graph_after_any_batch(tmp_path: Path) -> None:
    schema = GraphSchema(features={"x": 1})
    log = logged(tmp_path / "old", schema, [[edge(1, 2, time=0)], [edge(2, 3, time=0)], [edge(3, 4, time=0)]])
    forked(log, tmp_path / "one", schema, batch=1)
    assert replayed(GraphLog.open(tmp_path / "one")).edges() == [(1, 2), (2, 3)]
    log.compact(1, forget_history=True)
    assert forked(log, tmp_path / "two", schema, history=True).entries == 2
    assert replayed(GraphLog.open(tmp_path / "two")).edges() == [(1, 2), (2, 3), (3, 4)]
    with pytest.raises(StoreError, match="no entry for batch 7"):
        forked(log, tmp_path / "three", schema, batch=7)


def test_the_means_of_the_graph_are_fixed(tmp_path: Path) -> None:
    schema = GraphSchema(features={"x": 2, "y": 1})
    stream = [
        [
            feature(1, [1.0, 2.0], name="x", time=0),
            feature(2, [4.0, 8.0], name="x", time=0),
            vertex(3, time=0),
        ],
        [feature(2, [3.0, 6.0], name="x", time=1), feature(3, [9.0, 9.0], name="x", time=1)],
        [delete_feature(3, name="x", time=2)],
    ]
    log = logged(tmp_path / "old", schema, stream)
    assert log.feature_means() == {"x": (2.0, 4.0)}
    forked(log, tmp_path / "new", schema, means=True)
    found = replayed(GraphLog.open(tmp_path / "new"))
    assert found.inputs().tolist() == [[1.0, 2.0, 0.0], [3.0, 6.0, 0.0], [2.0, 4.0, 0.0]]


def test_an_interrupted_fork_is_refused(tmp_path: Path) -> None:
    schema = GraphSchema(features={"x": 1})
    log = logged(tmp_path / "old", schema, [[edge(1, 2, time=0)]])
    forked(log, tmp_path / "new", schema)
    with pytest.raises(StoreError, match="is not empty"):
        forked(log, tmp_path / "new", schema)
    (tmp_path / "new" / SETTINGS).unlink()  # it is written last
    with pytest.raises(StoreError, match="`d3gnn fork` was interrupted"):
        Store(tmp_path / "new").fix(log.store.settings)

    def fail(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        forked(log, tmp_path / "other", schema, progress=fail)
    assert forked(log, tmp_path / "other", schema).vertices == 2


def test_a_fork_places_masters_as_a_stream_does() -> None:
    schema = GraphSchema(features={"x": 1})
    batches = list(random_batches(schema, seed=2, n_batches=4, batch_size=2000, n_vertices=1500))
    streamed, again = Partition(schema, 8), Repartition(Evolution(schema, schema), 8, HDRF())
    with tempfile.TemporaryDirectory() as folder:
        snapshot = logged(folder, schema, batches).snapshot()
    assert snapshot is not None
    for batch in batches:
        streamed.process(EventBatch.of(batch), 0)
    again.entry(for_streaming(snapshot), 0)
    assert again._partition.replication_factor < 1.1 * streamed.replication_factor
