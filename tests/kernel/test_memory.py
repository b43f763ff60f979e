"""Zeroed arrays from a pool of reused memory."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3gnn.kernel import memory
from d3gnn.kernel.memory import zeros

BYTE = np.dtype(np.uint8)


@given(st.lists(st.tuples(st.integers(0, 300_000), st.booleans()), max_size=30))
def test_arrays_are_zero_and_do_not_overlap(steps: list[tuple[int, bool]]) -> None:
    held: list[np.ndarray] = []
    for number, (size, drops) in enumerate(steps, start=1):
        array = zeros((size,), BYTE)
        assert array.shape == (size,)
        assert not array.any()
        array[:] = number
        held.append(array)
        if drops:
            del held[len(held) // 2]
    for array in held:
        assert len(set(array.tolist()[:: max(1, len(array) // 100)])) <= 1, (
            "no other array shares this memory"
        )


@pytest.mark.parametrize("size", [10, 40_000, 2**20, 2**26, 2**26 + 1])
def test_released_memory_is_reused_and_cleared(size: int) -> None:
    array = zeros((size,), BYTE)
    array[:] = 7
    view = array[3:5]
    del array
    assert not zeros((size,), BYTE).any(), "not while a view exists"
    assert view.tolist() == [7, 7]
    del view
    assert not zeros((size,), BYTE).any()


def test_memory_beyond_the_bound_is_returned_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    size, most = 2**22, 2**23
    monkeypatch.setattr(memory, "_KEPT", most)
    monkeypatch.setattr(memory, "_pool", memory._Pool())
    held = [zeros((size,), BYTE) for _ in range(16)]
    for array in held:
        array[:] = 1
    full = _resident()
    del held, array
    assert _resident() < full - 16 * size + most + 2**21
    assert not any(zeros((size,), BYTE).any() for _ in range(16))


def _resident() -> int:
    """The resident memory of this process, in bytes."""
    with open("/proc/self/statm") as file:  # noqa: PTH123  # Path.read_text would allocate
        return int(file.read().split()[1]) * 4096


def test_threads_get_memory_of_their_own() -> None:
    def use(number: int) -> bool:
        for round_ in range(50):
            array = zeros((40_000 + round_,), BYTE)
            if array.any():
                return False
            array[:] = number
            if not (array == number).all():
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(1, 33)))


def test_arrays_that_outlive_the_interpreter_cause_no_error() -> None:
    code = (
        "import numpy as np, d3gnn.kernel.memory as m; m._KEPT = 0\n"
        "held = [m.zeros((100_000,), np.dtype(np.uint8)) for _ in range(10)]; held.append(held)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
