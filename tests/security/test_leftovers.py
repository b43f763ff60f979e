"""Arrays that no process uses are found and removed; those that one uses never are."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from d3gnn.cli import app
from d3gnn.events import edge
from d3gnn.kernel.windows import Tumbling
from d3gnn.runtime import leftovers
from d3gnn.runtime import plan as plans
from d3gnn.runtime.in_use import InUse, is_in_use, remove_unused
from d3gnn.runtime.leftovers import prepare_arrays
from d3gnn.runtime.timers import read_timers
from d3gnn.runtime.verify import verify

EDGES = [edge(1, 2, time=1), edge(2, 3, time=1)]


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for /dev/shm, and a folder beside it for /tmp."""
    folder = tmp_path / "shm"
    for module in (plans, leftovers):
        monkeypatch.setattr(module, "MEMORY", folder)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    folder.mkdir()
    (tmp_path / "tmp").mkdir()
    return folder


def clean(*arguments: str, input: str = "") -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["clean", "--json", *arguments], input=input)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout.splitlines()[-1])["arrays"]
    return found


def test_only_arrays_that_nobody_uses_are_listed_and_removed(
    pipeline: Callable[..., Any], memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("d3gnn.runtime.outbox.LARGE", 0)
    stopped, running = pipeline("stopped"), pipeline("running")
    for run in (stopped, running):
        run.process(EDGES)
    stopped.stop()
    large = stopped.plan.large / stopped.query
    assert large.is_dir()
    (listed,) = clean("--dry-run")
    assert (listed["folder"], listed["store"]) == (str(stopped.folder), stopped.plan.store)
    assert listed["bytes"] > 4096
    assert [each["removed"] for each in clean(input="n\n")] == [False]
    assert stopped.folder.is_dir()
    assert [each["removed"] for each in clean(input="y\n")] == [True]
    assert not stopped.folder.parent.exists()
    assert not large.exists()
    assert clean("--yes") == []
    running.process([edge(3, 4, time=2)])
    assert verify(running.plan).max_relative_error < 1e-5
    # What was large outlives a reboot, which empties the memory.
    running.stop()
    shutil.rmtree(memory)
    assert [each["removed"] for each in clean("--yes")] == [True]
    assert not list(running.plan.large.parent.iterdir())


def test_a_killed_process_uses_nothing(tmp_path: Path) -> None:
    code = "import sys, time; from d3gnn.runtime.in_use import InUse\n"
    code += "InUse(sys.argv[1], 'store').mark(); print('marked', flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "q")], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process, process.stdout:
        assert process.stdout.readline() == b"marked\n"
        assert is_in_use(tmp_path / "q")
        assert not remove_unused(tmp_path / "q")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not is_in_use(tmp_path / "q")
    assert remove_unused(tmp_path / "q")
    assert not list(tmp_path.glob("*q"))


def test_a_mark_is_renewed_after_its_folder_was_removed(tmp_path: Path) -> None:
    mark = InUse(tmp_path / "q", "store")
    mark.mark_existing()
    assert not (tmp_path / "q").exists()
    mark.mark()
    shutil.rmtree(tmp_path / "q")
    mark.mark()
    assert is_in_use(tmp_path / "q")
    mark.close()
    assert not is_in_use(tmp_path / "q")


def test_pipelines_that_share_a_folder_leave_each_other_alone(
    pipeline: Callable[..., Any], tmp_path: Path
) -> None:
    one = pipeline("one", arrays=tmp_path / "arrays", window=Tumbling(3600.0))
    other = pipeline("other", arrays=tmp_path / "arrays")
    one.process(EDGES)
    one.process([edge(3, 2, time=2)])
    one.stop()
    waiting = read_timers(one.folder)
    other.process(EDGES)
    assert waiting is not None
    assert waiting.pending > 0
    assert one.gnn.pending() == waiting.pending
    assert other.gnn.pending() == 0
    one.process([edge(4, 3, time=3)])  # which needs the arrays of the batches before
    assert verify(one.plan).missing == verify(other.plan).missing == 0


def test_a_start_sweeps_what_no_start_can_use_again(pipeline: Callable[..., Any], tmp_path: Path) -> None:
    lost, stopped, used, new = (pipeline(name) for name in ("lost", "stopped", "used", "new"))
    for run in (lost, stopped, used):
        run.process(EDGES)
    for run in (lost, stopped):
        run.stop()
    for run in (lost, used):
        shutil.rmtree(run.plan.store)
    prepare_arrays(new.plan)
    assert [run.folder.exists() for run in (lost, stopped, used)] == [False, True, True]


def test_an_earlier_query_of_the_same_store_is_swept(pipeline: Callable[..., Any], tmp_path: Path) -> None:
    before = pipeline()
    before.process(EDGES)
    before.stop()
    shutil.rmtree(before.plan.store)  # and the checkpoint, to begin again
    again = pipeline()
    again.process(EDGES)
    assert (before.folder.exists(), again.folder.exists()) == (False, True)
