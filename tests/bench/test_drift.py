"""`d3gnn bench drift`: models that are trained again follow a concept that changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from d3gnn.bench.drift import DriftSettings, measure_drift
from d3gnn.cli import app


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    settings = DriftSettings(
        vertices=900, steps=30, first=100, every=150, newest=150, window=100, epochs=25, detector="ddm"
    )
    return measure_drift(settings).to_dict()


def test_training_again_beats_a_frozen_model(result: dict[str, Any]) -> None:
    accuracy, trainings = result["accuracy"], result["trainings"]
    assert accuracy["periodic"] > accuracy["frozen"] + 0.1
    assert accuracy["on drift"] > accuracy["frozen"] + 0.1
    assert trainings["frozen"] == 1
    assert 1 < trainings["on drift"] <= trainings["periodic"]
    assert result["labels"] == 900


def test_the_command_streams_a_folder_and_writes_a_plot(tmp_path: Path) -> None:
    n = 30
    pd.DataFrame(
        {"u": range(n), "v": [(i + 2) % n for i in range(n)], "t": [i // 6 for i in range(n)]}
    ).to_csv(tmp_path / "edges.csv.gz", index=False)
    pd.DataFrame({"node": range(n), "label": [1 + i % 2 for i in range(n)], "split": "train"}).to_csv(
        tmp_path / "labels.csv.gz", index=False
    )
    features = pd.Series([f"1 {1 + i % 2}:0.5 7:0.1" for i in range(n)])
    features.to_csv(tmp_path / "features.svm.gz", index=False, header=False)
    plot = tmp_path / "drift.svg"
    arguments = [
        "--data",
        str(tmp_path),
        "--first",
        "10",
        "--every",
        "8",
        "--epochs",
        "5",
        "--plot",
        str(plot),
    ]
    ran = CliRunner().invoke(app, ["bench", "drift", *arguments, "--json"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert found["labels"] == n
    assert found["trainings"]["periodic"] > found["trainings"]["frozen"] == 1
    assert "<svg" in plot.read_text()
