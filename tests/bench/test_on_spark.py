"""The results of benchmarks on Spark are complete and consistent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from d3gnn.bench import ThroughputSettings, measure_growth, measure_throughput, synthetic_workload
from d3gnn.bench.check import TOLERANCE
from d3gnn.bench.latency import LatencySettings, measure_latency
from d3gnn.bench.stages import measure_stages, stage_milliseconds
from d3gnn.sources import SyntheticStream

SMALL = ThroughputSettings(batch=100, parts=2, engine="spark", width=4)


@pytest.fixture(autouse=True)
def _short_warm_up(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    monkeypatch.setattr("d3gnn.bench.spark.WARM_UP_BATCHES", 1)
    monkeypatch.setattr("d3gnn.bench.latency.EMPTY_BATCHES", 2)
    monkeypatch.setattr("d3gnn.bench.latency._HEAD_START", 1.0)
    monkeypatch.setattr("d3gnn.bench.growth._OnSpark.settle", 1)


def plain(result: Any) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    return read


def test_latency() -> None:
    stream = SyntheticStream(3000, 300, deletes=0.1)
    settings = LatencySettings(rate=500, seconds=4, width=4, warm_up=0)
    seen: list[int] = []
    result = plain(measure_latency(synthetic_workload(stream), settings, on_events=seen.append))
    assert result["max_relative_error"] < TOLERANCE
    assert result["events"] == 2000
    assert seen[-1] >= 2000
    assert 0 < result["p50_ms"] <= result["p95_ms"] <= result["p99_ms"] <= result["max_ms"]
    # An output is as old as its batch at least, and no older than the run.
    assert result["p50_ms"] >= 0.5 * result["batch_ms_p50"]
    assert result["max_ms"] < 60_000
    assert result["empty_batch_ms"] > 0
    assert result["outputs"] > 0
    assert result["timeline"][0]["second"] <= result["timeline"][-1]["second"]
    assert all(row["backlog"] >= 0 for row in result["timeline"])


@pytest.mark.parametrize(
    "arguments", [{"rate": 0.0}, {"seconds": -1.0}, {"parts": 0}, {"rate": 0.1, "seconds": 1.0}]
)
def test_wrong_latency_settings_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|above 0|not a single event"):
        LatencySettings(**arguments)


def test_growth() -> None:
    result = plain(measure_growth([300, 900], SMALL, shape="rmat", timed=1))
    assert [row["stored_edges"] for row in result["sizes"]] == [300, 900]
    assert result["settings"]["shape"] == "rmat"
    for row in result["sizes"]:
        assert row["us_per_message"] > 0
        assert row["us_per_row"] > 0
        assert "edge-2" in row["operator_ms"]
    assert len(result["ratio_by_round"]) == 1


def test_throughput_reports_the_imbalance_of_parts() -> None:
    result = plain(measure_throughput(synthetic_workload(SyntheticStream(600, 100)), SMALL))
    assert 1 <= result["imbalance"] <= 2
    assert result["max_relative_error"] < TOLERANCE


def test_stages() -> None:
    result = plain(measure_stages(synthetic_workload(SyntheticStream(600, 100)), SMALL, timed=3, warm_up=2))
    spent = result["milliseconds"]
    assert set(spent) == {"source", "planning", "kernels", "tasks and rows", "commits", "other"}
    assert all(value >= 0 for value in spent.values())
    assert result["recovered_edges"] == 400  # three batches, and the one that rebuilt the arrays
    assert result["recovery_s"] > 0
    assert result["cold_start_s"] is None  # the test has a Spark session already


def test_stages_add_up_to_the_batch() -> None:
    progress: dict[str, Any] = {
        "durationMs": {
            "triggerExecution": 100, "latestOffset": 3, "getBatch": 2, "queryPlanning": 10, "addBatch": 70,
            "walCommit": 4, "commitOffsets": 5,
        },
        "observedMetrics": {},
    }  # fmt: skip
    spent = stage_milliseconds([progress])
    assert spent == {
        "source": 5.0, "planning": 10.0, "kernels": 0.0, "tasks and rows": 70.0, "commits": 9.0, "other": 6.0,
    }  # fmt: skip


def test_a_stream_with_too_few_events_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too few"):
        measure_stages(synthetic_workload(SyntheticStream(150)), SMALL)
