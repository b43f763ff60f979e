"""`d3gnn repartition` and `d3gnn compact`: the same graph in other parts, and without its history."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from d3gnn import HDRF, GraphSchema, LocalEngine
from d3gnn.cli import app
from d3gnn.events import EventBatch
from d3gnn.kernel.operators import Partition
from d3gnn.nn import GraphSAGE
from d3gnn.runtime.store_settings import store_settings
from d3gnn.store.entry import EntryMeta
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.log_size import rebuilt_from
from d3gnn.store.store import Store
from d3gnn.testing import random_batches

SCHEMA = GraphSchema(features={"x": 2}, missing="hash")


def logged(folder: Path, parts: int, batches: list[EventBatch]) -> GraphLog:
    """The log of a pipeline after these batches."""
    store = Store(folder)
    store.fix(store_settings("old", parts, HDRF(), SCHEMA, "int", "int"))
    log, partition = GraphLog(store), Partition(SCHEMA, parts)
    for b, batch in enumerate(batches):
        result = partition.process(batch, clock=b)
        log.create(b, result.entry, EntryMeta.of(b, batch, result.status, clock=b, newest_event=b))
    return log


def command(*arguments: str | Path) -> dict[str, object]:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def embeddings(log: GraphLog, parts: int, more: EventBatch) -> dict[object, list[float]]:
    """Those of an engine that is rebuilt from a log, and goes on with a batch."""
    engine = LocalEngine(GraphSAGE(2, 4, 2, 2, seed=1), parts=parts, schema=SCHEMA)
    for entry in log.entries():
        assert entry.part.max() < parts
        engine._coordinator._log.append(entry)
    engine.refresh()
    engine.apply(more, clock=0)
    return dict(zip(engine.ids().to_arrow().to_pylist(), engine.embeddings().tolist(), strict=True))


@pytest.mark.parametrize("which", ["hdrf", "clda", "metis", "fennel", "random"])
def test_other_parts_are_exact(tmp_path: Path, which: str) -> None:
    """From 4 to 16 parts: the embeddings are those of one part, also after more events."""
    batches = random_batches(SCHEMA, seed=4, n_batches=12, batch_size=150, n_vertices=80)
    log, more = logged(tmp_path / "old", 4, batches[:-1]), batches[-1]
    arguments = ("--store", tmp_path / "old", "--into", tmp_path / "new", "--parts", "16")
    made = command("repartition", *arguments, "--partitioner", which)
    new = GraphLog.open(tmp_path / "new")
    assert new.store.settings["parts"] == 16
    assert new.store.settings["partitioner"]["name"] == which
    assert made["replication_before"] != made["replication_after"]
    whole = LocalEngine(GraphSAGE(2, 4, 2, 2, seed=1), schema=SCHEMA)
    for batch in batches:
        whole.apply(batch, clock=0)
    expected = dict(zip(whole.ids().to_arrow().to_pylist(), whole.embeddings().tolist(), strict=True))
    for log_of, parts in ((log, 4), (new, 16)):
        found = embeddings(log_of, parts, more)
        assert found.keys() == expected.keys()
        for id, values in expected.items():
            np.testing.assert_allclose(found[id], values, rtol=1e-5, atol=1e-6)


def test_compaction_makes_a_rebuild_read_the_graph_and_not_its_history(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 500, (2, 2000))
    graph = EventBatch.edges(src, dst)
    batches = [graph]
    for b in range(1, 11):  # ten times as many events, which leave the same graph
        ends = rng.integers(1000, 1500, (2, 1000))
        batches += [EventBatch.edges(*ends, time=[b] * 1000)]
        batches += [EventBatch.edges(*ends, time=[b] * 1000, op=2)]  # type: ignore[arg-type]
    log = logged(tmp_path, 4, batches)
    assert rebuilt_from(log) == (0, 2000 + 20 * 1000)
    before = log.graph()
    assert command("compact", "--store", tmp_path)["snapshot"]
    edges, rest = rebuilt_from(log)
    assert rest == 0
    assert edges < 2000 + 500 + 2 * 500 + 10  # edges, vertices, deleted or not
    assert log.graph().equals(before)
    assert not command("compact", "--store", tmp_path)["snapshot"]
    again = command("compact", "--store", tmp_path, "--factor", "0", "--forget-history")
    assert again["events_after"] == edges
