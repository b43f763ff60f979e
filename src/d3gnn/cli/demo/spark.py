"""The demo on Spark: the stream as files, and a table of embeddings."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from d3gnn.bench.check import Comparison
from d3gnn.bench.result import OnProgress
from d3gnn.cli.demo.job import Job, Snapshot
from d3gnn.cli.progress import Watch, observed
from d3gnn.cli.reports import BatchReport
from d3gnn.pipeline import StreamingGNN
from d3gnn.runtime.verify import stored_plan, verify
from d3gnn.sources.event_files import EventFiles
from d3gnn.store.store import STORE
from d3gnn.types import Floats, Ints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkRun:
    """Runs a job on a `StreamingGNN`, in a folder of its own."""

    def __init__(self, job: Job, folder: Path, spark: SparkSession) -> None:
        self._job, self._spark = job, spark
        self._events, self._table = folder / "events", folder / "embeddings"
        self.checkpoint = folder / "checkpoint"
        #: Number of the first watched batch of the query.
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
            availableNow=True,
        )
        done, watch_from = 0, job.first_watched * job.batch
        for reports in Watch(running, f"{self.checkpoint}/{STORE}").batches():
            for report in reports:
                if self._watched is None and done >= watch_from:
                    self._watched = report.number
                done += report.events
            yield reports

    def _written(self) -> EventFiles:
        """Write a file for each batch, which the stream reads one by one."""
        for folder in (self._events, self._table, self.checkpoint):
            shutil.rmtree(folder, ignore_errors=True)
        files = EventFiles(self._events, columns=("feature", "value"))
        for batch in self._job.batches():
            files.write(batch)
        return files

    def snapshots(self) -> tuple[Snapshot, Snapshot]:
        """From the table, as any reader sees it."""
        table = ds.dataset(self._table).to_table(columns=["id", "embedding", "batch_id", "deleted"])
        batch = table["batch_id"].to_numpy()
        before = table.filter(pa.array(batch < (batch.max() + 1 if self._watched is None else self._watched)))
        return _newest(before, self._job.model.out_channels), _newest(table, self._job.model.out_channels)

    def compare(self, report: OnProgress) -> Comparison:
        verdict = verify(stored_plan(self.checkpoint))
        error = float("inf") if verdict.missing else verdict.max_relative_error
        return Comparison(verdict.vertices, verdict.edges, error)


def _newest(table: pa.Table, width: int) -> Snapshot:
    """The newest row of each id, without deleted ones, ordered by id."""
    ids: Ints = table["id"].to_numpy()
    order = np.lexsort((table["batch_id"].to_numpy(), ids))
    last = np.ones(len(order), bool)
    last[:-1] = ids[order][1:] != ids[order][:-1]
    kept = order[last]
    kept = kept[~table["deleted"].to_numpy()[kept]]
    column = table["embedding"].take(pa.array(kept)).combine_chunks()
    embeddings: Floats = column.flatten().to_numpy().reshape(-1, width)
    return Snapshot(ids[kept], embeddings)
