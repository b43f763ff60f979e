"""The demo on Spark: the stream as files, a table of embeddings, and the log that proves it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from d3gnn.bench.check import Comparison
from d3gnn.bench.result import Report
from d3gnn.cli.demo.job import Job, Snapshot
from d3gnn.cli.progress import Watch, observed
from d3gnn.cli.reports import BatchReport
from d3gnn.pipeline import StreamingGNN
from d3gnn.spark.event_files import EventFiles
from d3gnn.spark.runtime import STORE
from d3gnn.spark.verify import stored_plan, verify
from d3gnn.types import Floats, Ints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkRun:
    """A job through a `StreamingGNN`, in a folder of its own."""

    def __init__(self, job: Job, folder: Path, spark: SparkSession) -> None:
        self._job, self._spark = job, spark
        self._events, self._table = folder / "events", folder / "embeddings"
        self.checkpoint = folder / "checkpoint"
        #: Number of the batch of the query with which watching begins.
        self._watched: int | None = None

    def batches(self) -> Iterator[list[BatchReport]]:
        job = self._job
        files = self._written()
        gnn = StreamingGNN(
            job.model, name="demo", parts=job.parts, partitioner=job.partitioner, schema=job.stream.schema
        )
        running = gnn.start(
            observed(files.read(self._spark)),
            self._table,
            checkpoint=self.checkpoint,
            trigger={"availableNow": True},
        )
        done, watch_from = 0, job.first_watched * job.batch
        for reports in Watch(running, f"{self.checkpoint}/{STORE}").batches():
            for report in reports:
                if self._watched is None and done >= watch_from:
                    self._watched = report.number
                done += report.events
            yield reports

    def _written(self) -> EventFiles:
        """A file for each batch, which the stream takes one by one."""
        for folder in (self._events, self._table, self.checkpoint):
            shutil.rmtree(folder, ignore_errors=True)
        files = EventFiles(self._events, columns=("feature", "value"))
        for batch in self._job.batches():
            files.write(batch)
        return files

    def snapshots(self) -> tuple[Snapshot, Snapshot]:
        """From the table, as anybody could read it."""
        table = ds.dataset(self._table).to_table(columns=["id", "embedding", "batch", "deleted"])
        batch = table["batch"].to_numpy()
        before = table.filter(pa.array(batch < (batch.max() + 1 if self._watched is None else self._watched)))
        return _newest(before, self._job.model.out_width), _newest(table, self._job.model.out_width)

    def compare(self, report: Report) -> Comparison:
        verdict = verify(stored_plan(self.checkpoint))
        error = float("inf") if verdict.missing else verdict.max_relative_error
        return Comparison(verdict.vertices, verdict.edges, error)


def _newest(table: pa.Table, width: int) -> Snapshot:
    """The newest row of each id, without the deleted ones, in the order of ids."""
    ids: Ints = table["id"].to_numpy()
    order = np.lexsort((table["batch"].to_numpy(), ids))
    last = np.ones(len(order), bool)
    last[:-1] = ids[order][1:] != ids[order][:-1]
    kept = order[last]
    kept = kept[~table["deleted"].to_numpy()[kept]]
    column = table["embedding"].take(pa.array(kept)).combine_chunks()
    embeddings: Floats = column.flatten().to_numpy().reshape(-1, width)
    return Snapshot(ids[kept], embeddings)
