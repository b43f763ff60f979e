"""Compiled functions that are kept on disk are those of the source as it is now."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from d3gnn.kernel.code_digest import code_digest
from d3gnn.kernel.compiled import inlined, lean, specialised

LOOP = """
from d3gnn.plugins import inlined, lean

@inlined
def step(x):
    return x

@lean
def loop(x):
    return step(x)
"""
STEP = """
import numpy as np
import helper
from d3gnn.kernel.compiled import specialised
from d3gnn.plugins import inlined
from helper import scaled
from loop import loop

@inlined
def step(x):
    return scaled(np.{function}(x)) + helper.OFFSET

print(round(specialised(loop, "user", step=step)(0.5), 6))
"""
HELPER = """
from d3gnn.plugins import inlined

SCALE, OFFSET = {scale}, {offset}

@inlined
def scaled(x):
    return SCALE * x
"""


def test_a_changed_step_is_compiled_again(tmp_path: Path) -> None:
    """numba looks at the file of the loop only: neither at the step, nor at what the step calls."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    (tmp_path / "loop.py").write_text(LOOP)
    for function, scale, offset in [
        ("sin", 1.0, 0.0),
        ("cos", 1.0, 0.0),
        ("cos", 3.0, 0.0),
        ("cos", 3.0, 2.0),
    ]:
        step, helper = tmp_path / "step.py", tmp_path / "helper.py"
        text = STEP.format(function=function)
        if not step.exists() or step.read_text() != text:  # a new time of the file alone hides the problem
            step.write_text(text)
        helper.write_text(HELPER.format(scale=scale, offset=offset))
        run = subprocess.run(
            [sys.executable, str(step)], env=environment, capture_output=True, text=True, check=True
        )
        assert float(run.stdout) == pytest.approx(scale * getattr(np, function)(0.5) + offset, abs=1e-5)


@inlined
def same(x: float) -> float:
    return x


@lean
def twice(x: float) -> float:
    return same(same(x))


def test_steps_of_one_code_with_other_values_differ() -> None:
    def step_of(factor: float):  # type: ignore[no-untyped-def]
        @inlined
        def scaled(x: float) -> float:
            return factor * x

        return scaled

    double, triple = step_of(2.0), step_of(3.0)
    assert code_digest(double) == code_digest(step_of(2.0)) != code_digest(triple)
    found = [specialised(twice, "scaled", same=step)(1.0) for step in (double, triple, double)]
    assert found == [4.0, 9.0, 4.0]


def test_functions_that_call_each_other_have_a_digest() -> None:
    def even(n: int) -> bool:
        return n == 0 or odd(n - 1)

    def odd(n: int) -> bool:
        return n != 0 and even(n - 1)

    assert code_digest(even) == code_digest(even) != code_digest(odd)
