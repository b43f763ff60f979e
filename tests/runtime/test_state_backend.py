"""State backends open every operator part once, and commit all of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3gnn.kernel.operators import OperatorId
from d3gnn.runtime.state_backend import MappedBackend, MemoryBackend, StateBackend

EDGE = OperatorId("edge", 1)


def write(backend: StateBackend[Any], part: int, value: int) -> None:
    array = backend.open(EDGE, part).array("x", np.int64)
    array.reserve(3)
    array.data[:3] = value


def read(backend: StateBackend[Any], part: int) -> int:
    array = backend.open(EDGE, part).array("x", np.int64)
    return int(array.data[0]) if len(array.data) else 0


@pytest.mark.parametrize("kind", ["memory", "mapped"])
def test_parts_are_opened_once_and_reset_together(kind: str, tmp_path: Path) -> None:
    backend: StateBackend[Any] = MemoryBackend() if kind == "memory" else MappedBackend(tmp_path)
    for part in range(2):
        write(backend, part, 5 + part)
        assert backend.open(EDGE, part) is backend.open(EDGE, part)
    assert [read(backend, part) for part in range(2)] == [5, 6]
    assert backend.sizes() == {"edge-1": 2 * 3 * 8}
    backend.reset()
    assert [read(backend, part) for part in range(2)] == [0, 0]


def test_mapped_state_is_found_by_another_process_with_its_version(tmp_path: Path) -> None:
    backend = MappedBackend(tmp_path)
    write(backend, 0, 7)
    backend.begin()
    assert MappedBackend(tmp_path).open(EDGE, 0).dirty
    backend.commit(2, 9)
    backend.close()
    other = MappedBackend(tmp_path)
    assert (other.open(EDGE, 0).version, other.open(EDGE, 0).dirty) == ((2, 9), False)
    assert read(other, 0) == 7


def test_fresh_state_forgets_that_of_an_earlier_run(tmp_path: Path) -> None:
    earlier = MappedBackend(tmp_path)
    write(earlier, 0, 7)
    earlier.commit(2, 9)
    fresh = MappedBackend(tmp_path, fresh=True)
    assert fresh.open(EDGE, 0).version == (0, 0)
    assert read(fresh, 0) == 0


def test_deleted_files_are_opened_again_and_operators_over_them_dropped(tmp_path: Path) -> None:
    opened: list[OperatorId] = []
    backend = MappedBackend(tmp_path, on_open=opened.append)
    write(backend, 0, 7)
    assert opened == [EDGE]
    shutil.rmtree(tmp_path / "edge-1")
    assert read(backend, 0) == 0
    assert opened == [EDGE, EDGE]
