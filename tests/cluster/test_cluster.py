"""The pipeline on machines that share nothing but storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from d3gnn.testing.driver_process import DriverProcess


@pytest.mark.parametrize("parts", [4])
def test_output_and_state_are_exact(driver: DriverProcess, storage: Path, parts: int) -> None:
    folder = str(storage / f"exact-{parts}")
    driver.call("open", folder=folder, parts=parts)
    driver.call("write", folder=folder, batches=6)
    found = driver.call("run", folder=folder)
    assert found["refreshes"] == 1, "only the first batch starts an epoch"
    driver.call("check", folder=folder)
