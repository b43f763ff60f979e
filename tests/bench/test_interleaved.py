"""The models benchmark runs all models on the same stream, and each matches recomputation."""

from __future__ import annotations

from pathlib import Path

import pytest

from d3gnn.bench import ModelsSettings, measure_models, synthetic_workload
from d3gnn.bench.models import MODELS
from d3gnn.bench.report.write import write_report
from d3gnn.sources import SyntheticStream


def test_every_model_is_measured_relative_to_sage_mean(tmp_path: Path) -> None:
    stream = SyntheticStream(2000, deletes=0.3, feature_updates=0.1, feature_width=8)
    result = measure_models(synthetic_workload(stream), ModelsSettings(batch=100, parts=2, width=8))
    assert set(result.models) == {*MODELS, "sage, max"}
    for found in result.models.values():
        assert found["max_relative_error"] < 1e-5
        assert found["seconds"] > 0 < found["edges_per_second"]
    assert result.models["sage"]["relative_time"] == 1.0
    assert "max" in result.models["sage, max"]["model"]
    write_report([result.to_dict()], tmp_path)
    page = (tmp_path / "report.md").read_text()
    assert all(f"| {name}" in page for name in ("gat", "gatv2", "gin", "gcn"))


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="batch=0"):
        ModelsSettings(batch=0)
    with pytest.raises(ValueError, match="hdrf"):
        ModelsSettings(partitioner="best")
