"""Placement of a pipeline on a cluster: its tasks, their homes, and a look at every one of them."""

from __future__ import annotations

import logging
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from d3gnn.runtime.plan import Plan, record_homes
from d3gnn.spark.census import take_census
from d3gnn.spark.cluster_settings import check_cluster_settings, check_slots
from d3gnn.spark.homes import homes_table, hosts_of_tasks, wait_for_executors
from d3gnn.store.store import Store

log = logging.getLogger("d3gnn")


def place(plan: Plan, tasks: int | None, spark: SparkSession) -> tuple[Plan, DataFrame]:
    """The plan with a home for each task, and the table of homes."""
    check_cluster_settings(spark)
    found = wait_for_executors(spark, tasks or 0)
    tasks = min(tasks or len(found), plan.parts)
    hosts = hosts_of_tasks(found, tasks)
    check_slots(spark, found, hosts)
    homes = homes_table(spark, hosts)
    record_homes(Store(plan.store), hosts)
    placed = replace(plan, tasks=tasks, threads=1, homes=tuple(hosts))
    take_census(placed, homes)
    log.info("homes of the tasks of %s: %s", plan.name, ", ".join(hosts))
    return placed, homes
