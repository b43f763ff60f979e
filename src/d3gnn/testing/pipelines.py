"""A pipeline on Spark beside the oracle: the same batches for both, compared after every one; needs pyspark.

Import it by its own name: those who test without Spark have no need of it.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow.parquet as pq

from d3gnn.events import Event, EventBatch, GraphSchema, Key, Reason
from d3gnn.kernel.reference import Oracle, embeddings, relative_error
from d3gnn.nn import GNN, GraphSAGE, PairHead
from d3gnn.pipeline import StreamingGNN
from d3gnn.spark.event_files import EventFiles
from d3gnn.spark.graph_log import EntryMeta, GraphLog
from d3gnn.spark.store import Store
from d3gnn.spark.supervise import Supervised
from d3gnn.spark.verify import held_embeddings, stored_plan, verify
from d3gnn.types import Floats

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["EventFiles", "PipelineRun", "TableWitness", "committed_rows", "newest_rows"]


def committed_rows(output: str | Path) -> list[dict[str, Any]]:
    """The rows of a table that a streaming query wrote, without those of attempts that came to nothing."""
    names = set()
    for log in (Path(output) / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:  # the first line is the format's version
            names.add(Path(unquote(urlparse(json.loads(line)["path"]).path)).name)
    rows: list[dict[str, Any]] = []
    for name in sorted(names):
        rows += pq.read_table(Path(output) / name).to_pylist()
    return rows


def newest_rows(output: str | Path) -> dict[Key, Any]:
    """The newest embedding of each id in such a table, as a user would keep it."""
    table: dict[Key, Any] = {}
    for row in sorted(committed_rows(output), key=lambda row: row["batch"]):
        if row["deleted"]:
            table.pop(row["id"], None)
        else:
            table[row["id"]] = row["embedding"]
    return table


class TableWitness:
    """Gives the oracle what it writes for a pipeline, and objects where the pipeline's table differs.

    After every batch, not at the end alone: values travel absolute, so that a later batch may mend what an
    earlier one has got wrong.
    """

    def __init__(
        self, files: EventFiles, schema: GraphSchema, model: GNN, *, tolerance: float = 1e-5
    ) -> None:
        self.files, self.model, self.tolerance = files, model, tolerance
        self.oracle = Oracle(schema.for_model(model.in_width), answers=isinstance(model.head, PairHead))
        self._ends: list[int] = []  # rows of all files up to each
        self._after: list[dict[Key, Floats]] = []  # the embeddings after each
        self._reasons: list[Counter[Reason]] = []

    def write(self, batch: EventBatch | Iterable[Event]) -> None:
        """One more batch of events, for both."""
        batch = EventBatch.of(batch)
        self.files.write(batch)
        self._reasons.append(Counter(self.oracle.apply(batch)))
        self._ends.append(len(batch) + (self._ends[-1] if self._ends else 0))
        self._after.append(embeddings(self.model, self.oracle))

    def check(self, output: str | Path, store: str | Path) -> None:
        """The newest row per id equals the oracle's embedding after each batch, and all files are in."""
        rows: dict[int, list[dict[str, Any]]] = {}
        for row in committed_rows(output):
            rows.setdefault(row["batch"], []).append(row)
        table: dict[Key, Any] = {}
        for batch, files in enumerate(self.check_log(store)):
            self._take(batch, table, rows.pop(batch, []))
            self._compare(f"after batch {batch}", table, self._after[files - 1] if files else {})
        assert not rows, f"there are rows of the batches {sorted(rows)}, which were never logged"

    def check_log(self, store: str | Path) -> list[int]:
        """Each file was logged once, as the oracle has judged it; how many were in after each batch."""
        log = GraphLog(Store(store))
        last = log.last()
        taken, files = 0, [0]
        for batch in range(0 if last is None else last + 1):
            meta = log.meta(batch)
            assert meta is not None, f"the log has no entry for batch {batch}"
            taken += meta.rows
            files.append(bisect_right(self._ends, taken))
            assert taken == [0, *self._ends][files[-1]], f"batch {batch} ends in the middle of a file"
            self._check_counts(meta, self._reasons[files[-1] - 1] if meta.rows else Counter())
        assert taken == self._ends[-1], f"{taken} events were taken in, of {self._ends[-1]}"
        return files[1:]

    def check_end(self, got: dict[Key, Any]) -> None:
        """These embeddings are those of the graph as it is now."""
        self._compare("at the end", got, self.oracle_embeddings())

    def oracle_embeddings(self) -> dict[Key, Floats]:
        """Of the graph as it is now."""
        return self._after[-1]

    def _check_counts(self, meta: EntryMeta, reasons: Counter[Reason]) -> None:
        """What became of the events of a batch."""
        expected = {
            "repeated": reasons[Reason.REPEATED],
            "late": reasons[Reason.LATE],
            "dead": sum(count for reason, count in reasons.items() if reason.is_dead),
        }
        got = {name: getattr(meta, name) for name in expected}
        assert got == expected, f"batch {meta.batch}: logged {got}, oracle {expected}"

    def _take(self, batch: int, table: dict[Key, Any], rows: list[dict[str, Any]]) -> None:
        """Keep the newest row per id; a batch has one row per id at most."""
        ids = Counter(row["id"] for row in rows)
        assert not rows or max(ids.values()) == 1, f"batch {batch} has two rows for one id: {ids}"
        for row in rows:
            if row["deleted"]:
                assert row["id"] in table, f"batch {batch}: tombstone for {row['id']}, which nobody has seen"
                del table[row["id"]]
            else:
                table[row["id"]] = row["embedding"]

    def _compare(self, when: str, got: dict[Key, Any], expected: dict[Key, Floats]) -> None:
        only_here, only_there = sorted(set(got) - set(expected)), sorted(set(expected) - set(got))
        assert not only_here, f"{when} the table has {only_here}, which the graph has not"
        assert not only_there, f"{when} the table lacks {only_there}"
        if expected:
            have = np.array([got[id] for id in expected], np.float32)
            error = relative_error(have, np.stack(list(expected.values())))
            assert error <= self.tolerance, f"{when} embeddings differ by {error:.2e}"


