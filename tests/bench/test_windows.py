"""The windows benchmark measures traffic and latency on the same stream, and no change is lost."""

from __future__ import annotations

import pytest

from d3gnn.bench import WindowsResult, WindowsSettings, measure_windows, synthetic_workload
from d3gnn.kernel.windows import windows
from d3gnn.sources import SyntheticStream


@pytest.fixture(scope="module")
def result() -> WindowsResult:
    stream = SyntheticStream(3000, shape="hubs", deletes=0.1, feature_updates=0.1, feature_width=8)
    settings = WindowsSettings(batch=50, parts=2, window=8, width=8, rounds=2)
    return measure_windows(synthetic_workload(stream), settings)


def test_there_is_a_policy_of_each_kind(result: WindowsResult) -> None:
    shown = " ".join(policy["window"] for policy in result.policies.values())
    assert all(kind.__name__ in shown for kind in windows())
    assert result.to_dict()["bench"] == "windows"
    assert all(len(policy["rounds_s"]) == 2 for policy in result.policies.values())


def test_all_policies_match_recomputation(result: WindowsResult) -> None:
    assert all(policy["max_relative_error"] <= 1e-5 for policy in result.policies.values())


def test_windows_trade_latency_for_traffic(result: WindowsResult) -> None:
    unwindowed = result.policies["none"]
    assert result.traffic_reduction["none"] == 1.0
    assert unwindowed["max_delay_s"] == unwindowed["merged"] == unwindowed["bookkeeping_share"] == 0
    for name, policy in result.policies.items():
        if name == "none":
            continue
        assert result.traffic_reduction[name] > 1.5
        assert policy["merged"] > 0
        assert policy["forwards"] < unwindowed["forwards"]
        assert all(layer["merged_per_reduce"] > 0 for layer in policy["layers"])
        saved = [layer["forwards_saved"] > 0 for layer in policy["layers"]]
        assert saved == [name != "tumbling, edges only"] * 2
        assert 0 < policy["bookkeeping_share"] < 1
        # Five windows on the path: two per layer and that of the inputs. The clock advances in steps.
        assert unwindowed["max_ms"] < policy["max_ms"]
        assert policy["p50_ms"] <= policy["p99_ms"] <= policy["max_ms"]
        assert policy["max_ms"] - policy["seconds"] * 1000 <= 5 * 1000 * (policy["max_delay_s"] + 0.1)
        assert (policy["sketch_bytes"] > 0) == (name == "adaptive")


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        WindowsSettings(window=0)
    with pytest.raises(ValueError, match="above 0 seconds"):
        WindowsSettings(every=0)
    with pytest.raises(ValueError, match="choose one of clda, fennel, hdrf, metis, random"):
        WindowsSettings(partitioner="dice")
