"""One Spark session for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import d3gnn.spark.session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session as users get it, on two cores."""
    made = d3gnn.spark.session.session("local[2]", "tests", **{"spark.driver.memory": "2g"})
    yield made
    made.stop()
