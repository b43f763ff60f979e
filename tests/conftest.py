"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent

# "ci" gives the same examples every time; "dev" looks for new ones.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("dev", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


#: Tests that start processes come last: code is then compiled already, and they need not all do it at once.
#: The longest come first of these, so that no worker is left alone with them at the end.
_LAST = ("cluster", "faults", "bench", "cli", "spark")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        folder = item.path.parent.name
        return 1 + _LAST.index(folder) if folder in _LAST and TESTS in item.path.parents else 0

    items.sort(key=place)


#: Modules whose tests run in both shapes: the whole chain in one task, and several tasks with exchanges
#: between the operators. The others run in several tasks only with D3GNN_THOROUGH=1.
_BOTH_SHAPES = ("test_pipeline", "test_semantics", "test_rebuild", "test_expiry", "test_rollout")
_IN_ANY_SHAPE = (
    "test_evolution",
    "test_fixed_streams",
    "test_full_streams",
    "test_heads",
    "test_layers",
    "test_pairs",
    "test_windows",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = metafunc.module.__name__.rpartition(".")[2]
    both = _BOTH_SHAPES + (_IN_ANY_SHAPE if "D3GNN_THOROUGH" in os.environ else ())
    if module in both and "spark" in metafunc.fixturenames:
        metafunc.fixturenames.append("tasks")
        metafunc.parametrize("tasks", [1, 2], ids=["one task", "two tasks"], indirect=True)


@pytest.fixture
def tasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of tasks with which pipelines run."""
    from d3gnn.testing.pipelines import PipelineRun

    number: int = request.param
    monkeypatch.setattr(PipelineRun, "tasks", number)
    return number


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real streams beside the project; tests that need it skip where it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the real streams are not here: {folder} does not exist")
    return folder


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session as users get it, on two cores; one for all tests of a process."""
    from d3gnn.spark.session import session

    # It does not live long enough for what the better compiler costs.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    made = session("local[2]", "tests", **{"spark.driver.memory": "2g"})
    yield made
    made.stop()
