"""State on several hosts: any of them may die, come back, or get tasks of another one."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from d3gnn import GraphSchema
from d3gnn.events import EventBatch
from d3gnn.kernel.mapped_state import StateLost
from d3gnn.kernel.operators import OperatorId
from d3gnn.runtime.cluster_coordinator import ClusterCoordinator
from d3gnn.runtime.host_folder import host_folder_id
from d3gnn.runtime.packets import MAX_BYTES, BlocksLost
from d3gnn.runtime.version import BatchVersion
from d3gnn.store.epochs import Epochs
from d3gnn.store.runs import begin_run
from d3gnn.store.store import Store
from d3gnn.testing import random_batches
from d3gnn.testing.in_process import route
from d3gnn.testing.in_process_cluster import InProcessCluster, TaskDied
from d3gnn.windows import Tumbling

SCHEMA = GraphSchema(features={"x": 3})
HOSTS = ["h1", "h2", "h3"]
EDGE = OperatorId("edge", 1)


def stream(number: int, seed: int = 1) -> list[EventBatch]:
    return list(
        random_batches(SCHEMA, seed=seed, n_batches=number, batch_size=30, n_vertices=25, delete_vertex=0.05)
    )


def until_done(cluster: InProcessCluster, number: int, batch: EventBatch, attempts: int = 4) -> int:
    """Run a batch as a supervised query would; returns how often it rebuilt the state."""
    refreshed = 0
    for _ in range(attempts):
        try:
            return refreshed + cluster.run(number, batch).metrics.get("refreshed", 0)
        except (StateLost, BlocksLost, TaskDied):
            continue
    raise AssertionError(f"batch {number} was not processed in {attempts} runs")


def test_undisturbed_batches_rebuild_nothing_after_the_first(tmp_path: Path) -> None:
    cluster, batches = InProcessCluster(tmp_path, SCHEMA, homes=HOSTS), stream(5)
    refreshed = [cluster.run(number, batch).metrics["refreshed"] for number, batch in enumerate(batches)]
    assert refreshed == [1, 0, 0, 0, 0]
    assert cluster.error(batches) < 1e-5


def test_packets_to_the_same_host_stay_in_files_and_others_travel(tmp_path: Path) -> None:
    cluster = InProcessCluster(tmp_path, SCHEMA, homes=["h1", "h2", "h1", "h2"])
    plan = cluster.plan()
    assert plan.near(EDGE, 0) == {0, 2}
    assert plan.near(EDGE, 3) == {1, 3}
    cluster.run(0, stream(1)[0])
    with_place = set()
    for part in range(4):
        worker = cluster.on(plan.homes[part])
        state = worker.state.open(EDGE, part)
        epoch, batch = state.version
        packets = worker._outbox.kept(EDGE, part, version := BatchVersion(epoch, batch - 1, True))
        assert packets is not None, version
        assert max(len(packet) for _, packet in packets) <= MAX_BYTES
        folder = host_folder_id(worker.plan.arrays)
        with_place |= {(part, to) for to, row in packets.for_rows() if folder in bytes(row)}
        worker.close()
    assert with_place == {(0, 0), (0, 2), (2, 0), (2, 2), (1, 1), (1, 3), (3, 1), (3, 3)}


def test_old_arrays_of_a_host_never_pass_for_current_ones(tmp_path: Path) -> None:
    """A part moves away, the graph is rebuilt elsewhere, and its old host comes back with its old arrays."""
    cluster, batches = InProcessCluster(tmp_path, SCHEMA, homes=["h1", "h2"]), stream(7)
    for number in (0, 1, 2):
        cluster.run(number, batches[number])
    cluster.homes = ("h1", "h3")
    assert until_done(cluster, 3, batches[3]) == 1
    # The old host is at the same batch in every way but for its epoch: as if it had gone on by itself.
    cluster.homes = ("h1", "h2")
    for number in (4, 5, 6):
        until_done(cluster, number, batches[number])
        assert cluster.error(batches[: number + 1]) < 1e-5
    assert Epochs(Store(cluster.store)).newest().number == 3  # type: ignore[union-attr]


def test_a_moved_partition_rebuilds_at_once(tmp_path: Path) -> None:
    cluster, batches = InProcessCluster(tmp_path, SCHEMA, homes=["h1", "h2"]), stream(3)
    cluster.run(0, batches[0])
    cluster.homes = ("h3", "h2")
    assert cluster.run(1, batches[1]).metrics["refreshed"] == 1
    cluster.homes = ("h1", "h2")
    assert cluster.run(2, batches[2]).metrics["refreshed"] == 1
    assert cluster.error(batches) < 1e-5


def test_an_epoch_that_is_over_is_not_continued(tmp_path: Path) -> None:
    cluster, batches = InProcessCluster(tmp_path, SCHEMA, homes=["h1", "h2"]), stream(2)
    cluster.run(0, batches[0])
    cluster.run(1, batches[1])
    cluster.homes = ("h3",)
    assert cluster.run(1, batches[1]).metrics["refreshed"] == 1
    cluster.homes = ("h1", "h2")  # whole, and at the same batch
    assert cluster.run(1, batches[1]).metrics["refreshed"] == 1
    assert cluster.error(batches) < 1e-5


def test_a_lost_part_is_marked_and_rebuilt_by_the_next_run(tmp_path: Path) -> None:
    cluster, batches = InProcessCluster(tmp_path, SCHEMA, homes=["h1", "h2"]), stream(3)
    cluster.run(0, batches[0])
    cluster.lose("h2")
    with pytest.raises(StateLost):
        cluster.run(1, batches[1])
    epochs = Epochs(Store(cluster.store))
    assert "edge-1, part 2" in epochs.why_lost(epochs.newest().value)  # type: ignore[union-attr]
    assert cluster.run(1, batches[1]).metrics["refreshed"] == 1
    assert cluster.run(2, batches[2]).metrics["refreshed"] == 0
    assert cluster.error(batches) < 1e-5


def test_a_retried_stage_begins_no_second_epoch(tmp_path: Path) -> None:
    cluster, batches = InProcessCluster(tmp_path, SCHEMA, homes=["h1", "h2"]), stream(2)
    cluster.run(0, batches[0])
    cluster.lose("h1")
    run = begin_run(Store(cluster.store))
    cluster.run(1, batches[1], query_run=run)
    cluster.lose("h1")  # with the output of Partition, which Spark asks for again in the same run
    with pytest.raises(StateLost):
        cluster.run(1, batches[1], query_run=run)
    assert until_done(cluster, 1, batches[1]) == 1
    assert cluster.error(batches) < 1e-5


def test_a_task_away_from_home_reads_no_file_of_the_same_name(tmp_path: Path) -> None:
    cluster, batches = InProcessCluster(tmp_path, SCHEMA, homes=["h1", "h1"]), stream(2)
    cluster.run(0, batches[0])
    shutil.copytree(cluster.memory("h1"), cluster.memory("h2"))
    (cluster.memory("h2") / "host-id").unlink()
    run = begin_run(Store(cluster.store))
    workers = [cluster.on("h1", run), cluster.on("h2", run)]
    first = ClusterCoordinator(workers[0]).run(1, batches[1], set())
    name = cluster.plan().chain.inputs[0]
    with pytest.raises(StateLost, match="files of another host"):
        workers[1].run(name, 0, route([first.packets], 0), 1)
    for worker in workers:
        worker.close()


@pytest.mark.parametrize("window", [None, Tumbling(0.5)], ids=["no window", "window"])
@pytest.mark.parametrize("seed", range(12 if "D3GNN_THOROUGH" in os.environ else 3))
def test_random_faults_end_as_an_undisturbed_run(tmp_path: Path, seed: int, window: Tumbling | None) -> None:
    rng, batches = random.Random(seed), stream(12, seed)
    cluster = InProcessCluster(tmp_path, SCHEMA, homes=["h1", "h2"], window=window)
    operators = cluster.plan().chain.operators
    old: list[Path] = []
    for number, batch in enumerate(batches):
        fault = rng.choice(["none", "none", "dies", "memory", "moves", "comes back", "replay"])
        if fault == "dies":
            cluster.dies = (rng.choice(operators), rng.randrange(4))
        elif fault == "memory":
            cluster.lose(rng.choice(HOSTS))
        elif fault == "moves":
            cluster.homes = tuple(rng.choices(HOSTS, k=rng.choice([1, 2, 3])))
        elif fault == "comes back" and old:  # a host with the arrays of an earlier batch
            host = rng.choice(HOSTS)
            cluster.lose(host)
            if (then := rng.choice(old) / host).exists():
                shutil.copytree(then, cluster.memory(host))
        elif fault == "replay" and number:
            until_done(cluster, number - 1, batches[number - 1])
        until_done(cluster, number, batch)
        cluster.dies = None
        old.append(tmp_path / f"after-{number}")
        shutil.copytree(tmp_path / "hosts", old[-1])
        if window is None:
            assert cluster.error(batches[: number + 1]) < 1e-5, f"after {fault} in batch {number}"
    cluster.run(len(batches), None, ["drain"])
    assert cluster.error(batches) < 1e-5