class PipelineRun:
    """A pipeline with its files, its checkpoint and its output table, all in one folder."""

    def __init__(
        self,
        spark: SparkSession,
        folder: str | Path,
        schema: GraphSchema,
        parts: int = 2,
        *,
        model: GNN | None = None,
        ids: str = "bigint",
        order: Sequence[str] = (),
        **more: Any,
    ) -> None:
        self.spark, self.folder = spark, Path(folder)
        self.output, self.checkpoint = self.folder / "out", self.folder / "checkpoint"
        model = model or GraphSAGE([schema.width, 8, 4], seed=3)
        settings = {"store": self.folder / "store", "arrays": self.folder / "arrays"} | more
        self.gnn = StreamingGNN(model, name=self.folder.name, parts=parts, schema=schema, **settings)
        columns = ("key", "feature", "value", *order)
        self.witness = TableWitness(EventFiles(self.folder / "in", ids, columns), schema, model)

    def write(self, *batches: EventBatch | Iterable[Event]) -> None:
        for batch in batches:
            self.witness.write(batch)

    def use(self, model: GNN) -> None:
        """From the next batch that is written on, another model."""
        self.gnn.model = self.witness.model = model

    def embeddings(self) -> DataFrame:
        """What the pipeline makes of the files, as a stream."""
        return self.gnn.transform(self.witness.files.read(self.spark))

    def start(self, **more: Any) -> Supervised:
        """Begin to take in all that is there, into the table."""
        events = self.witness.files.read(self.spark)
        settings: dict[str, Any] = {"trigger": {"availableNow": True}, "restarts": 0} | more
        return self.gnn.start(events, self.output, checkpoint=self.checkpoint, **settings)

    def go(self, **more: Any) -> StreamingQuery:
        """Take in all that is there."""
        running = self.start(**more)
        running.await_termination()
        return running.query

    def begin(self, writer: DataStreamWriter, **trigger: Any) -> StreamingQuery:
        """Start a query of one's own on the run's checkpoint, for all that is there unless told otherwise."""
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def check(self) -> None:
        """The table equals the oracle after every batch, and what is held equals a recomputation."""
        self.witness.check(self.output, str(self.gnn.store))
        self.check_held()

    def check_drained(self) -> None:
        """For windows: nothing waits, and what is held and what came out at last equal the oracle."""
        assert self.gnn.pending() == 0
        self.check_held()
        self.witness.check_end(newest_rows(self.output))

    def check_held(self) -> None:
        """Each file was applied once, and the arrays hold the oracle's embeddings, whatever the output."""
        store, oracle = str(self.gnn.store), self.witness.oracle
        self.witness.check_log(store)
        plan = stored_plan(store, arrays=self.gnn.arrays)
        self.witness.check_end(held_embeddings(plan, oracle.vertices))
        found = verify(plan)
        assert (found.vertices, found.edges) == (len(oracle.vertices), len(oracle.edges()))
