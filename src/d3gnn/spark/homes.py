"""Homes: on which machine of a cluster each task runs, in every batch.

Spark has no setting for it. But it runs a task where the partitions of a table that it reads are. So there is
a table of homes, with one row and one partition for each task, and every exchange is followed by a join with
it, which needs no further exchange. The partitions prefer hosts, not executors: a task stays on its machine,
which has its arrays, if an executor is restarted there.

Making such a table takes classes of Spark that are not public, all of them in this module. Where they are
missing, a cached table takes its place: its partitions are in executors, and a task whose executor died may
move to another machine, although its arrays are still on the old one.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

log = logging.getLogger("d3gnn")

#: The column with the number of the task.
TASK = "task"
#: Spark replaces an exchange into a single partition by another one. So there are at least two homes.
_LEAST = 2
_ADAPTIVE = "spark.sql.adaptive.enabled"
#: How long executors may take to start, and how long no further one must have come.
_PATIENCE, _SETTLED = 120.0, 2.0
_SQL = "org.apache.spark.sql."


class HomesError(RuntimeError):
    """Tasks cannot be given homes in this session; the message says why and what to do."""


class Executor(NamedTuple):
    """An executor of a Spark application."""

    host: str
    id: str
    cores: int


def executors(spark: SparkSession) -> list[Executor]:
    """The executors that are alive, by host."""
    found = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    every = [found.apply(i) for i in range(found.size())]
    alive = [each for each in every if each.isActive() and each.id() != "driver"]
    return sorted(
        Executor(each.hostPort().rpartition(":")[0], each.id(), each.totalCores()) for each in alive
    )


def wait_for_executors(spark: SparkSession, wanted: int = 0) -> list[Executor]:
    """The executors, when there are as many as `wanted`, or when no further one starts."""
    begun = changed = time.monotonic()
    found: list[Executor] = []
    while True:
        before, found = found, executors(spark)
        now = time.monotonic()
        changed = now if found != before else changed
        if found and (len(found) >= wanted > 0 or now - changed > _SETTLED):
            return found
        if now - begun > _PATIENCE:
            raise HomesError(
                f"no executor of {spark.sparkContext.master} has started in {_PATIENCE:.0f} seconds: look at "
                "the cluster for free cores and memory (spark.executor.memory, spark.cores.max)"
            )
        time.sleep(0.1)


def hosts_of_tasks(found: Sequence[Executor], tasks: int) -> list[str]:
    """The host of each task: evenly over the executors, and the same for the same hosts.

    >>> hosts_of_tasks([Executor("a", "0", 2), Executor("b", "1", 2)], 4)
    ['a', 'a', 'b', 'b']
    """
    return [found[task * len(found) // tasks].host for task in range(tasks)]


def homes_table(spark: SparkSession, hosts: Sequence[str]) -> DataFrame:
    """A table with a row for each task, whose partition prefers the task's host."""
    hosts = list(hosts)
    hosts += hosts[-1:] * (_LEAST - len(hosts))
    with _without_adaptive(spark):  # which does not show how a table is partitioned
        rows = spark.range(0, len(hosts), 1, len(hosts)).select(F.col("id").cast("int").alias(TASK))
        rows = rows.repartitionById(len(hosts), F.col(TASK))
        try:
            homes = _preferring(spark, rows, hosts)
        except Exception as error:  # py4j has many kinds, and other releases of Spark have other classes
            log.warning(
                "this Spark does not let tasks prefer hosts (%s): homes are executors instead", _first(error)
            )
            homes = rows.cache()
            homes.count()
        partitions = _partitions(homes)
    if partitions != len(hosts):
        raise HomesError(f"Spark has planned {partitions} partitions for {len(hosts)} homes")
    return homes


def at_home(rows: DataFrame, task: Column, homes: DataFrame) -> DataFrame:
    """The rows, in the home of the task that `task`, which must not be constant, names for each."""
    tasks = _partitions(homes)
    placed = rows.withColumn(TASK, task).repartitionById(tasks, F.col(TASK))
    # Without the hint, Spark would broadcast the homes, and their places with them.
    return placed.join(homes.hint("shuffle_hash"), TASK).drop(TASK)


def ask(homes: DataFrame, question: Callable[[int], Any]) -> list[Any]:
    """What a function answers in the home of each task, in their order; it gets the number of the task."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(TASK).to_pylist():
                answer = pickle.dumps((task, question(task)))
                yield pa.RecordBatch.from_pydict({"answer": pa.array([answer], pa.binary())})

    rows = homes.mapInArrow(run, "answer binary").collect()
    return [answer for _, answer in sorted((pickle.loads(row.answer) for row in rows), key=_task_of)]


def _task_of(answer: tuple[int, Any]) -> int:
    return answer[0]


def _preferring(spark: SparkSession, rows: DataFrame, hosts: Sequence[str]) -> DataFrame:
    jvm: Any = spark._jvm
    converters = jvm.scala.jdk.javaapi.CollectionConverters
    found = rows._jdf.queryExecution().toRdd().collect()
    placed = jvm.java.util.ArrayList()
    for row in found:
        places = jvm.java.util.ArrayList()
        places.add(hosts[row.getInt(0)])
        placed.add(jvm.scala.Tuple2(row, converters.asScala(places).toSeq()))
    row_class = jvm.java.lang.Class.forName(f"{_SQL}catalyst.InternalRow")
    rdd = spark.sparkContext._jsc.sc().makeRDD(
        converters.asScala(placed).toSeq(), jvm.scala.reflect.ClassTag.apply(row_class)
    )
    logical = _companion(jvm, f"{_SQL}execution.LogicalRDD")
    more = getattr(logical, "fromDataset$default$4")()
    plan = logical.fromDataset(rdd, rows._jdf, False, more)
    dataset = _companion(jvm, f"{_SQL}classic.Dataset").ofRows(spark._jsparkSession, plan)
    dataset.queryExecution().executedPlan()  # planned now, without adaptive execution
    return DataFrame(dataset, spark)


def _companion(jvm: Any, name: str) -> Any:
    return jvm.java.lang.Class.forName(f"{name}$").getField("MODULE$").get(None)


def _partitions(homes: DataFrame) -> int:
    return int(homes._jdf.queryExecution().executedPlan().outputPartitioning().numPartitions())


def _first(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


@contextmanager
def _without_adaptive(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(_ADAPTIVE, "true")
    spark.conf.set(_ADAPTIVE, "false")
    try:
        yield
    finally:
        spark.conf.set(_ADAPTIVE, str(before))
