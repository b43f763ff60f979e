"""Metrics of operators, by part, in Spark's progress of a batch.

Each part reports its metrics in one row, as JSON in a column beside its packets or output rows, and Spark
collects the column. Sums would be simpler, but Spark generates and compiles code for them in every task of
every batch, which took 35 of 260 ms. A struct has a value for each of its fields in every row without
metrics, too, which took another 35 ms for 180,000 rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from d3gnn.kernel.operators.base import PARTITION as PARTITION_ID
from d3gnn.kernel.operators.base import OperatorId
from d3gnn.kernel.operators.chain import ChainSpec
from d3gnn.types import Doubles, Ints

__all__ = ["latency", "metrics"]

#: The metrics of each kind of operator. `part` comes first in a row.
PARTITION = (
    "busy_us", "kept", "applied", "repeated", "late", "dead", "refreshed", "vertices", "replicas", "live",
    "lacking", "expired", "model_version", "deployed_us",
)  # fmt: skip
OPERATOR = (
    "busy_us", "kept", "packets", "bytes", "messages", "touched", "recomputed", "invalidated", "pending",
    "oldest_ms", "merged", "forwards",
)  # fmt: skip
OUTPUT = (
    "busy_us", "kept", "rows", "tombstones", "messages", "touched", "recomputed", "pending", "oldest_ms",
    "merged", "forwards", "arrivals",
)  # fmt: skip
#: The age of the oldest pending vertex: over parts, the maximum instead of the sum.
OLDEST = "oldest_ms"
#: The one list: quantiles of the arrivals behind the output rows of a part, from the oldest on.
ARRIVALS = "arrivals"
_QUANTILES = 21
#: Of more rows than this, quantiles are those of every nth row.
_SAMPLE = 10_000

#: In front of an operator's name in Spark's observed metrics; and the name under which a chain that runs in
#: one task reports all its operators.
PREFIX, CHAIN = "d3gnn.", "chain"


def metrics(progress: Any) -> dict[str, dict[str, Any]]:
    """The metrics of each operator in a batch, over all its parts; from a query's progress.

    Operators are named `partition`, `vertex-0`, `edge-1`, `vertex-1` and so on.
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
    if partition.get("vertices"):  # not in a retried batch, nor of an empty graph
        partition["replication_factor"] = partition["replicas"] / partition["vertices"]
    if deployed := partition.pop("deployed_us", 0):
        partition["rollout_ms"] = batch_end(progress) * 1e3 - deployed / 1e3
    return totals


def by_part(progress: Any) -> dict[str, list[Any]]:
    """The metrics of each part of each operator in a batch."""
    parts: dict[str, list[Any]] = {}
    for name, row in progress["observedMetrics"].items():
        observed = row.asDict()
        if name.startswith(PREFIX) and "parts" in observed:
            found = [json.loads(part) for part in observed["parts"]]
            if name == PREFIX + CHAIN:
                for operators in found:
                    parts |= operators
            else:
                parts[name.removeprefix(PREFIX)] = found
    return parts


def latency(progress: Any) -> dict[str, float]:
    """Milliseconds from the oldest event behind an output row to the end of its batch.

    p50, p95, p99 and max over the rows of the batch; empty if it has none. An event without an arrival
    arrived when Partition processed it.
    """
    ages, weight = output_ages(progress)
    if not len(ages):
        return {}
    p50, p95, p99 = weighted_percentiles(ages, weight, (50, 95, 99))
    return {"p50": p50, "p95": p95, "p99": p99, "max": float(ages.max())}


def batch_end(progress: Any) -> float:
    """When a batch ended, after its commit, in seconds since 1970."""
    return float(batch_begin(progress) + progress["durationMs"]["triggerExecution"] / 1e3)


def batch_begin(progress: Any) -> float:
    """When a batch began, in seconds since 1970."""
    return datetime.fromisoformat(progress["timestamp"]).timestamp()


def output_ages(progress: Any) -> tuple[Doubles, Doubles]:
    """Milliseconds from the oldest event behind output rows to the end of their batch, and the number of rows
    that each value stands for.

    They are quantiles within each part; the first one, of the oldest event, is exact.
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
    """The values below or at which these percents of the weight are.

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
    at = np.linspace(0, len(sample) - 1, min(_QUANTILES, len(sample))).round().astype(np.int64)
    oldest = min(int(some.min()) for some in arrivals if len(some))
    return [oldest, *sample[at[1:]].tolist()]


def metric_names(operator: OperatorId) -> Sequence[str]:
    """The metrics of an operator."""
    return PARTITION if operator == PARTITION_ID else OPERATOR


def chain_metrics(
    chain: ChainSpec,
    partition: Mapping[str, Any],
    operators: Mapping[str, Sequence[Mapping[str, Any]]],
    output: Mapping[str, Any],
) -> dict[str, list[dict[str, Any]]]:
    """The metrics of all operators of a chain, by name; those of the output rows belong to the last one."""
    found = {str(PARTITION_ID): [{"part": 0, **dict.fromkeys(PARTITION, 0), **partition}]}
    for id in chain.operators:
        names = OUTPUT if id == chain.output else OPERATOR
        rows = operators.get(str(id), [{"part": 0}])
        found[str(id)] = [{"part": row["part"]} | {name: row.get(name, 0) for name in names} for row in rows]
    found[str(chain.output)][0] |= output
    return found


class MetricRow(NamedTuple):
    """The metrics of an operator part in a batch, and the column that they are reported in."""

    column: str
    names: Sequence[str]
    part: int
    #: None for rows after the first.
    metrics: Mapping[str, Any] | None

    def array(self, rows: int) -> pa.Array:
        """The column for this many rows, with the metrics in the first."""
        if self.metrics is None:
            return pa.nulls(rows, pa.string())
        values = {"part": self.part} | {name: self.metrics.get(name, 0) for name in self.names}
        return pa.concat_arrays([pa.array([json.dumps(values)]), pa.nulls(rows - 1, pa.string())])

    def without_metrics(self) -> MetricRow:
        """For the rows after the first."""
        return self._replace(metrics=None)
