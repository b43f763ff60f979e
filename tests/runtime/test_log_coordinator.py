"""Replays, restored checkpoints and restored logs: no event is lost, and none is applied twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from d3gnn import GraphSchema
from d3gnn.events import EventBatch
from d3gnn.nn import GraphSAGE
from d3gnn.store.gaps import LogGap
from d3gnn.store.graph_log import ReplayMismatch
from d3gnn.store.store import StoreDamaged
from d3gnn.testing import random_batches
from d3gnn.testing.in_process import InProcessPipeline

SCHEMA = GraphSchema(features={"x": 3})
BATCHES = list(random_batches(SCHEMA, seed=5, n_batches=5, batch_size=40, n_vertices=25))
KEPT = {"kept": 1, "model_version": 1}


@pytest.fixture(params=[1, 2], ids=["one task", "two tasks"])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> InProcessPipeline:
    """A pipeline with three batches."""
    made = InProcessPipeline(tmp_path, SCHEMA, tasks=request.param)
    for b, batch in enumerate(BATCHES[:3]):
        made.run(b, batch)
    return made


def check(pipeline: InProcessPipeline, *batches: EventBatch) -> None:
    assert pipeline.error(batches) < 1e-5
    assert pipeline.verify().max_relative_error < 1e-5
    rows = [pipeline.log.meta(b) for b in range(1 + (pipeline.log.last() or 0))]
    assert [meta and meta.rows for meta in rows] == [len(batch) for batch in batches]


def test_a_replayed_batch_is_answered_from_its_kept_output(pipeline: InProcessPipeline) -> None:
    assert pipeline.run(2, BATCHES[2]).metrics == KEPT
    check(pipeline, *BATCHES[:3])


def test_an_older_checkpoint_with_other_batch_boundaries_is_refused(pipeline: InProcessPipeline) -> None:
    both = EventBatch.concat([BATCHES[2], BATCHES[3]])
    for other in (both, BATCHES[3], None):  # more rows, other rows, no rows
        with pytest.raises(ReplayMismatch, match=r"for batch 2 than before.* repair --last-batch 1") as info:
            pipeline.run(2, other)
        assert "None of them was applied" in str(info.value)
    with pytest.raises(ReplayMismatch, match="for batch 1 than before"):
        pipeline.run(1, both)
    pipeline.log.drop_after(1)  # what the message says
    pipeline.run(2, both)
    check(pipeline, *BATCHES[:2], both)


def test_an_older_checkpoint_with_the_same_boundaries_continues(pipeline: InProcessPipeline) -> None:
    for b in (1, 2, 3):
        pipeline.run(b, BATCHES[b])
    check(pipeline, *BATCHES[:4])


def test_an_empty_task_before_the_one_with_the_events(pipeline: InProcessPipeline) -> None:
    pipeline.run(3, None)
    assert pipeline.run(3, None).metrics == KEPT
    pipeline.run(3, BATCHES[3])
    check(pipeline, *BATCHES[:4])
    pipeline.run(4, None)
    pipeline.run(5, None, ["refresh"])
    pipeline.run(4, BATCHES[4])  # a checkpoint that is older than two batches without events
    check(pipeline, *BATCHES)


def test_a_batch_without_an_entry_is_refused_where_the_next_one_has_one(pipeline: InProcessPipeline) -> None:
    shutil.rmtree(pipeline.arrays)
    pipeline.log.store.delete("log/000000000001.parquet")
    with pytest.raises(LogGap, match=r"no entry for batch 1, but batch 2 has one.*log/000000000001.parquet"):
        pipeline.run(1, BATCHES[1])


def test_arrays_of_another_history_are_rebuilt(pipeline: InProcessPipeline, tmp_path: Path) -> None:
    other = InProcessPipeline(tmp_path / "other", SCHEMA, tasks=pipeline.tasks)
    shutil.copytree(pipeline.store, other.store)
    other.log.drop_after(1)
    for b in (2, 3):  # on another machine, with other boundaries
        other.run(b, BATCHES[b + 1])
    shutil.rmtree(pipeline.store)
    shutil.copytree(other.store, pipeline.store)
    with pytest.raises(RuntimeError, match=r"contain batch 2, but not as it is in the log.*log/000000000002"):
        pipeline.verify()
    assert pipeline.run(3, BATCHES[4]).metrics["refreshed"] == 1
    check(pipeline, *BATCHES[:2], *BATCHES[3:5])


def test_a_lost_newest_entry_is_noticed(pipeline: InProcessPipeline) -> None:
    pipeline.log.drop_after(1)
    with pytest.raises(RuntimeError, match="contain batch 2, but not as it is in the log"):
        pipeline.verify()
    with pytest.raises(LogGap, match="batch 3 comes next"):
        pipeline.run(3, BATCHES[3])
    pipeline.run(2, BATCHES[2])
    check(pipeline, *BATCHES[:3])


def test_damage_is_refused_before_a_rebuild(pipeline: InProcessPipeline) -> None:
    path = pipeline.store / "log" / "000000000001.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(data)
    pipeline.run(3, BATCHES[3])  # reads no older entry
    for action in (lambda: pipeline.run(4, BATCHES[4], ["refresh"]), pipeline.verify):
        with pytest.raises(StoreDamaged, match=r"log/000000000001.parquet in the store .* is damaged"):
            action()


def test_a_model_that_took_the_place_of_a_lost_one_rebuilds(pipeline: InProcessPipeline) -> None:
    model = GraphSAGE(3, 8, 2, 4, seed=8)
    other = InProcessPipeline(pipeline.folder, SCHEMA, tasks=pipeline.tasks, model=model)
    for path in (pipeline.store / "models").glob("*.safetensors"):
        path.unlink()
    assert other.run(3, BATCHES[3]).metrics["refreshed"] == 1
    check(other, *BATCHES[:4])
