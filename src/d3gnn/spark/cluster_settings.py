"""Settings of a session on a cluster without which tasks would leave their homes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from d3gnn.spark.homes import Executor, HomesError

__all__ = ["CLUSTER_SETTINGS", "check_cluster_settings", "check_slots", "is_local"]

_PROPAGATE = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
_EXCLUDED = "spark.sql.adaptive.optimizer.excludedRules"
_WAIT = "spark.locality.wait"
_SHORTEST_WAIT = 10_000


class _Needed(NamedTuple):
    setting: str
    default: str
    value: str
    why: str


_NEEDED = (
    _Needed(
        "spark.shuffle.reduceLocality.enabled", "true", "false",
        "Spark would place tasks where most of their input is, not at their homes",
    ),
    _Needed(
        "spark.dynamicAllocation.enabled", "false", "false",
        "executors would come and go, and tasks and their arrays with them",
    ),
    _Needed("spark.speculation", "false", "false", "a second copy of a task would change the same arrays"),
    _Needed(
        "spark.excludeOnFailure.enabled", "false", "false",
        "after a failure, Spark would not let a task run at its home any more",
    ),
)  # fmt: skip

#: What `d3gnn.session` sets on a cluster.
CLUSTER_SETTINGS = {each.setting: each.value for each in _NEEDED} | {
    # A task whose home is busy, or is being restarted, waits for so long before it runs elsewhere.
    _WAIT: "15s",
    # With it, a batch without rows would run no task.
    _EXCLUDED: _PROPAGATE,
    # Operators exchange floating-point numbers, mostly, which do not compress.
    "spark.shuffle.compress": "false",
    # A host that cannot be reached for a while keeps its executors and its arrays.
    "spark.network.timeout": "120s",
}


def is_local(spark: SparkSession) -> bool:
    """Whether all tasks run in the process of the driver."""
    master = str(spark.sparkContext.master)
    return master == "local" or master.startswith("local[")


def check_cluster_settings(spark: SparkSession) -> None:
    """Refuse a session whose tasks could leave their homes; raises `HomesError` with what to set."""
    if is_remote():
        raise HomesError("pipelines do not run through Spark Connect: start them in a driver of the cluster")
    if problems := list(_problems(spark)):
        raise HomesError(
            "on a cluster, each task must run on the machine that has its arrays, and this session does not "
            "ensure it. Set before the session starts (d3gnn.session(master=...) does):\n  "
            + "\n  ".join(problems)
        )


def check_slots(spark: SparkSession, found: Sequence[Executor], hosts: Sequence[str]) -> None:
    """Refuse homes on hosts that have not a slot for each of them."""
    per_task = int(spark.sparkContext.getConf().get("spark.task.cpus", "1") or 1)
    for host in dict.fromkeys(hosts):
        slots = sum(each.cores // per_task for each in found if each.host == host)
        if slots < (needed := hosts.count(host)):
            raise HomesError(
                f"{needed} tasks have their home on {host}, whose executors have {slots} slots: set tasks= "
                f"to fewer tasks (the cluster has {len(found)} executors), or give executors more cores "
                "(spark.executor.cores)"
            )


def _problems(spark: SparkSession) -> Iterator[str]:
    settings = spark.sparkContext.getConf()
    for each in _NEEDED:
        found = settings.get(each.setting, each.default)
        if found != each.value:
            yield f"{each.setting}={each.value} (it is {found}): {each.why}"
    jvm: Any = spark._jvm
    wait = settings.get(_WAIT, "3s")
    for name in (_WAIT, f"{_WAIT}.node"):
        found = settings.get(name, wait)
        if jvm.org.apache.spark.network.util.JavaUtils.timeStringAsMs(found) < _SHORTEST_WAIT:
            yield f"{name}=15s (it is {found}): a task whose home is busy would run without its arrays"
    adaptive = spark.conf.get("spark.sql.adaptive.enabled", "true") == "true"
    if adaptive and _PROPAGATE not in str(spark.conf.get(_EXCLUDED, "")):
        yield f"{_EXCLUDED}={_PROPAGATE}: a batch without rows would run no task (can be set now)"
