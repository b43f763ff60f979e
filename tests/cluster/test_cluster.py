"""The pipeline on machines that share nothing but storage."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from d3gnn.testing.driver_process import DriverProcess
from d3gnn.testing.spark_cluster import SparkCluster

THOROUGH = "D3GNN_THOROUGH" in os.environ
thorough = pytest.mark.skipif(not THOROUGH, reason="needs D3GNN_THOROUGH=1")


def opened(driver: DriverProcess, storage: Path, name: str, parts: int, **settings: object) -> str:
    folder = str(storage / name)
    driver.call("open", folder=folder, parts=parts, **settings)
    return folder


def test_exact_on_two_machines_and_after_a_lost_executor(
    driver: DriverProcess, cluster: SparkCluster, storage: Path
) -> None:
    folder = opened(driver, storage, "exact", parts=4)
    driver.call("write", folder=folder, batches=5)
    # A task that left its home would find no arrays, and begin an epoch.
    assert driver.call("run", folder=folder)["refreshes"] == 1
    driver.call("check", folder=folder)
    for pid in cluster.executors(cluster.workers[-1]):
        os.kill(pid, signal.SIGKILL)
    driver.call("write", folder=folder, batches=3, seed=5)
    driver.call("run", folder=folder, restarts=20)
    driver.call("check", folder=folder)


@thorough
def test_in_many_batches_no_task_leaves_its_home(driver: DriverProcess, storage: Path) -> None:
    folder = opened(driver, storage, "many", parts=12)
    driver.call("write", folder=folder, batches=100, size=20)
    assert driver.call("run", folder=folder)["restarted"] == 0
    epochs = list((storage / "many" / "store" / "epochs").iterdir())  # Spark keeps no more than 100 reports
    assert len(epochs) == 1
    driver.call("check", folder=folder)


@thorough
def test_a_second_start_finds_all_state_at_its_home(driver: DriverProcess, storage: Path) -> None:
    folder = opened(driver, storage, "again", parts=4)
    for seed, refreshes in ((1, 1), (2, 0), (3, 0)):
        driver.call("write", folder=folder, batches=2, seed=seed)
        assert driver.call("run", folder=folder)["refreshes"] == refreshes
    driver.call("check", folder=folder)


@thorough
def test_windows_are_drained_at_the_end(driver: DriverProcess, storage: Path) -> None:
    folder = opened(driver, storage, "windows", parts=4, window=3600.0)
    driver.call("write", folder=folder, batches=5)
    found = driver.call("run", folder=folder)
    assert found["refreshes"] == 1
    assert found["batches"] > 5, "what was pending is sent in a batch of its own"
    driver.call("check", folder=folder, drained=True)


@thorough
def test_old_arrays_of_a_host_never_pass_for_current_ones(
    driver: DriverProcess, cluster: SparkCluster, storage: Path
) -> None:
    """A part moves away, the graph is rebuilt elsewhere, and its old host comes back with its old arrays."""
    folder, host = opened(driver, storage, "old", parts=4), cluster.workers[-1]
    driver.call("write", folder=folder, batches=3, seed=1)
    assert driver.call("run", folder=folder)["refreshes"] == 1
    cluster.stop_worker(host)  # its memory stays
    driver.call("write", folder=folder, batches=2, seed=2)
    driver.call("run", folder=folder, restarts=20)
    cluster.start_worker(host)
    cluster.wait_for_executors()
    driver.call("write", folder=folder, batches=2, seed=3)
    assert driver.call("run", folder=folder)["refreshes"] == 1, "old arrays have passed for current ones"
    driver.call("check", folder=folder)


@thorough
@pytest.mark.parametrize("parts", [4, 12])
def test_fixed_streams(driver: DriverProcess, storage: Path, parts: int) -> None:
    driver.begin("fixed_streams", folder=str(storage / f"fixed-{parts}"), parts=parts)
    refreshes = driver.answer(900)
    assert all(found == wanted for found, wanted in refreshes.values()), refreshes


@thorough
@pytest.mark.parametrize("kind", ["classes", "alerts", "pairs"])
def test_heads_emit_what_one_machine_emits(driver: DriverProcess, storage: Path, kind: str) -> None:
    driver.call("same_rows", folder=str(storage / kind), kind=kind)


@thorough
def test_a_script_of_spark_submit(cluster: SparkCluster, storage: Path) -> None:
    (storage / "edges").mkdir()
    (storage / "edges" / "1.csv").write_text("ann,bob,2026-01-01 10:00:00\nbob,cho,2026-01-01 10:00:01\n")
    script = storage / "script.py"
    script.write_text(f"""
import d3gnn
from d3gnn.nn import GraphSAGE

spark = d3gnn.session()
assert spark.sparkContext.master.startswith("spark://")
edges = spark.readStream.schema("src string, dst string, ts timestamp").csv("{storage}/edges")
gnn = d3gnn.StreamingGNN(GraphSAGE(16, 8, num_layers=2, out_channels=2))
query = gnn.start(
    d3gnn.from_edges(edges, ts="ts"), "{storage}/embeddings", checkpoint="{storage}/checkpoint",
    availableNow=True,
)
query.awaitTermination()
print("rows:", d3gnn.latest(spark, "{storage}/embeddings").count())
""")
    log = storage / "script.log"
    with SparkCluster(cluster.machines, port=7079) as another:  # whose slots are free
        assert another.submit(script, log).wait(300) == 0, log.read_text()[-3000:]
    assert "rows: 3" in log.read_text()


@thorough
def test_the_command_line(cluster: SparkCluster, storage: Path) -> None:
    (storage / "lines.csv").write_text("src,dst,time\n" + "".join(f"{i},{i % 7},{i}\n" for i in range(200)))
    with SparkCluster(cluster.machines, port=7080) as another:
        options = [f"--conf={name}={value}" for name, value in another.settings().items()]
        options += ["--master", another.master, "--checkpoint", str(storage / "command")]
        run = ["run", str(storage / "lines.csv"), "--output", str(storage / "table"), "--parts", "4"]
        for arguments in (run, ["verify"]):
            log = storage / f"{arguments[0]}.log"
            command = ["-m", "d3gnn", *arguments, *options]
            assert another.start_driver(command, log).wait(300) == 0, log.read_text()[-3000:]
        assert "exact" in log.read_text()
