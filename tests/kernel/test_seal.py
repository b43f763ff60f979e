"""Sealed arrays that were damaged are empty when they are opened again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from d3gnn.kernel import mapped_state
from d3gnn.kernel.mapped_state import MappedPartState, seal
from d3gnn.kernel.operators import PARTITION, OperatorId
from d3gnn.runtime.state_backend import MappedBackend


def make(folder: Path) -> None:
    state = MappedPartState(folder)
    for name in ("first", "second"):
        array = state.array(name, np.int64)
        array.reserve(10)
        array.data[:10] = np.arange(10)
    state.counter("count")[0] = 7
    state.commit(3, 5)
    state.close()


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)


def swap(folder: Path) -> None:
    first, second = folder / "first.array", folder / "second.array"
    data = first.read_bytes()
    first.write_bytes(second.read_bytes()[::-1])
    second.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a bit of an array": lambda folder: flip(folder / "second.array", 13),
    "a bit of a counter": lambda folder: flip(folder / "header", 80 * 8),
    "a bit of the version": lambda folder: flip(folder / "header", 4 * 8),
    "a bit of the seal": lambda folder: flip(folder / "header", 15 * 8),
    "other content": swap,
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_to_sealed_arrays_is_noticed(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path)
    assert seal(tmp_path)
    assert seal(tmp_path), "again"
    state = MappedPartState(tmp_path)
    assert (state.version, state.counter("count")[0]) == ((3, 5), 7)
    state.close()
    DAMAGES[what](tmp_path)
    state = MappedPartState(tmp_path)
    assert state.version == (0, 0)
    assert not state.array("second", np.int64).data.any()
    assert f"the arrays in {tmp_path} were damaged after the last run" in caplog.text


def test_a_process_that_has_the_arrays_open_notices_it_too(tmp_path: Path) -> None:
    opened: list[OperatorId] = []
    backend = MappedBackend(tmp_path, on_open=opened.append)
    state = backend.open(PARTITION, 0)
    array = state.array("first", np.int64)
    array.reserve(10)
    state.commit(3, 5)
    for damaged in (False, True):
        assert seal(backend.folder(PARTITION, 0))
        if damaged:
            flip(backend.folder(PARTITION, 0) / "first.array", 13)
        state = backend.open(PARTITION, 0)
        assert (state.version, len(opened)) == (((0, 0), 2) if damaged else ((3, 5), 1))
        state.begin()
        state.commit(3, 6)
        state.commit(3, 5)
    backend.close()


@pytest.mark.parametrize("change", ["begin", "grow"])
def test_a_change_ends_the_seal(change: str, tmp_path: Path) -> None:
    make(tmp_path)
    assert seal(tmp_path)
    state = MappedPartState(tmp_path)
    if change == "begin":
        state.begin()
        assert not seal(tmp_path), "in the middle of a batch"
        state.commit(3, 6)
    else:
        state.array("first", np.int64).reserve(1000)
    state.close()
    state = MappedPartState(tmp_path)
    assert state.version[0] == 3
    state.close()


def test_arrays_that_are_in_use_or_missing_are_not_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_state, "_PATIENCE", 0.0)
    assert not seal(tmp_path / "none")
    make(tmp_path)
    state = MappedPartState(tmp_path)
    with state.locked():
        assert not seal(tmp_path)
    assert seal(tmp_path)
    state.close()
