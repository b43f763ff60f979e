"""Spark places tasks where their homes are: what we use of its private classes, and of its planner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from d3gnn.spark import homes as homes_module
from d3gnn.spark import stages
from d3gnn.spark.cluster_settings import CLUSTER_SETTINGS, check_cluster_settings, check_slots
from d3gnn.spark.codec import COMMAND
from d3gnn.spark.homes import Executor, HomesError, ask, at_home, homes_table, hosts_of_tasks

HOSTS = ["h1", "h1", "h2"]


@pytest.fixture(params=["true", "false"], ids=["adaptive", "not adaptive"])
def planned(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    """A session with and without adaptive execution."""
    before = spark.conf.get("spark.sql.adaptive.enabled", "true")
    spark.conf.set("spark.sql.adaptive.enabled", request.param)
    yield spark
    spark.conf.set("spark.sql.adaptive.enabled", str(before))


def places(spark: SparkSession, frame: DataFrame) -> list[str]:
    """The hosts that Spark's scheduler prefers for the partitions of a frame."""
    context: Any = spark.sparkContext._jsc.sc()
    # With adaptive execution, what is behind an exchange is not planned yet.
    before = spark.conf.get("spark.sql.adaptive.enabled", "true")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    rdd = frame.select("*")._jdf.queryExecution().toRdd()
    spark.conf.set("spark.sql.adaptive.enabled", str(before))
    found = []
    for partition in rdd.partitions():
        preferred = context.getPreferredLocs(rdd, partition.index())
        found.append(",".join(preferred.apply(i).host() for i in range(preferred.size())))
    return found


def test_tasks_prefer_their_homes(planned: SparkSession) -> None:
    homes = homes_table(planned, HOSTS)
    packets = planned.range(12).select(F.expr("int(id % 3)").alias("target"), F.lit(b"x").alias("packet"))
    placed = at_home(packets, F.col("target"), homes)
    assert sorted(row.target for row in placed.collect()) == sorted([0, 1, 2] * 4)
    assert places(planned, placed) == HOSTS


def test_partition_prefers_the_first_home(planned: SparkSession) -> None:
    homes = homes_table(planned, HOSTS)
    events = planned.range(12).select(F.lit(None).cast("string").alias(COMMAND), "id")
    placed = at_home(events, stages._first_task(), homes)
    assert {row.place for row in placed.select(F.spark_partition_id().alias("place")).collect()} == {0}
    assert places(planned, placed)[0] == "h1"


def test_one_home_has_two_rows_since_spark_plans_another_exchange_for_one(planned: SparkSession) -> None:
    homes = homes_table(planned, ["h1"])
    assert homes.count() == 2
    assert places(planned, at_home(planned.range(3), F.spark_partition_id() * 0, homes))[0] == "h1"


def test_each_home_answers_for_itself(spark: SparkSession) -> None:
    assert ask(homes_table(spark, HOSTS), lambda task: task * 10) == [0, 10, 20]


def test_without_the_private_classes_homes_are_executors(
    planned: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> DataFrame:
        raise AttributeError("LogicalRDD.fromDataset does not exist")

    monkeypatch.setattr(homes_module, "_preferring", refuse)
    homes = homes_table(planned, HOSTS)
    assert "homes are executors instead" in caplog.text
    placed = at_home(planned.range(12).withColumn("target", F.expr("int(id % 3)")), F.col("target"), homes)
    assert sorted({row.place for row in placed.select(F.spark_partition_id().alias("place")).collect()}) == [
        0, 1, 2,
    ]  # fmt: skip
    homes.unpersist()


def test_settings_that_break_placement_are_refused_with_their_values(spark: SparkSession) -> None:
    with pytest.raises(HomesError) as refused:
        check_cluster_settings(spark)
    for line in (
        "spark.shuffle.reduceLocality.enabled=false (it is true)",
        "spark.locality.wait=15s (it is 3s)",
        "spark.sql.adaptive.optimizer.excludedRules=",
    ):
        assert line in str(refused.value)
    assert "speculation" not in str(refused.value)
    assert CLUSTER_SETTINGS["spark.shuffle.reduceLocality.enabled"] == "false"


def test_homes_need_slots(spark: SparkSession) -> None:
    found = [Executor("h1", "0", 2), Executor("h2", "1", 1)]
    check_slots(spark, found, ["h1", "h1", "h2"])
    with pytest.raises(HomesError, match=r"2 tasks have their home on h2, whose executors have 1 slots"):
        check_slots(spark, found, ["h1", "h2", "h2"])


def test_tasks_are_spread_evenly_and_always_alike() -> None:
    found = [Executor("a", "3", 2), Executor("b", "1", 2), Executor("c", "2", 2)]
    assert hosts_of_tasks(found, 6) == ["a", "a", "b", "b", "c", "c"]
    assert hosts_of_tasks(found, 3) == ["a", "b", "c"]
