"""Operators over mapped arrays, as a worker runs them: each batch applied once, whoever runs it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import EventBatch
from d3gnn.kernel.arrays import StateLost
from d3gnn.kernel.partitioners import HDRF
from d3gnn.kernel.reference import Oracle, embeddings, relative_error
from d3gnn.nn import GraphSAGE
from d3gnn.spark.intake import Intake
from d3gnn.spark.models import put_model
from d3gnn.spark.parcels import BlocksLost, Delivery, Parcels, Stamp, pack_parcels
from d3gnn.spark.runtime import Plan, Runtime
from d3gnn.spark.store import Store
from d3gnn.testing import random_batches

LAYERS = 2
QUERY = "0-0-0-0-0"


@pytest.fixture(autouse=True)
def no_files_stay_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With sockets numbered from 1024 on, which py4j cannot wait for, callbacks of later tests would hang."""
    monkeypatch.setattr(Runtime, "settle", lambda *_: None)  # what is frozen is not collected
    yield
    gc.collect()


def make_plan(folder: Path, parts: int) -> Plan:
    model = GraphSAGE([3, 8, 4], seed=3)
    folder.mkdir(exist_ok=True)
    path, version = put_model(Store(folder / "store"), model)
    schema = GraphSchema(features={"x": 3})
    return Plan(
        "test", str(folder / "store"), str(folder / "arrays"), parts, HDRF(), schema,
        path, version, LAYERS,
    )  # fmt: skip


def route(parcels: list[Parcels], part: int) -> list[bytearray]:
    """What Spark would bring to a part."""
    return [bytearray(parcel) for sent in parcels for target, parcel in sent.for_rows() if target == part]


def first_parcels(runtime: Runtime, stamp: Stamp, events: EventBatch) -> Parcels:
    return pack_parcels(stamp, 0, runtime.plan.parts, runtime.partition.process(events, 0).blocks)


def run_chain(plan: Plan, stamp: Stamp, events: EventBatch, *, runs: int = 1, restart: bool = False) -> None:
    """One batch through all operators, each run `runs` times; with new worker processes where `restart`."""
    runtime = Runtime(plan, QUERY)
    sent = [first_parcels(runtime, stamp, events)]
    names = ["vertex-0"] + [f"{kind}-{i}" for i in range(1, LAYERS + 1) for kind in ("edge", "vertex")]
    for name in names:
        if restart:
            runtime = Runtime(plan, QUERY)
        sources = 1 if name == "vertex-0" else plan.parts
        outputs: list[list[Parcels]] = []
        for _ in range(runs):
            mine = (runtime.run(name, part, route(sent, part), sources).parcels for part in range(plan.parts))
            outputs.append(list(mine))
        assert all(output == outputs[0] for output in outputs), "a second run hands out the same bytes"
        sent = outputs[0]


@pytest.mark.parametrize(
    ("parts", "runs", "restart"), [(1, 1, False), (3, 2, False), (2, 1, True), (4, 2, True)]
)
def test_chain_equals_the_oracle(tmp_path: Path, parts: int, runs: int, restart: bool) -> None:
    plan = make_plan(tmp_path, parts)
    oracle = Oracle(plan.schema)
    for b, batch in enumerate(random_batches(plan.schema, seed=9, n_batches=8, batch_size=50, n_vertices=30)):
        oracle.apply(batch)
        run_chain(plan, Stamp(0, b, False), batch, runs=runs, restart=restart)
        # After each batch: values travel absolute, so that a later batch may mend what this one has lost.
        runtime = Runtime(plan, QUERY)
        expected = embeddings(runtime.model, oracle)
        engine = LocalEngine(runtime.model, parts, HDRF(), plan.schema)
        last = runtime.operator(f"vertex-{LAYERS}")
        engine.partition, engine.vertices[-1] = runtime.partition, last  # type: ignore[call-overload]
        got = engine.embeddings(list(expected))
        assert relative_error(got, np.stack(list(expected.values()))) < 1e-5


def test_a_batch_that_was_begun_and_not_finished_is_lost(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 1)
    first, second = random_batches(plan.schema, seed=1, n_batches=2, batch_size=20, n_vertices=9)
    run_chain(plan, Stamp(0, 0, False), first)
    Runtime(plan, QUERY).space("edge-1", 0).begin()
    with pytest.raises(StateLost, match="begun and not finished"):
        run_chain(plan, Stamp(0, 1, False), second)


def test_a_skipped_batch_is_lost(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 1)
    (batch,) = random_batches(plan.schema, seed=1, n_batches=1, batch_size=20, n_vertices=9)
    with pytest.raises(StateLost, match="batch 5 of epoch 0"):
        run_chain(plan, Stamp(0, 5, False), batch)


