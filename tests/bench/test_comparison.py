"""Peers and d3gnn process the same batches, and all are compared with recomputation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from pyspark.sql import SparkSession

from d3gnn.bench import PeersSettings, Workload, measure_peers, synthetic_workload, timed_blocks
from d3gnn.bench.check import TOLERANCE
from d3gnn.bench.peers import PEERS, Peer
from d3gnn.bench.peers.ripple import Ripple
from d3gnn.events import EventBatch
from d3gnn.sources import SyntheticStream

MIXED = SyntheticStream(2000, 300, deletes=0.1, feature_updates=0.1, feature_width=8)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def settings(*systems: str, **others: Any) -> PeersSettings:
    return PeersSettings(systems=systems, threads=1, width=8, **others)


def test_all_systems_without_spark() -> None:
    pytest.importorskip("torch_geometric")
    systems = ["pyg_full", "pyg_influenced", "ripple", "local"]
    try:
        import dgl  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
    except ImportError:
        pass
    else:
        systems += ["dgl_full", "dgl_influenced", "tuned_full", "tuned_influenced"]
    found = measure_peers(synthetic_workload(MIXED), settings(*systems, timed=3), batches=[1, 100])
    assert [result.batch for result in found] == [1, 100]
    for result in found:
        plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
        assert set(plain["systems"]) == set(systems)
        for system in plain["systems"].values():
            assert system["batches"] == 3
            assert system["seconds_per_batch"] > 0
            assert system["edges_per_second"] > 0
            assert system["max_relative_error"] < TOLERANCE
        peers = [name for name in systems if name != "local"]
        assert set(plain["speedup"]) == {"local_over"}
        assert set(plain["speedup"]["local_over"]) == set(peers)
        assert plain["messages_per_edge"] > 0
        one, local = plain["systems"]["ripple"], plain["systems"]["local"]
        ratio = one["seconds_per_batch"] / local["seconds_per_batch"]
        assert plain["speedup"]["local_over"]["ripple"] == pytest.approx(ratio, rel=1e-3)
        assert plain["stored_edges"] + 2000 * 0.2 < MIXED.edges
        assert "machine" in plain


def test_spark_and_a_peer(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("d3gnn.bench.spark.WARM_UP_BATCHES", 1)
    monkeypatch.setattr(timed_blocks, "SETTLE", 1)
    (result,) = measure_peers(synthetic_workload(MIXED), settings("spark", "ripple", batch=200, timed=2))
    assert set(result.systems) == {"spark", "ripple"}
    assert result.systems["spark"]["batches"] == 2
    assert result.systems["spark"]["max_relative_error"] < TOLERANCE
    assert set(result.speedup["spark_over"]) == {"ripple"}
    assert result.messages_per_edge is not None
    assert result.messages_per_edge > 0


def test_a_wrong_system_has_a_large_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle(Ripple):
        def apply(self, change: Any) -> None:
            self._reserve(len(self.graph))

    monkeypatch.setitem(PEERS, "ripple", Idle)
    (result,) = measure_peers(synthetic_workload(MIXED), settings("ripple", batch=100))
    assert result.systems["ripple"]["max_relative_error"] > 0.01


def test_every_system_sees_every_event_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    apply = Ripple.apply

    def counting(self: Peer, change: Any) -> None:
        sizes.append(len(self.graph))
        apply(self, change)  # type: ignore[arg-type]

    monkeypatch.setattr(Ripple, "apply", counting)
    monkeypatch.setattr(timed_blocks, "LOAD", 130)
    blocks = timed_blocks.plan_blocks(synthetic_workload(MIXED), [7, 50], 4)
    stream = timed_blocks.BlockStream(synthetic_workload(MIXED).cached(), 900, blocks)
    parts = [*stream.load(), *(batch for block in stream.timed() for batch in block)]
    whole = EventBatch.concat(parts)
    assert [len(batch) for batch in parts[:7]] == [130] * 6 + [120]
    expected = next(synthetic_workload(MIXED).batches(len(whole)))
    assert whole.src.to_list() == expected.src.to_list()
    assert whole.time.tolist() == expected.time.tolist()
    measure_peers(synthetic_workload(MIXED), settings("ripple", batch=50, timed=4))
    assert len(sizes) == 1 + 20 + 4  # the empty change of load(), untimed batches, timed batches


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0}, "batch=0: must be at least 1"),
        ({"timed": -1}, "timed=-1"),
        ({"systems": ("abacus",)}, "systems='abacus': choose some of dgl_full"),
    ],
)
def test_wrong_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PeersSettings(**arguments)


def test_a_stream_that_is_too_short_is_refused() -> None:
    workload: Workload = synthetic_workload(SyntheticStream(100))
    with pytest.raises(ValueError, match="take a longer stream or a smaller batch"):
        measure_peers(workload, settings("local", batch=80))
