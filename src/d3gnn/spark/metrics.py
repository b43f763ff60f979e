"""What operators say of a batch, by part, in Spark's progress of that batch.

Each part says it in one row, as JSON in a column beside its parcels or rows, and Spark collects the column.
Sums would be shorter to read, but Spark generates and compiles code for them in every task of every batch,
which took 35 of 260 ms; and a struct has a number for each of its fields in all the rows that say nothing,
which took another 35 for 180,000 rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from d3gnn.types import Doubles, Ints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["latency", "metrics"]

#: What each kind of operator says. `part` comes first.
PARTITION = (
    "busy_us", "kept", "applied", "repeated", "late", "dead", "refreshed", "vertices", "replicas",
)  # fmt: skip
OPERATOR = (
    "busy_us", "kept", "parcels", "bytes", "messages", "touched", "recomputed", "hits", "pending",
    "oldest_ms", "merged", "forwards",
)  # fmt: skip
OUTPUT = (
    "busy_us", "kept", "rows", "tombstones", "messages", "touched", "recomputed", "pending", "oldest_ms",
    "merged", "forwards", "arrivals",
)  # fmt: skip
#: The one that is no sum over parts: for how long the oldest has waited in a window.
OLDEST = "oldest_ms"
#: The one that is a list: quantiles of the arrivals behind the rows of a part, from the oldest on.
ARRIVALS = "arrivals"
_QUANTILES = 21
#: Beyond so many rows, every nth of them says how the others are.
_SAMPLE = 10_000

#: The Spark type of the column.
SAID = "string"
_PREFIX = "d3gnn."


def metrics(progress: Any) -> dict[str, dict[str, Any]]:
    """What each operator says of a batch, over all its parts; from a query's progress.

    Their names are `partition`, `vertex-0`, `edge-1`, `vertex-1` and so on.
    """
    totals: dict[str, dict[str, Any]] = {}
    for name, parts in by_part(progress).items():
        total = totals[name] = dict[str, Any]()
        for part in parts:
            for metric, value in part.items():
                if metric == OLDEST:
                    total[metric] = max(total.get(metric, 0), value)
                elif metric not in ("part", ARRIVALS):
                    total[metric] = total.get(metric, 0) + value
    partition = totals.get("partition", {})
    if partition.get("vertices"):  # a batch that was kept, and an empty graph, have none to speak of
        partition["replication_factor"] = partition["replicas"] / partition["vertices"]
    return totals


def by_part(progress: Any) -> dict[str, list[Any]]:
    """What each part of each operator says of a batch."""
    found = {}
    for name, row in progress["observedMetrics"].items():
        said = row.asDict()
        if name.startswith(_PREFIX) and "parts" in said:
            found[name.removeprefix(_PREFIX)] = [json.loads(part) for part in said["parts"]]
    return found


def latency(progress: Any) -> dict[str, float]:
    """How long it took, in milliseconds, from the oldest event behind an output to the end of its batch.

    p50, p95, p99 and max over the rows of the batch; empty if it has none. Events come with the time of their
    arrival, or their arrival is the time at which Partition saw them.
    """
    ages, weight = output_ages(progress)
    if not len(ages):
        return {}
    found = weighted_percentiles(ages, weight, (50, 95, 99))
    return {"p50": found[0], "p95": found[1], "p99": found[2], "max": float(ages.max())}


def batch_end(progress: Any) -> float:
    """When a batch was over, commit and all, in seconds since 1970."""
    begun = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return float(begun + progress["durationMs"]["triggerExecution"] / 1e3)


def output_ages(progress: Any) -> tuple[Doubles, Doubles]:
    """Milliseconds from the oldest event behind outputs to the end of their batch; how many rows each is for.

    They are quantiles within each part. The first of them, the oldest of all, is exact.
    """
    ended = batch_end(progress) * 1e3
    ages, weights = [np.zeros(0)], [np.zeros(0)]
    for parts in by_part(progress).values():
        for part in parts:
            if arrivals := part.get(ARRIVALS):
                ages.append(ended - np.array(arrivals, np.float64) / 1e3)
                weights.append(np.full(len(arrivals), part["rows"] / len(arrivals)))
    return np.concatenate(ages), np.concatenate(weights)


def weighted_percentiles(values: Doubles, weights: Doubles, percents: Sequence[float]) -> list[float]:
    """The values that so many percent of the weight lie at or below.

    >>> weighted_percentiles(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 8.0]), (5, 50, 95))
    [1.0, 2.0, 3.0]
    """
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    at = np.searchsorted(reached, np.array(percents) / 100 * reached[-1])
    return [float(value) for value in values[order][np.minimum(at, len(values) - 1)]]


def arrival_quantiles(arrivals: Sequence[Ints]) -> list[int]:
    """Evenly spaced quantiles of all of these, the oldest first; empty if there are none."""
    rows = sum(map(len, arrivals))
    if not rows:
        return []
    step = 1 + rows // _SAMPLE
    sample = np.sort(np.concatenate([some[::step] for some in arrivals]))
    places = np.linspace(0, len(sample) - 1, min(_QUANTILES, len(sample))).round().astype(np.int64)
    oldest = min(int(some.min()) for some in arrivals if len(some))
    return [oldest, *sample[places[1:]].tolist()]


def names_of(operator: str) -> Sequence[str]:
    """What an operator says of a batch."""
    return PARTITION if operator == "partition" else OPERATOR


class Said(NamedTuple):
    """What an operator part says of a batch, and the column that it says it in."""

    column: str
    names: Sequence[str]
    part: int
    #: Nothing, where another row says it.
    metrics: Mapping[str, Any] | None

    def array(self, rows: int) -> pa.Array:
        """The column for so many rows, of which the first says it."""
        if self.metrics is None:
            return pa.nulls(rows, pa.string())
        said = {"part": self.part} | {name: self.metrics.get(name, 0) for name in self.names}
        return pa.concat_arrays([pa.array([json.dumps(said)]), pa.nulls(rows - 1, pa.string())])

    def silent(self) -> Said:
        """For the rows that follow."""
        return self._replace(metrics=None)


def watch(operator: str, frame: DataFrame, said: str) -> DataFrame:
    """The frame, whose column `said` comes with the progress of every batch."""
    from pyspark.sql import functions as F

    return frame.observe(_PREFIX + operator, F.collect_list(said).alias("parts"))