def test_a_refresh_takes_whatever_was_there_before(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 2)
    first, second = random_batches(plan.schema, seed=1, n_batches=2, batch_size=20, n_vertices=9)
    run_chain(plan, Stamp(0, 0, False), first)
    runtime = Runtime(plan, QUERY)
    runtime.space("vertex-1", 1).begin()
    runtime.partition.reset()
    run_chain(plan, Stamp(4, 7, True), second, runs=2)
    assert Runtime(plan, QUERY).space("vertex-1", 1).version == (4, 8)


def test_what_is_left_of_an_earlier_refresh_comes_too_late(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 2)
    (batch,) = random_batches(plan.schema, seed=1, n_batches=1, batch_size=20, n_vertices=9)
    run_chain(plan, Stamp(4, 7, True), batch)
    with pytest.raises(StateLost, match="epoch 4 has begun"):
        run_chain(plan, Stamp(3, 7, True), batch)


def test_nothing_older_passes_for_the_output_of_a_refresh(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 1)
    (batch,) = random_batches(plan.schema, seed=1, n_batches=1, batch_size=20, n_vertices=9)
    run_chain(plan, Stamp(0, 0, False), batch)
    runtime = Runtime(plan, QUERY)
    space = runtime.space("edge-1", 0)
    assert runtime.sent("edge-1", 0, space, Stamp(0, 0, False)) is not None
    runtime.partition.reset()
    run_chain(plan, Stamp(1, 1, True), batch)
    assert space.version == (1, 2)
    assert runtime.sent("edge-1", 0, space, Stamp(1, 1, False)) is None


def test_what_was_sent_and_is_gone_is_lost(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 1)
    first, second = random_batches(plan.schema, seed=1, n_batches=2, batch_size=20, n_vertices=9)
    run_chain(plan, Stamp(0, 0, False), first)
    runtime = Runtime(plan, QUERY)
    sent = runtime.run("vertex-0", 0, route([first_parcels(runtime, Stamp(0, 1, False), second)], 0), 1)
    Path(str(sent.parcels.file)).unlink()
    with pytest.raises(StateLost, match="is gone, which held what was sent in batch 1"):
        runtime.run("edge-1", 0, route([sent.parcels], 0), 1)
    assert runtime.space("edge-1", 0).dirty, "so that the next run makes it anew"


def test_what_is_to_be_sent_again_and_is_gone_is_lost_for_the_next_run_to_see(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 1)
    (batch,) = random_batches(plan.schema, seed=1, n_batches=1, batch_size=20, n_vertices=9)
    run_chain(plan, Stamp(0, 0, False), batch)
    runtime = Runtime(plan, QUERY)
    runtime.outbox("vertex-0", 0).clear()
    with pytest.raises(StateLost, match="Start the query again"):
        runtime.run("vertex-0", 0, route([pack_parcels(Stamp(0, 0, False), 0, 1, [])], 0), 1)
    assert runtime.space("vertex-0", 0).dirty


def test_a_first_batch_that_comes_again_with_another_plan_is_made_anew(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 1)
    Store(plan.store).fix({"ids": "int", "keys": "int"})
    (batch,) = random_batches(plan.schema, seed=1, n_batches=1, batch_size=20, n_vertices=9)
    first = Intake(Runtime(plan, QUERY)).run(0, batch, set())
    assert first.metrics["refreshed"] == 0
    assert Intake(Runtime(plan, QUERY)).run(0, batch, set()).metrics == {"kept": 1}
    other = replace(plan, epsilon=0.5)
    assert Intake(Runtime(other, QUERY)).run(0, batch, set()).metrics["refreshed"] == 1


def test_a_missing_parcel_is_noticed() -> None:
    parcels = [bytes(p) for _, p in pack_parcels(Stamp(0, 0, False), 0, 1, [])]
    assert Delivery.of(parcels, sources=1).stamp == Stamp(0, 0, False)
    with pytest.raises(BlocksLost, match="parcels of 2 parts"):
        Delivery.of(parcels, sources=2)


def test_a_closed_runtime_holds_no_files(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 3)
    (batch,) = random_batches(plan.schema, seed=1, n_batches=1, batch_size=20, n_vertices=9)
    run_chain(plan, Stamp(0, 0, False), batch)
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    runtime = Runtime(plan, QUERY)
    assert runtime.partition.live_ids() is not None
    runtime.operator("vertex-1").state(0)
    assert len(list(Path("/proc/self/fd").iterdir())) > before
    runtime.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
