"""The trigger and the name of a query, from the keyword arguments of `StreamingGNN.start`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Spark's other triggers, and why a pipeline does not take them.
_UNSUPPORTED = {
    "once": "it is deprecated in Spark, and drops the batch that drains windows; use availableNow=True",
    "continuous": "it cannot run operators with state; use processingTime='1 second'",
    "realTime": "it cannot run Python operators; use processingTime='0 seconds'",
}


def trigger_of(
    processing_time: str | None, available_now: bool | None, others: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of `DataStreamWriter.trigger`; empty for Spark's default.

    >>> trigger_of("5 seconds", None, {})
    {'processingTime': '5 seconds'}
    """
    for name in others:
        if name not in _UNSUPPORTED:
            raise TypeError(f"start() has no argument {name!r}")
        raise ValueError(f"the trigger {name} is not supported: {_UNSUPPORTED[name]}")
    if processing_time is not None and available_now:
        raise ValueError("give one trigger: either processingTime or availableNow")
    if available_now:
        return {"availableNow": True}
    return {} if processing_time is None else {"processingTime": processing_time}


def free_name(spark: SparkSession, name: str) -> str:
    """This name, or with a number behind it where an active query of the session has it already."""
    taken = {query.name for query in spark.streams.active}
    candidates = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 2)))
    return next(candidate for candidate in candidates if candidate not in taken)
