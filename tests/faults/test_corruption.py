"""Random damage to store and arrays: never a wrong embedding while verify says exact, never a nameless error.

Each round damages one file of a pipeline with six batches and then does what an operator would: verify, run
the next batch, check all files, repair, continue. With D3GNN_THOROUGH=1 there are 200 rounds.
"""

from __future__ import annotations

import faulthandler
import os
import random
import shutil
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from d3gnn import GraphSchema
from d3gnn.runtime.verify import Verdict, stored_plan, verify
from d3gnn.store.check import StoreReport, check_store
from d3gnn.store.repair import Repair, plan_repair
from d3gnn.store.store import Store
from d3gnn.testing import random_batches
from d3gnn.testing.in_process import InProcessPipeline

ROUNDS = 200 if "D3GNN_THOROUGH" in os.environ else 20
SCHEMA = GraphSchema(features={"x": 3})
BATCHES = list(random_batches(SCHEMA, seed=7, n_batches=8, batch_size=30, n_vertices=20, bad=0.1))
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline with six batches, and a snapshot of batch 3."""
    folder = tmp_path_factory.mktemp("original")
    pipeline = InProcessPipeline(folder, SCHEMA)
    for b, batch in enumerate(BATCHES[:6]):
        pipeline.run(b, batch, ["refresh"] if b == 3 else [])
    pipeline.seal()
    return folder


@dataclass
class Damaged:
    """What was done to a pipeline, and the names that an error may have."""

    what: str
    names: list[str]
    #: Whether a check of the files must notice it.
    shows: bool


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def damage(folder: Path, dice: random.Random) -> Damaged:
    """Flip a bit of a file, cut it, delete it, or swap it with another one."""
    path = dice.choice(files(folder))
    kind = dice.choice(["flip", "flip", "truncate", "swap", "delete"])
    data, names, shows = path.read_bytes(), [path.name], True
    if kind == "flip":
        place = dice.randrange(len(data))
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :])
    elif kind == "truncate":
        os.truncate(path, dice.randrange(len(data)))
    elif kind == "delete":
        path.unlink()
        # Without the newest entry, or those before a snapshot, a store is whole in itself.
        shows = path.parent.name == "log" and path.stem not in ("000000000000", "000000000005")
    else:
        other = dice.choice(files(path.parent) or [path])
        theirs = other.read_bytes()
        other.write_bytes(data)
        path.write_bytes(theirs)
        names.append(other.name)
        shows = theirs != data
    return Damaged(f"{kind} {path.relative_to(folder)} {names[1:]}", names, shows)


def attempt(act: Callable[[], object], damaged: Damaged, known: tuple[str, ...]) -> bool:
    """Whether an action succeeds; an error must name what was damaged."""
    failed: Exception | None = None
    try:
        act()
    except Exception as error:
        failed = error
    assert failed is None or any(name in str(failed) for name in (*damaged.names, *known)), (
        f"after {damaged.what}: {type(failed).__name__} without a file's name: {failed}"
    )
    return failed is None


def check_exact(pipeline: InProcessPipeline, batches: int, damaged: Damaged, known: tuple[str, ...]) -> bool:
    """Whether verify says exact, which must then be true."""
    verdicts: list[Verdict] = []

    def compare() -> None:
        verdicts.append(verify(stored_plan(pipeline.store, arrays=str(pipeline.arrays))))

    if not attempt(compare, damaged, known):
        return False
    (verdict,) = verdicts
    exact = verdict.max_relative_error <= TOLERANCE and not verdict.missing
    if exact:
        assert pipeline.error(BATCHES[:batches]) <= TOLERANCE, f"after {damaged.what}: verify says exact"
    return exact


def damage_the_store(folder: Path, dice: random.Random) -> str:
    pipeline = InProcessPipeline(folder, SCHEMA)
    store = Store(pipeline.store)
    damaged = damage(pipeline.store, dice)
    # An entry that is gone is named by the arrays that have it; a store without settings by its folder.
    known = ("settings.json", "in models of the store")
    check_exact(pipeline, 6, damaged, known)
    if attempt(lambda: pipeline.run(6, BATCHES[6]), damaged, known):
        check_exact(pipeline, 7, damaged, known)
    reports: list[StoreReport] = []
    if not attempt(lambda: reports.append(check_store(store)), damaged, known):
        return damaged.what
    (report,) = reports
    assert report.damages or not damaged.shows, f"the check does not notice: {damaged.what}"
    plans: list[Repair] = []
    if not attempt(lambda: plans.append(plan_repair(store, report, None)), damaged, known):
        return damaged.what
    plans[0].apply()
    report = check_store(Store(pipeline.store))
    assert not report.damages, f"after {damaged.what} and a repair: {report.damages}"
    for batch in range(report.last + 1, 8):  # read again
        pipeline.run(batch, BATCHES[batch])
    assert check_exact(pipeline, 8, damaged, ()), f"after {damaged.what} and a repair"
    return damaged.what


def damage_the_arrays(folder: Path, dice: random.Random) -> str:
    """A process may crash on damaged arrays, but verify is not deceived, and events are decided rightly: the
    arrays of Partition are sealed at the end of a query.
    """
    pipeline = InProcessPipeline(folder, SCHEMA)
    damaged = damage(pipeline.arrays, dice)
    known = (str(pipeline.arrays),)
    check_exact(pipeline, 6, damaged, known)
    attempt(lambda: pipeline.run(6, BATCHES[6]), damaged, known)
    check_exact(pipeline, 7, damaged, known)
    shutil.rmtree(pipeline.arrays)  # what the documentation says
    if pipeline.log.last() == 5:
        pipeline.run(6, BATCHES[6])
    pipeline.run(7, BATCHES[7])
    assert check_exact(pipeline, 8, damaged, ()), f"after {damaged.what} and new arrays"
    return damaged.what


def in_a_child(act: Callable[[], object]) -> int:
    """The exit code of a process that runs this; 128 and more if it crashed or did not end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            faulthandler.disable()  # crashes are expected here
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


@pytest.mark.parametrize("part", range(4))
def test_damage_to_the_store(original: Path, tmp_path: Path, part: int) -> None:
    for seed in range(part, ROUNDS * 3 // 4, 4):
        folder = tmp_path / str(seed)
        shutil.copytree(original, folder)
        damage_the_store(folder, random.Random(seed))
        shutil.rmtree(folder)


def test_damage_to_the_arrays(original: Path, tmp_path: Path) -> None:
    for seed in range(ROUNDS // 4):
        folder = tmp_path / str(seed)
        shutil.copytree(original, folder)
        code = in_a_child(lambda: damage_the_arrays(folder, random.Random(seed)))  # noqa: B023
        assert code == 0 or code >= 128, f"round {seed}: see above"
        shutil.rmtree(folder)
