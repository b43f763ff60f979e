"""`verify` finds the arrays, waits for the end of a batch, and never calls missing state wrong or exact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from d3gnn.cli import app
from d3gnn.events import edge
from d3gnn.kernel.operators import PARTITION
from d3gnn.runtime.between_batches import NotVerified
from d3gnn.runtime.verify import stored_plan, verify

EDGES = [edge(1, 2, time=1), edge(2, 3, time=1)]


def outcome(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["verify", *map(str, arguments)])
    return result.exit_code, result.stderr.splitlines()[-1]


def test_arrays_in_a_folder_of_ones_own_are_found(pipeline: Callable[..., Any], tmp_path: Path) -> None:
    run = pipeline(arrays=tmp_path / "arrays")
    run.process(EDGES)
    assert verify(run.plan.store).missing == 0
    assert outcome("--checkpoint", run.plan.store)[0] == 0
    (tmp_path / "arrays").rename(tmp_path / "moved")
    code, line = outcome("--checkpoint", run.plan.store)
    assert (code, "there are no embeddings to compare" in line) == (2, True)
    assert not (tmp_path / "arrays").exists(), "verify makes no arrays"
    assert outcome("--checkpoint", run.plan.store, "--arrays", tmp_path / "moved")[0] == 0


def test_the_default_folder_is_found_after_one_of_ones_own(
    pipeline: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("d3gnn.runtime.plan.MEMORY", tmp_path)
    run = pipeline(arrays=tmp_path / "arrays")
    assert stored_plan(run.plan.store).arrays == str(tmp_path / "arrays")
    run.gnn.arrays = None
    assert run.gnn.plan({"src": "bigint"}).arrays == stored_plan(run.plan.store).arrays != run.plan.arrays


def test_a_batch_that_was_interrupted_cannot_be_verified(pipeline: Callable[..., Any]) -> None:
    run = pipeline()
    run.process(EDGES)
    run.worker.state.open(PARTITION, 0).begin()
    with pytest.raises(NotVerified, match=r"was interrupted.*start the pipeline"):
        verify(run.plan)
    assert outcome("--checkpoint", run.plan.store)[0] == 2


def test_a_part_of_another_version_cannot_be_verified(pipeline: Callable[..., Any]) -> None:
    run = pipeline()
    run.process(EDGES)
    part = run.worker.state.open(run.plan.chain.embeddings, 1)
    part.commit(7, part.version[1])
    run.stop()
    with pytest.raises(NotVerified, match="are of several versions"):
        verify(run.plan)


def test_a_running_pipeline_is_verified_between_two_batches(pipeline: Callable[..., Any]) -> None:
    run, rng = pipeline(), np.random.default_rng(0)
    run.process(EDGES)
    stopping = False

    def keep_running() -> None:
        while not stopping:
            ends = rng.integers(0, 200, (200, 2)).tolist()
            run.process([edge(src, dst, time=run.batches) for src, dst in ends])

    thread = Thread(target=keep_running)
    thread.start()
    try:
        verdicts = [verify(run.plan) for _ in range(8)]
    finally:
        stopping = True
        thread.join()
    assert [each for each in verdicts if each.missing or each.max_relative_error > 1e-5] == []
    batches = [each.batch for each in verdicts]
    assert batches == sorted(batches)
    assert batches[-1] > batches[0]
