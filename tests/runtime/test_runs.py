"""Runs of a query: what an earlier run has left over changes nothing, and a refresh happens once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from d3gnn import GraphSchema
from d3gnn.events import EventBatch
from d3gnn.kernel.mapped_state import StateLost
from d3gnn.kernel.operators import PARTITION, OperatorId
from d3gnn.runtime.rebuild_progress import RebuildProgress, read_rebuild
from d3gnn.store.runs import RUNS, Run, RunIsOver, begin_run, newest_run, run_of
from d3gnn.store.store import Store
from d3gnn.testing import random_batches
from d3gnn.testing.in_process import QUERY, InProcessPipeline, route

SCHEMA = GraphSchema(features={"x": 3})
BATCHES = list(random_batches(SCHEMA, seed=5, n_batches=6, batch_size=40, n_vertices=25))
KEPT = {"kept": 1, "model_version": 1}
EDGE_1 = OperatorId("edge", 1)


@pytest.fixture(params=[1, 2], ids=["one task", "two tasks"])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> InProcessPipeline:
    return InProcessPipeline(tmp_path, SCHEMA, tasks=request.param)


def start(pipeline: InProcessPipeline) -> Run:
    pipeline.plan()  # writes the settings
    return begin_run(Store(pipeline.store))


def check(pipeline: InProcessPipeline, *batches: EventBatch) -> None:
    assert pipeline.error(batches) < 1e-5
    assert pipeline.verify().max_relative_error < 1e-5


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refuses(pipeline: InProcessPipeline, match: str, action: Callable[[], object]) -> None:
    """The action is refused, and changes no byte of the store or the arrays."""
    before = contents(pipeline.folder)
    with pytest.raises(RunIsOver, match=match) as info:
        action()
    assert "has changed nothing" in str(info.value)
    after = contents(pipeline.folder)
    assert before.keys() == after.keys()
    assert [path for path in before if before[path] != after[path]] == []


# ---------------------------------------------------------------------- runs that are over


@pytest.mark.parametrize("batch", [2, 3, 4])
@pytest.mark.parametrize("commands", [[], ["refresh"]], ids=["batch", "refresh"])
def test_a_worker_of_an_earlier_run_changes_nothing(
    pipeline: InProcessPipeline, batch: int, commands: list[str]
) -> None:
    old = start(pipeline)
    for b in range(3):
        pipeline.run(b, BATCHES[b], query_run=old)
    new = start(pipeline)
    pipeline.run(3, BATCHES[3], query_run=new)
    refuses(
        pipeline,
        "run 1 of the pipeline in .* is over: run 2 has begun",
        lambda: pipeline.run(batch, BATCHES[batch], commands, old),
    )
    assert pipeline.run(4, BATCHES[4], query_run=new).metrics["refreshed"] == 0
    check(pipeline, *BATCHES[:5])


def test_an_operator_of_an_earlier_run_changes_nothing(tmp_path: Path) -> None:
    pipeline = InProcessPipeline(tmp_path, SCHEMA, tasks=2)
    old = start(pipeline)
    pipeline.run(0, BATCHES[0], query_run=old)
    with closing(pipeline.worker(old)) as left_over:
        first = pipeline.first(left_over, 1, BATCHES[1])
        sent = [left_over.run(OperatorId("vertex", 0), p, route([first.packets], p), 1) for p in range(2)]
        packets = [each.packets for each in sent]
        new = start(pipeline)
        with closing(pipeline.worker(new)) as live:  # its first task only: the parts behind have not run yet
            assert pipeline.first(live, 1, BATCHES[1]).metrics == KEPT
        refuses(pipeline, "run 2 has begun", lambda: left_over.run(EDGE_1, 0, route(packets, 0), 2))
        pipeline.run(1, BATCHES[1], query_run=new)
        refuses(pipeline, "run 2 has begun", lambda: left_over.run(EDGE_1, 0, route(packets, 0), 2))
    assert pipeline.run(2, BATCHES[2], query_run=new).metrics["refreshed"] == 0
    check(pipeline, *BATCHES[:3])


def test_a_run_in_the_other_shape_refuses_operators_of_an_earlier_one(tmp_path: Path) -> None:
    several, one = (InProcessPipeline(tmp_path, SCHEMA, tasks=tasks) for tasks in (2, 1))
    old = start(several)
    with closing(several.worker(old)) as left_over:
        packets = [several.first(left_over, 0, BATCHES[0]).packets]
        new = start(one)
        one.run(0, BATCHES[0], query_run=new)
        refuses(
            one, "run 2 has begun", lambda: left_over.run(OperatorId("vertex", 0), 0, route(packets, 0), 1)
        )
    one.run(1, BATCHES[1], query_run=new)
    check(one, *BATCHES[:2])


def test_a_task_of_an_earlier_batch_does_not_rebuild(pipeline: InProcessPipeline) -> None:
    run = start(pipeline)
    for b in range(4):
        pipeline.run(b, BATCHES[b], query_run=run)
    refuses(
        pipeline,
        r"batch 1 is over: log/000000000002.parquet in .* was written since run 1",
        lambda: pipeline.run(1, BATCHES[1], query_run=run),
    )
    assert pipeline.run(4, BATCHES[4], query_run=run).metrics["refreshed"] == 0
    check(pipeline, *BATCHES[:5])


def test_a_run_on_an_older_checkpoint_repeats_logged_batches(pipeline: InProcessPipeline) -> None:
    run = start(pipeline)
    for b in range(3):
        pipeline.run(b, BATCHES[b], query_run=run)
    run = start(pipeline)
    refreshed = [pipeline.run(b, BATCHES[b], query_run=run).metrics["refreshed"] for b in (1, 2, 3)]
    assert refreshed == [1, 0, 0]
    check(pipeline, *BATCHES[:4])


def test_arrays_go_on_with_a_store_that_was_restored(pipeline: InProcessPipeline) -> None:
    backup = pipeline.folder / "backup"
    pipeline.run(0, BATCHES[0], query_run=start(pipeline))
    shutil.copytree(pipeline.store, backup)
    left_over = [start(pipeline) for _ in range(3)][-1]
    pipeline.run(1, BATCHES[1], query_run=left_over)
    shutil.rmtree(pipeline.store)
    shutil.copytree(backup, pipeline.store)
    run = start(pipeline)
    assert run.number < left_over.number
    pipeline.run(1, BATCHES[2], query_run=run)
    refuses(pipeline, "run 2 has begun", lambda: pipeline.run(2, BATCHES[3], query_run=left_over))
    check(pipeline, BATCHES[0], BATCHES[2])


def test_runs_that_begin_at_the_same_time_have_different_numbers(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    runs = at_once([lambda: begin_run(store)] * 20)
    assert sorted(run.number for run in runs) == list(range(1, 21))


def test_tasks_of_a_run_that_ask_at_the_same_time_get_the_same_number(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    runs = at_once([lambda: run_of(store, "a"), lambda: run_of(store, "b")] * 10)
    assert len(set(runs)) == 2
    assert set(runs) == {run_of(store, "a"), run_of(store, "b")}


def at_once(calls: list[Callable[[], Run]]) -> list[Run]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def test_only_some_runs_are_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for _ in range(103):
        begin_run(store)
    assert newest_run(store) == 103
    assert store.list(RUNS) == [f"{number:06d}.json" for number in range(4, 104)]


# ---------------------------------------------------------------------- a refresh happens once


def refresh(pipeline: InProcessPipeline) -> Run:
    """Two batches and a refresh."""
    run = start(pipeline)
    for b in range(2):
        pipeline.run(b, BATCHES[b], query_run=run)
    assert pipeline.run(2, BATCHES[2], ["refresh"], run).metrics["refreshed"] == 1
    return run


@pytest.mark.parametrize("restarted", [False, True], ids=["same run", "next run"])
def test_a_refresh_is_answered_from_its_kept_output(pipeline: InProcessPipeline, restarted: bool) -> None:
    run = refresh(pipeline)
    sent, before = pipeline.sent, contents(pipeline.arrays)
    if restarted:
        run = start(pipeline)
    assert pipeline.run(2, BATCHES[2], ["refresh"], run).metrics == KEPT
    assert pipeline.sent == sent
    after = contents(pipeline.arrays)
    changed = {path.name for path in before if before[path] != after[path]}
    assert changed == ({"header"} if restarted else set())
    assert pipeline.run(3, BATCHES[3], query_run=run).metrics["refreshed"] == 0
    check(pipeline, *BATCHES[:4])


def test_a_model_that_is_deployed_between_two_looks_at_a_batch(pipeline: InProcessPipeline) -> None:
    from d3gnn.nn import GraphSAGE
    from d3gnn.runtime.rollout import deploy

    run = refresh(pipeline)
    sent = pipeline.sent
    other = GraphSAGE(3, 8, 2, 4, seed=8)
    deploy(Store(pipeline.store), other)
    assert pipeline.run(2, BATCHES[2], ["refresh", "deploy"], run).metrics["kept"] == 1
    assert pipeline.sent == sent
    assert pipeline.run(3, BATCHES[3], ["deploy"], run).metrics["refreshed"] == 1
    pipeline.model = other
    check(pipeline, *BATCHES[:4])


@pytest.mark.parametrize("left", ["untouched", "interrupted", "deleted"])
def test_a_refresh_that_was_stopped_behind_partition_goes_on(tmp_path: Path, left: str) -> None:
    pipeline = InProcessPipeline(tmp_path, SCHEMA, tasks=2)
    refresh(pipeline)
    run = start(pipeline)
    with closing(pipeline.worker(run)) as worker:
        first = pipeline.first(worker, 3, BATCHES[3], ["refresh"])
        assert first.metrics["refreshed"] == 1
        worker.run(OperatorId("vertex", 0), 0, route([first.packets], 0), 1)
        if left == "interrupted":
            worker.state.open(EDGE_1, 1).begin()
        elif left == "deleted":
            shutil.rmtree(worker.state.folder(EDGE_1, 1))
        epoch = worker.state.open(PARTITION, 0).version[0]
    run = start(pipeline)
    assert pipeline.run(3, BATCHES[3], ["refresh"], run).metrics == KEPT
    with closing(pipeline.worker(run)) as worker:
        assert set(worker.versions()) == {(epoch, 4)}
    assert pipeline.run(4, BATCHES[4], query_run=run).metrics["refreshed"] == 0
    check(pipeline, *BATCHES[:5])


def test_a_run_rebuilds_once_in_a_batch(pipeline: InProcessPipeline) -> None:
    """A retried stage must not: other tasks may have read what it sent before."""
    run = refresh(pipeline)
    for batch in (2, 3):  # one that was rebuilt, and one that was processed
        if batch == 3:
            pipeline.run(3, BATCHES[3], query_run=run)
        shutil.rmtree(pipeline.arrays)
        log = contents(pipeline.store)
        with pytest.raises(StateLost, match=f"when run {run.number} of the pipeline began batch {batch}"):
            pipeline.run(batch, BATCHES[batch], query_run=run)
        assert contents(pipeline.store) == log
        run = start(pipeline)
        assert pipeline.run(batch, BATCHES[batch], query_run=run).metrics["refreshed"] == 1
        shutil.rmtree(pipeline.arrays)
        with pytest.raises(StateLost, match="Start the query again"):  # a batch of an earlier run
            pipeline.run(batch, BATCHES[batch], query_run=run)
        run = start(pipeline)
        assert pipeline.run(batch, BATCHES[batch], query_run=run).metrics["refreshed"] == 1
    check(pipeline, *BATCHES[:4])


def test_an_empty_task_before_the_one_with_the_events(pipeline: InProcessPipeline) -> None:
    run = start(pipeline)
    pipeline.run(0, BATCHES[0], query_run=run)
    pipeline.run(1, None, query_run=run)
    assert pipeline.run(1, None, query_run=run).metrics == KEPT
    pipeline.run(1, BATCHES[1], query_run=run)
    assert pipeline.run(1, BATCHES[1], query_run=run).metrics == KEPT
    check(pipeline, *BATCHES[:2])


def test_a_rebuild_shows_its_steps(pipeline: InProcessPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    step = RebuildProgress.step

    def noted(self: RebuildProgress, name: str) -> None:
        step(self, name)
        steps.append(read_rebuild(self._folder).rpartition(": ")[2])

    monkeypatch.setattr(RebuildProgress, "step", noted)
    refresh(pipeline)
    assert steps[:2] == [
        f"{name} (step {i} of {3 if pipeline.tasks == 1 else 7})"
        for i, name in [(1, "reading the log"), (2, "partition")]
    ]
    names = [text.partition(" (")[0] for text in steps[2:]]
    operators = ["vertex-0", "edge-1", "vertex-1", "edge-2", "vertex-2"]
    assert names == (["operators"] if pipeline.tasks == 1 else [name for name in operators for _ in range(2)])
    assert read_rebuild(pipeline.arrays / QUERY) == ""
