"""`d3gnn bench training`: all libraries compute the same losses."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from d3gnn.bench.training import TrainingSettings, measure_training
from d3gnn.cli import app

pytest.importorskip("dgl")


@pytest.mark.parametrize("parts", [1, 3])
def test_losses_equal_those_of_dgl_and_pyg(parts: int) -> None:
    result = measure_training(TrainingSettings(vertices=300, rounds=2, parts=parts, width=8, threads=1))
    assert result.max_relative_difference < 1e-4
    assert set(result.ratio) == {"dgl", "pyg"}
    assert result.edges == 2100


def test_the_command_reads_a_folder(tmp_path: Path) -> None:
    pd.DataFrame({"src": [0, 1, 2], "dst": [1, 2, 0]}).to_csv(tmp_path / "edges_by_year.csv.gz", index=False)
    pd.Series([0, 1, 1]).to_csv(tmp_path / "node-label.csv.gz", index=False, header=False)
    ran = CliRunner().invoke(
        app,
        [
            "bench",
            "training",
            "--data",
            str(tmp_path),
            "--rounds",
            "1",
            "--width",
            "4",
            "--threads",
            "1",
            "--json",
        ],
    )
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["edges"] == 3
