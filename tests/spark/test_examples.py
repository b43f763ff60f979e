"""The scripts in examples/, run unchanged."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The output of a script."""
    runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](folder)
    return capsys.readouterr().out


def test_node_classification(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run("node_classification", tmp_path, capsys)
    found = re.search(r"(\d+) accounts raised an alert; (\d+) of them are in a ring, of 120", out)
    assert found, out
    flagged, right = map(int, found.groups())
    assert flagged < 250
    assert right > 80
    assert "batch 7" in out


def test_link_prediction(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run("link_prediction", tmp_path, capsys)
    areas = [float(area) for area in re.findall(r"200 answers, area under the curve ([0-9.]+)", out)]
    assert len(areas) == 6, out
    assert areas[-1] > 0.85 > areas[0]


def test_drift(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run("drift", tmp_path, capsys)
    once, again = map(float, re.findall(r"accuracy ([0-9.]+)", out))
    assert once < 0.5 < 0.9 < again
    assert "drift after" in out


def test_every_example_is_run() -> None:
    here = Path(__file__).read_text()
    for script in EXAMPLES.glob("*.py"):
        assert f'"{script.stem}"' in here
