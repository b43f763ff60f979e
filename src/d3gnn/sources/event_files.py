"""A folder of Parquet files of events, of which a query reads one in each batch, in order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from d3gnn.events import Event, EventBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TYPES = {"bigint": pa.int64(), "string": pa.string(), "array<float>": pa.list_(pa.float32())}
_SPARK_TYPES = {"op": "string", "element": "string", "feature": "string", "value": "array<float>"}
_ALWAYS = ("op", "element", "src", "dst", "time")
#: Spark reads files in the order of their modification times: each is one second newer than the one before.
_FIRST_TIME = 1_000_000_000


class EventFiles:
    """A folder of event files.

    ids:
        The Spark type of the ids.
    columns:
        The columns beyond op, element, src, dst and time.
    """

    def __init__(
        self, folder: str | Path, ids: str = "bigint", columns: Sequence[str] = ("key", "feature", "value")
    ) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        names = [*_ALWAYS, *columns]
        self._types = {name: _SPARK_TYPES.get(name, "bigint") for name in names} | {"src": ids, "dst": ids}
        self._count = len(list(self.folder.glob("*.parquet")))

    def __len__(self) -> int:
        return self._count

    def write(self, batch: EventBatch | Iterable[Event]) -> None:
        """Add a file, atomically."""
        table = EventBatch.of(batch).to_arrow()
        columns = {}
        for name, spark_type in self._types.items():
            type, exists = _TYPES[spark_type], name in table.column_names
            columns[name] = table[name].cast(type) if exists else pa.nulls(len(table), type)
        path = self.folder / f"{self._count:06d}.parquet"
        hidden = path.with_name(f".{path.name}")
        pq.write_table(pa.table(columns), hidden)
        os.utime(hidden, (_FIRST_TIME + self._count,) * 2)
        hidden.rename(path)
        self._count += 1

    def read(self, spark: SparkSession) -> DataFrame:
        """The events as a stream, one file in each batch."""
        schema = ", ".join(f"{name} {spark_type}" for name, spark_type in self._types.items())
        return (
            spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.folder.resolve()))
        )
