"""A rebuild sends the graph of a log, and nothing of what is gone, in one pass where nothing is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from d3gnn import GraphSchema
from d3gnn.events import EventBatch, edge
from d3gnn.kernel.compaction import compact
from d3gnn.kernel.log import LogEntry
from d3gnn.kernel.operators import Partition
from d3gnn.runtime.whole_graph import WholeGraph
from d3gnn.testing import random_batches
from d3gnn.testing.in_process import InProcessPipeline

SCHEMA = GraphSchema(features={"x": 3})
PARTS = 3


def entries_of(batches: Sequence[EventBatch], schema: GraphSchema = SCHEMA) -> list[LogEntry]:
    partition = Partition(schema, PARTS)
    return [partition.process(batch, 0).entry for batch in batches]


def stream(seed: int, **options: Any) -> list[EventBatch]:
    return list(random_batches(SCHEMA, seed=seed, n_batches=5, batch_size=60, n_vertices=25, **options))


def rows(entry: LogEntry | None) -> list[Any]:
    assert entry is not None
    return [*entry.events.to_arrow().to_pylist(), entry.part.tolist()]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of events in each batch that Partition processes."""
    process, seen = Partition.process, list[int]()

    def counted(self: Partition, batch: EventBatch, *args: Any, **options: Any) -> Any:
        seen.append(len(batch))
        return process(self, batch, *args, **options)

    monkeypatch.setattr(Partition, "process", counted)
    return seen


@pytest.mark.parametrize("seed", range(8))
def test_a_log_with_deletes_sends_what_its_snapshot_sends(seed: int, passes: list[int]) -> None:
    entries = entries_of(stream(seed, delete_vertex=0.05))
    expected = compact(entries, SCHEMA, PARTS)
    assert expected is not None
    alone = Partition(SCHEMA, PARTS).process(expected.events, 0, replay=expected.part)
    passes.clear()
    whole = WholeGraph(entries, Partition(SCHEMA, PARTS))
    assert rows(whole.snapshot) == rows(expected)
    sent = whole.send()
    assert passes == [sum(map(len, entries)), len(expected)]
    assert list(map(content, sent.blocks)) == list(map(content, alone.blocks))


def content(block: Any) -> list[Any]:
    blob = None if block.blob is None else block.blob.tobytes()
    return [block.kind, block.source, block.target, [column.tolist() for column in block.columns], blob]


def only_creates(n: int) -> list[EventBatch]:
    return [EventBatch.of([edge(i * b % 17, i % 13, time=20 * b + i) for i in range(20)]) for b in range(n)]


def test_a_log_that_only_grows_takes_one_pass(passes: list[int]) -> None:
    entries = entries_of(only_creates(5))
    expected = compact(entries, SCHEMA, PARTS)
    passes.clear()
    partition = Partition(SCHEMA, PARTS)
    whole = WholeGraph(entries, partition)
    assert rows(whole.snapshot) == rows(expected)
    whole.send()
    assert passes == [sum(map(len, entries))]
    # A snapshot and what has happened since.
    snapshot, partition = compact(entries[:3], SCHEMA, PARTS), Partition(SCHEMA, PARTS)
    assert snapshot is not None
    passes.clear()
    again = WholeGraph([snapshot, *entries[3:]], partition)
    assert rows(again.snapshot) == rows(compact([snapshot, *entries[3:]], SCHEMA, PARTS))
    passes.clear()
    again.send()
    assert passes == []


def test_an_empty_log(passes: list[int]) -> None:
    whole = WholeGraph([], Partition(SCHEMA, PARTS))
    assert len(whole.snapshot) == 0
    assert whole.send().blocks == []


@pytest.mark.parametrize("expires", [False, True], ids=["", "expires"])
@pytest.mark.parametrize("batches", [lambda: stream(3, delete_vertex=0.05), lambda: only_creates(5)])
def test_a_refresh_in_every_batch_is_exact(
    tmp_path: Path, batches: Callable[[], list[EventBatch]], expires: bool
) -> None:
    schema = replace(SCHEMA, ttl=40, vertex_ttl=60) if expires else SCHEMA
    pipeline = InProcessPipeline(tmp_path, schema)
    done: list[EventBatch] = []
    for b, batch in enumerate(batches()):
        assert pipeline.run(b, batch, ["refresh"]).metrics["refreshed"] == 1
        done.append(batch)
        assert pipeline.error(done) < 1e-5
    pipeline.run(len(done), None, ["refresh"])
    assert pipeline.error(done) < 1e-5
    assert pipeline.verify().max_relative_error < 1e-5
