"""The replay source: recorded events as a live stream, each available from its arrival on.

Event number i arrives at `begin + i / rate`, which is its column `arrival`, and belongs to the first batch
that is planned after that. A batch takes all events that have arrived: a later batch is larger, as with any
live source. The rows of a batch follow from its offsets alone, so that a replay after a restart is the same.

It is a Python data source whose rows come out of the process that plans batches: no file to list, no Python
task to fetch them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from d3gnn.types import Ints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FORMAT", "ReplayReader", "ReplaySource", "replay_stream", "write_recording"]

FORMAT = "d3gnn_replay"
ARRIVAL = "arrival"
Offset = dict[str, int]


def write_recording(table: pa.Table, path: str | Path) -> None:
    """Write events for `replay_stream`, without their column `arrival`, which the replay adds."""
    if ARRIVAL in table.column_names:
        table = table.drop_columns([ARRIVAL])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def replay_stream(
    spark: SparkSession, path: str | Path, rate: float, begin: float | None = None
) -> DataFrame:
    """The events that `write_recording` wrote, as a stream.

    rate:
        Events per second.
    begin:
        When the first event arrives, in seconds since 1970; now, unless given.
    """
    if rate <= 0:
        raise ValueError(f"rate={rate}: must be a positive number of events per second")
    spark.dataSource.register(ReplaySource)
    reader = spark.readStream.format(FORMAT).option("path", os.fspath(path)).option("rate", rate)
    return reader.option("begin", time.time() if begin is None else begin).load()


class ReplaySource(DataSource):
    """The data source `d3gnn_replay`, with the options `path`, `rate` and `begin`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        with _open(self.options["path"]) as file:
            schema = file.schema.append(pa.field(ARRIVAL, pa.int64()))
        return from_arrow_schema(schema)

    def simpleStreamReader(self, schema: StructType) -> ReplayReader:  # noqa: N802
        options = self.options
        return ReplayReader(options["path"], float(options["rate"]), float(options["begin"]))


class ReplayReader(SimpleDataSourceStreamReader):
    """Returns events from their arrival on. An offset is the number of events before it."""

    def __init__(self, path: str, rate: float, begin: float) -> None:
        self._path, self._rate, self._begin = path, rate, begin

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"event": 0}

    def read(self, start: Offset) -> tuple[Iterator[pa.RecordBatch], Offset]:
        due = min(self._table.num_rows, due_by(time.time(), self._rate, self._begin))
        if due <= start["event"]:
            return iter([]), start
        end = {"event": due}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[pa.RecordBatch]:  # noqa: N802
        first, last = start["event"], end["event"]
        if last <= first:
            return iter([])
        rows = self._table.slice(first, last - first).combine_chunks()
        arrival = pa.array(arrivals(first, last, self._rate, self._begin))
        return iter(rows.append_column(ARRIVAL, arrival).to_batches())

    def commit(self, end: Offset) -> None:
        """Nothing to delete: the recording stays."""

    @cached_property
    def _table(self) -> pa.Table:
        with _open(self._path) as file:
            return file.read_all()


def due_by(now: float, rate: float, begin: float) -> int:
    """The number of events that have arrived by a time."""
    return max(0, int((now - begin) * rate))


def arrivals(first: int, last: int, rate: float, begin: float) -> Ints:
    """The arrivals of events `first` to `last` (exclusive), in microseconds."""
    times: Ints = ((begin + np.arange(first, last) / rate) * 1e6).astype(np.int64)
    return times


def _open(path: str) -> pa.ipc.RecordBatchFileReader:
    return pa.ipc.open_file(pa.memory_map(path))
