"""Operators over mapped arrays in worker processes: each batch is applied once, in whichever process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import EventBatch
from d3gnn.kernel.mapped_state import StateLost
from d3gnn.kernel.operators import ChainSpec, OperatorConfig, OperatorId
from d3gnn.kernel.partitioners import HDRF
from d3gnn.nn import GraphSAGE
from d3gnn.oracle import Oracle, embeddings, relative_error
from d3gnn.runtime.log_coordinator import LogCoordinator
from d3gnn.runtime.packets import BlocksLost, Inbox, PacketHeader, Packets, make_packets
from d3gnn.runtime.plan import Plan
from d3gnn.runtime.version import BatchVersion
from d3gnn.runtime.worker import Worker
from d3gnn.store.models import put_model
from d3gnn.store.store import Store
from d3gnn.testing import random_batches

LAYERS = 2
VERTEX_0, EDGE_1, VERTEX_1 = OperatorId("vertex", 0), OperatorId("edge", 1), OperatorId("vertex", 1)
QUERY = "0-0-0-0-0"


@pytest.fixture(autouse=True)
def no_files_stay_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With sockets numbered from 1024 on, which py4j cannot wait for, callbacks of later tests would hang."""
    monkeypatch.setattr(Worker, "freeze_objects", lambda *_: None)  # frozen objects are not collected
    yield
    gc.collect()


def make_plan(folder: Path, parts: int) -> Plan:
    model = GraphSAGE(3, 8, 2, 4, seed=3)
    folder.mkdir(exist_ok=True)
    path, version = put_model(Store(folder / "store"), model)
    schema = GraphSchema(features={"x": 3})
    config = OperatorConfig(parts, schema)
    return Plan(
        "test",
        str(folder / "store"),
        str(folder / "arrays"),
        HDRF(),
        ChainSpec.of(model),
        config,
        path,
        version,
    )


def route(packets: list[Packets], part: int) -> list[bytearray]:
    """The packets that Spark would deliver to a part."""
    return [bytearray(packet) for sent in packets for target, packet in sent.for_rows() if target == part]


def first_packets(worker: Worker, version: BatchVersion, events: EventBatch) -> Packets:
    return make_packets(version, 0, worker.plan.parts, worker.partition.process(events, 0).blocks)


def run_chain(
    plan: Plan, version: BatchVersion, events: EventBatch, *, runs: int = 1, restart: bool = False
) -> None:
    """One batch through all operators, each run `runs` times; with new worker processes where `restart`."""
    worker = Worker(plan, QUERY)
    sent = [first_packets(worker, version, events)]
    for name in plan.chain.operators:
        if restart:
            worker = Worker(plan, QUERY)
        sources = 1 if name == VERTEX_0 else plan.parts
        outputs: list[list[Packets]] = []
        for _ in range(runs):
            packets = (
                worker.run(name, part, route(sent, part), sources).packets for part in range(plan.parts)
            )
            outputs.append(list(packets))
        assert all(output == outputs[0] for output in outputs), "a second run sends the same bytes"
        sent = outputs[0]


@pytest.mark.parametrize(
    ("parts", "runs", "restart"), [(1, 1, False), (3, 2, False), (2, 1, True), (4, 2, True)]
)
def test_chain_equals_the_oracle(tmp_path: Path, parts: int, runs: int, restart: bool) -> None:
    plan = make_plan(tmp_path, parts)
    oracle = Oracle(plan.config.schema)
    for b, batch in enumerate(
        random_batches(plan.config.schema, seed=9, n_batches=8, batch_size=50, n_vertices=30)
    ):
        oracle.apply(batch)
        run_chain(plan, BatchVersion(0, b, False), batch, runs=runs, restart=restart)
        # After each batch: values travel absolute, so a later batch may repair an error of this one.
        worker = Worker(plan, QUERY)
        expected = embeddings(worker.model, oracle)
        engine = LocalEngine(worker.model, parts=parts, partitioner=HDRF(), schema=plan.config.schema)
        last = worker.operator(plan.chain.embeddings)
        engine.partition, engine.vertices[-1] = worker.partition, last  # type: ignore[call-overload]
        got = engine.embeddings(list(expected))
        assert relative_error(got, np.stack(list(expected.values()))) < 1e-5


def test_an_interrupted_batch_is_lost(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 1)
    first, second = random_batches(plan.config.schema, seed=1, n_batches=2, batch_size=20, n_vertices=9)
    run_chain(plan, BatchVersion(0, 0, False), first)
    Worker(plan, QUERY).state.open(EDGE_1, 0).begin()
    with pytest.raises(StateLost, match="begun and not finished"):
        run_chain(plan, BatchVersion(0, 1, False), second)


def test_a_skipped_batch_is_lost(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 1)
    (batch,) = random_batches(plan.config.schema, seed=1, n_batches=1, batch_size=20, n_vertices=9)
    with pytest.raises(StateLost, match="batch 5 of epoch 0"):
        run_chain(plan, BatchVersion(0, 5, False), batch)


