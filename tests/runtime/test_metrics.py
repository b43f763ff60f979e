"""Metrics and latency, from what operator parts report in Spark's progress."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from d3gnn import latency, metrics
from d3gnn.runtime.metrics import arrival_quantiles, output_ages, weighted_percentiles

#: The batch begins at 1 s and takes 0.5 s.
_TIME = {"timestamp": "1970-01-01T00:00:01.000Z", "durationMs": {"triggerExecution": 500}}


class _Row(dict[str, Any]):
    def asDict(self) -> dict[str, Any]:  # the name in Spark's rows
        return self


def progress(*parts: dict[str, Any]) -> dict[str, Any]:
    return _TIME | {"observedMetrics": {"d3gnn.vertex-2": _Row(parts=[json.dumps(part) for part in parts])}}


def test_latency_is_from_the_oldest_event_to_the_end_of_the_batch() -> None:
    observed = progress(
        {"part": 0, "rows": 90, "arrivals": [1_000_000]}, {"part": 1, "rows": 10, "arrivals": [100_000]}
    )
    assert latency(observed) == {"p50": 500.0, "p95": 1400.0, "p99": 1400.0, "max": 1400.0}


def test_a_batch_without_output_has_no_latency() -> None:
    assert latency(progress({"part": 0, "rows": 0, "arrivals": []})) == {}
    assert latency(_TIME | {"observedMetrics": {}}) == {}


def test_quantiles_keep_the_oldest() -> None:
    rng = np.random.default_rng(0)
    arrivals = rng.integers(0, 10**6, 50_000)
    arrivals[12_345] = -5
    found = arrival_quantiles([arrivals[:20_000], arrivals[20_000:]])
    assert found[0] == -5
    assert len(found) == 21
    assert np.abs(np.array(found[1:]) - np.quantile(arrivals, np.linspace(0.05, 1, 20))).max() < 20_000
    assert arrival_quantiles([]) == arrival_quantiles([np.zeros(0, np.int64)]) == []
    assert arrival_quantiles([np.array([3])]) == [3]


def test_percentiles_are_weighted() -> None:
    values, weights = np.array([1.0, 2.0, 3.0]), np.array([0.98, 0.01, 0.01])
    assert weighted_percentiles(values, weights, (50, 98.5, 100)) == [1.0, 2.0, 3.0]


def test_ages_of_all_parts() -> None:
    ages, weights = output_ages(progress({"part": 0, "rows": 4, "arrivals": [500_000, 1_500_000]}))
    assert ages.tolist() == [1000.0, 0.0]
    assert weights.tolist() == pytest.approx([2.0, 2.0])


def test_metrics_of_parts_are_added_up_but_for_the_oldest() -> None:
    observed = progress(
        {"part": 0, "pending": 3, "oldest_ms": 40}, {"part": 1, "pending": 4, "oldest_ms": 70}
    )
    assert metrics(observed) == {"vertex-2": {"pending": 7, "oldest_ms": 70}}
