"""The results of benchmarks on LocalEngine are complete and consistent; speed itself is not tested."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from d3gnn.bench import (
    BenchResult,
    ThroughputSettings,
    file_workload,
    measure_growth,
    measure_partitioner,
    measure_throughput,
    synthetic_workload,
)
from d3gnn.bench.check import TOLERANCE, compare
from d3gnn.events import EdgeMode, EventBatch
from d3gnn.nn import GraphSAGE
from d3gnn.runtime.local import LocalEngine
from d3gnn.sources import SyntheticStream

SMALL = ThroughputSettings(batch=100, layers=2, width=4)


def plain(result: BenchResult) -> dict[str, Any]:
    """The result after a round trip through JSON."""
    read: dict[str, Any] = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    return read


@pytest.mark.parametrize("parts", [1, 3])
def test_throughput_of_a_stream_with_every_kind_of_event(parts: int) -> None:
    stream = SyntheticStream(
        1000, deletes=0.2, vertex_deletes=0.02, feature_updates=0.1, bad=0.05, feature_width=3
    )
    seen: list[int] = []
    settings = ThroughputSettings(batch=100, parts=parts, width=4)
    result = plain(measure_throughput(synthetic_workload(stream), settings, on_events=seen.append))
    assert result["bench"] == "throughput"
    assert result["settings"]["model"] == "GNN(3 -> SAGEConv(mean) 4 -> SAGEConv(mean) 4)"
    assert (result["events"], result["parts"], result["batches"]) == (len(stream), parts, 14)
    assert seen[-1] == len(stream)
    assert result["max_relative_error"] <= TOLERANCE
    assert 0 < result["kernel_share"] <= 1
    assert result["edges_per_second"] > 0
    assert result["batch_ms_p50"] <= result["batch_ms_p99"]
    assert result["messages_per_edge"] > 0
    assert result["bytes_moved"] > 0
    assert 1 <= result["replication_factor"] <= parts
    operators = {
        "partition", "adjacency", "vertex-0", "edge-1", "vertex-1", "edge-2", "vertex-2",
    }  # fmt: skip
    assert set(result["bytes_per_edge"]) == set(result["bytes_per_vertex"]) == operators


@pytest.mark.parametrize("mode", ["simple", "multi", "append"])
def test_throughput_of_an_edge_list_with_string_ids(tmp_path: Path, mode: EdgeMode) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("".join(f"v{i % 7} v{i % 5} {i}\n" for i in range(50)))
    result = plain(measure_throughput(file_workload(path, mode, undirected=True), SMALL))
    assert (result["events"], result["vertices"]) == (50, 7)
    assert result["max_relative_error"] <= TOLERANCE


def test_an_unchecked_error_is_null() -> None:
    result = plain(measure_throughput(synthetic_workload(SyntheticStream(100)), SMALL, check=False))
    assert result["max_relative_error"] is None


def test_growth() -> None:
    result = plain(measure_growth([500, 1501], SMALL, timed=2))
    assert [row["stored_edges"] for row in result["sizes"]] == [500, 1501]
    assert result["sizes"][0]["vertices"] < result["sizes"][1]["vertices"]
    assert "edge-2" in result["sizes"][0]["operator_ms"]
    assert len(result["ratio_by_round"]) == 2
    assert result["ratio"] > 0
    assert result["growth"] == 3.002


@pytest.mark.parametrize("stored", [[], [0], [1000, 1000]])
def test_growth_refuses_sizes_that_do_not_increase(stored: list[int]) -> None:
    with pytest.raises(ValueError, match="stored: "):
        measure_growth(stored, SMALL, timed=2)


@pytest.mark.parametrize("which", ["hdrf", "metis", "random"])
def test_partitioner(which: str) -> None:
    stream = EventBatch.concat(list(SyntheticStream(edges=3000, seed=0).batches(3000)))
    result = plain(measure_partitioner(stream, 4, which, mode="multi", streamed=1000))
    assert (result["edges"], result["vertices"], result["parts"]) == (3000, 300, 4)
    assert 1 <= result["replication_factor"] <= 4
    assert 1 <= result["balance"] <= 4
    assert 1 <= result["vertex_balance"] <= 4
    assert result["bytes_per_edge"] > 0
    assert result["batch_ms"] > 0
    assert result["edges_per_second"] > 0
    assert result["choice_edges_per_second"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0}, "batch=0"),
        ({"engine": "abacus"}, "choose one of local"),
        ({"partitioner": "dice"}, "choose one of clda, fennel, hdrf, metis, random"),
        ({"aggregator": "median"}, "use one of sum, mean"),
    ],
)
def test_wrong_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ThroughputSettings(**arguments)


def test_compare_detects_a_missed_batch() -> None:
    first, second = SyntheticStream(200, vertices=40).batches(100)
    engine = LocalEngine(GraphSAGE(4, 4, 1, seed=0), schema=SyntheticStream(200).schema)
    engine.apply(first)
    with pytest.raises(RuntimeError, match="not the same"):
        compare(engine, [first, second])
    engine.apply(second)
    assert compare(engine, [first, second]).max_relative_error <= TOLERANCE
    assert compare(engine, [first, second, second]).max_relative_error > TOLERANCE
