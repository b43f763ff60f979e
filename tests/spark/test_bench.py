"""The benchmark on Spark measures an exact pipeline, and deletes its files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from d3gnn.bench import (
    RecoverySettings,
    ThroughputSettings,
    measure_recovery,
    measure_throughput,
    synthetic_workload,
)
from d3gnn.sources import SyntheticStream


def test_throughput(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    workload = synthetic_workload(SyntheticStream(300, vertices=40, seed=1, deletes=0.2))
    settings = ThroughputSettings(batch=150, parts=2, engine="spark", width=4)
    seen: list[int] = []
    result = measure_throughput(workload, settings, on_events=seen.append)
    assert result.max_relative_error is not None
    assert result.max_relative_error < 1e-5
    assert (result.events, result.batches) == (workload.events, -(-workload.events // 150))
    assert len(result.batch_ms_by_tenth) == result.batches
    assert result.messages_per_edge > 1 <= result.replication_factor
    assert 0 < result.kernel_share < 1
    assert result.bytes_moved > 0
    assert set(result.bytes_per_edge) == {
        "partition", "adjacency", "vertex-0", "edge-1", "vertex-1", "edge-2", "vertex-2",
    }  # fmt: skip
    assert not list(tmp_path.iterdir())
    assert spark.range(3).count() == 3, "an existing session is not stopped"


# One run in four ends with "the query has ended" behind the restart; the reason is not known yet.
@pytest.mark.skipif("D3GNN_THOROUGH" not in os.environ, reason="needs D3GNN_THOROUGH=1")
def test_recovery(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # The last batch takes long enough to kill its worker.
    workload = synthetic_workload(SyntheticStream(60_000, vertices=4_000, seed=1, deletes=0.2))
    settings = RecoverySettings(load=20_000, batch=30_000, width=32)
    result = measure_recovery(workload, settings)
    assert result.max_relative_error is not None
    assert result.max_relative_error < 1e-5
    assert result.refreshed == 1
    assert result.rows >= result.vertices > 3_900
    assert result.log_entries == -(-(workload.events - 30_000) // 20_000) + 1
    assert result.seconds > result.restart_seconds > 0
    assert not list(tmp_path.iterdir())