def test_a_refresh_replaces_any_state(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 2)
    first, second = random_batches(plan.config.schema, seed=1, n_batches=2, batch_size=20, n_vertices=9)
    run_chain(plan, BatchVersion(0, 0, False), first)
    worker = Worker(plan, QUERY)
    worker.state.open(VERTEX_1, 1).begin()
    worker.partition.reset()
    run_chain(plan, BatchVersion(4, 7, True), second, runs=2)
    assert Worker(plan, QUERY).state.open(VERTEX_1, 1).version == (4, 8)


def test_a_task_of_an_earlier_epoch_is_refused(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 2)
    (batch,) = random_batches(plan.config.schema, seed=1, n_batches=1, batch_size=20, n_vertices=9)
    run_chain(plan, BatchVersion(4, 7, True), batch)
    with pytest.raises(StateLost, match="epoch 4 has begun"):
        run_chain(plan, BatchVersion(3, 7, True), batch)


def test_older_output_is_not_mistaken_for_that_of_a_refresh(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 1)
    (batch,) = random_batches(plan.config.schema, seed=1, n_batches=1, batch_size=20, n_vertices=9)
    run_chain(plan, BatchVersion(0, 0, False), batch)
    worker = Worker(plan, QUERY)
    part_state = worker.state.open(EDGE_1, 0)
    assert worker.kept_output(EDGE_1, 0, part_state, BatchVersion(0, 0, False)) is not None
    worker.partition.reset()
    run_chain(plan, BatchVersion(1, 1, True), batch)
    assert part_state.version == (1, 2)
    kept = worker.kept_output(EDGE_1, 0, part_state, BatchVersion(1, 1, False))
    assert kept is not None
    assert {PacketHeader.of(packet).version for _, packet in kept} == {BatchVersion(1, 1, True)}
    assert worker.kept_output(EDGE_1, 0, part_state, BatchVersion(0, 0, False)) is None
    assert [path.name for path in worker.state.folder(EDGE_1, 0).glob("outbox-*")] == ["outbox-1-1"]


def test_a_deleted_outbox_is_noticed_by_its_reader(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 1)
    first, second = random_batches(plan.config.schema, seed=1, n_batches=2, batch_size=20, n_vertices=9)
    run_chain(plan, BatchVersion(0, 0, False), first)
    worker = Worker(plan, QUERY)
    sent = worker.run(VERTEX_0, 0, route([first_packets(worker, BatchVersion(0, 1, False), second)], 0), 1)
    Path(str(sent.packets.file)).unlink()
    with pytest.raises(StateLost, match="which held the packets of batch 1, was deleted"):
        worker.run(EDGE_1, 0, route([sent.packets], 0), 1)
    assert worker.state.open(EDGE_1, 0).dirty, "so that the next run rebuilds it"


def test_a_retry_without_its_kept_output_marks_the_state_as_lost(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 1)
    (batch,) = random_batches(plan.config.schema, seed=1, n_batches=1, batch_size=20, n_vertices=9)
    run_chain(plan, BatchVersion(0, 0, False), batch)
    worker = Worker(plan, QUERY)
    worker.outbox(VERTEX_0, 0).clear()
    with pytest.raises(StateLost, match="Start the query again"):
        worker.run(VERTEX_0, 0, route([make_packets(BatchVersion(0, 0, False), 0, 1, [])], 0), 1)
    assert worker.state.open(VERTEX_0, 0).dirty


def test_a_retried_first_batch_with_another_plan_rebuilds(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 1)
    Store(plan.store).fix({"ids": "int", "keys": "int", "parts": 1, "schema": plan.config.schema.to_dict()})
    (batch,) = random_batches(plan.config.schema, seed=1, n_batches=1, batch_size=20, n_vertices=9)
    first = LogCoordinator(Worker(plan, QUERY)).run(0, batch, set())
    assert first.metrics["refreshed"] == 0
    assert LogCoordinator(Worker(plan, QUERY)).run(0, batch, set()).metrics == {"kept": 1, "model_version": 1}
    other = replace(plan, config=replace(plan.config, min_change=0.5))
    assert LogCoordinator(Worker(other, QUERY)).run(0, batch, set()).metrics["refreshed"] == 1


def test_a_missing_packet_is_noticed() -> None:
    packets = [bytes(p) for _, p in make_packets(BatchVersion(0, 0, False), 0, 1, [])]
    assert Inbox.of(packets, sources=1).version == BatchVersion(0, 0, False)
    with pytest.raises(BlocksLost, match="packets of 2 parts"):
        Inbox.of(packets, sources=2)


def test_a_closed_worker_holds_no_files(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 3)
    (batch,) = random_batches(plan.config.schema, seed=1, n_batches=1, batch_size=20, n_vertices=9)
    run_chain(plan, BatchVersion(0, 0, False), batch)
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    worker = Worker(plan, QUERY)
    assert worker.partition.live_ids() is not None
    worker.operator(VERTEX_1).state(0)
    assert len(list(Path("/proc/self/fd").iterdir())) > before
    worker.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
