"""What operators say of a batch, by part, in Spark's progress of that batch.

Each part says it in one row, in a column beside its parcels, and Spark collects the column. Sums would be
shorter to read, but Spark generates and compiles code for them in every task of every batch, which took 35 of
260 ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["metrics"]

#: What each kind of operator says. `part` comes first.
PARTITION = (
    "busy_us", "kept", "applied", "repeated", "late", "dead", "refreshed", "vertices", "replicas",
)  # fmt: skip
OPERATOR = ("busy_us", "kept", "parcels", "bytes", "messages", "touched", "recomputed")
OUTPUT = ("busy_us", "kept", "rows", "tombstones", "messages", "touched", "recomputed")

_PREFIX = "d3gnn."


def metrics(progress: Any) -> dict[str, dict[str, Any]]:
    """What each operator says of a batch, over all its parts; from a query's progress.

    Their names are `partition`, `vertex-0`, `edge-1`, `vertex-1` and so on.
    """
    totals: dict[str, dict[str, Any]] = {}
    for name, row in progress["observedMetrics"].items():
        said = row.asDict()
        if name.startswith(_PREFIX) and "parts" in said:
            total = totals[name.removeprefix(_PREFIX)] = dict[str, Any]()
            for part in said["parts"]:
                for metric, value in part.items():
                    if metric != "part":
                        total[metric] = total.get(metric, 0) + value
    partition = totals.get("partition", {})
    if partition.get("vertices"):  # a batch that was kept, and an empty graph, have none to speak of
        partition["replication_factor"] = partition["replicas"] / partition["vertices"]
    return totals


class Said(NamedTuple):
    """What an operator part says of a batch, and the column that it says it in."""

    column: str
    names: Sequence[str]
    part: int
    #: Nothing, where another row says it.
    metrics: Mapping[str, int] | None

    def array(self, rows: int) -> pa.Array:
        """The column for so many rows, of which the first says it."""
        whole = pa.struct([(name, pa.int64()) for name in ("part", *self.names)])
        first = None
        if self.metrics is not None:
            first = {"part": self.part} | {name: int(self.metrics.get(name, 0)) for name in self.names}
        return pa.array([first] + [None] * (rows - 1), whole)

    def silent(self) -> Said:
        """For the rows that follow."""
        return self._replace(metrics=None)


def column_type(names: Sequence[str]) -> str:
    """The Spark type of such a column."""
    return f"struct<{', '.join(f'{name}: long' for name in ('part', *names))}>"


def watch(operator: str, frame: DataFrame, said: str) -> DataFrame:
    """The frame, whose column `said` comes with the progress of every batch."""
    from pyspark.sql import functions as F

    return frame.observe(_PREFIX + operator, F.collect_list(said).alias("parts"))
