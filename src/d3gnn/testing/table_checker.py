"""Compare the output table and the graph log of a Spark pipeline with the oracle."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow.parquet as pq

from d3gnn.events import Event, EventBatch, GraphSchema, Key, Reason
from d3gnn.nn import GNN, PairHead
from d3gnn.oracle import Oracle, embeddings, relative_error
from d3gnn.sources.event_files import EventFiles
from d3gnn.store.entry import EntryMeta
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.store import Store
from d3gnn.types import Floats

__all__ = ["EventFiles", "TableChecker", "committed_files", "committed_rows", "newest_rows"]


def committed_files(output: str | Path) -> list[Path]:
    """The committed Parquet files of a table that a streaming query wrote to `output`."""
    names = set()
    for log in (Path(output) / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:  # the first line is the format version
            names.add(Path(unquote(urlparse(json.loads(line)["path"]).path)).name)
    return [Path(output) / name for name in sorted(names)]


def committed_rows(output: str | Path) -> list[dict[str, Any]]:
    """The committed rows of a table that a streaming query wrote to `output` as Parquet.

    Files of failed attempts are ignored, because they are not in the sink's metadata.

    Example:
        >>> rows = committed_rows("embeddings")  # doctest: +SKIP
        >>> rows[0]["id"], rows[0]["batch_id"]  # doctest: +SKIP
        ('ann', 0)
    """
    return [row for file in committed_files(output) for row in pq.read_table(file).to_pylist()]


def newest_rows(output: str | Path) -> dict[Key, Any]:
    """The newest embedding of each id in such a table, without deleted ids.

    Example:
        >>> newest_rows("embeddings")["ann"]  # doctest: +SKIP
        [0.5, 0.25]
    """
    table: dict[Key, Any] = {}
    for row in sorted(committed_rows(output), key=lambda row: row["batch_id"]):
        if row["deleted"]:
            table.pop(row["id"], None)
        else:
            table[row["id"]] = row["embedding"]
    return table


class TableChecker:
    """Write batches for a pipeline and for the oracle, and raise AssertionError if the output table differs.

    The table is compared after every batch, not only at the end: values are sent absolute, so a later batch
    can correct an error of an earlier one.

    Args:
        files: Where to write the batches; the pipeline reads this folder.
        schema: The schema of the graph.
        model: The model of the pipeline.
        tolerance: Largest relative error of an embedding.

    Example:
        >>> checker = TableChecker(EventFiles("in"), schema, model)  # doctest: +SKIP
        >>> checker.write([edge(1, 2, time=1)])  # doctest: +SKIP
        >>> # run a pipeline over checker.files.read(spark) into "out"
        >>> checker.check("out", "checkpoint/d3gnn")  # doctest: +SKIP
    """

    def __init__(
        self, files: EventFiles, schema: GraphSchema, model: GNN, *, tolerance: float = 1e-5
    ) -> None:
        self.files, self.model, self.tolerance = files, model, tolerance
        self.oracle = Oracle(schema.for_model(model.in_channels), answers=isinstance(model.head, PairHead))
        self._ends: list[int] = []  # number of rows up to the end of each file
        self._after: list[dict[Key, Floats]] = []  # embeddings after each file
        self._reasons: list[Counter[Reason]] = []

    def write(self, batch: EventBatch | Iterable[Event]) -> None:
        """Write one batch of events to a file, and apply it to the oracle."""
        batch = EventBatch.of(batch)
        self.files.write(batch)
        self._reasons.append(Counter(self.oracle.apply(batch)))
        self._ends.append(len(batch) + (self._ends[-1] if self._ends else 0))
        self._after.append(embeddings(self.model, self.oracle))

    def check(self, output: str | Path, store: str | Path) -> None:
        """Compare the newest row per id with the oracle after each batch; all files must be processed."""
        rows: dict[int, list[dict[str, Any]]] = {}
        for row in committed_rows(output):
            rows.setdefault(row["batch_id"], []).append(row)
        table: dict[Key, Any] = {}
        for batch, files in enumerate(self.check_log(store)):
            self._record(batch, table, rows.pop(batch, []))
            self._compare(f"after batch {batch}", table, self._after[files - 1] if files else {})
        assert not rows, f"the table has rows of batches {sorted(rows)}, which are not in the graph log"

    def check_log(self, store: str | Path) -> list[int]:
        """Check that each file was logged once, with the counts of the oracle.

        Returns the number of files processed after each batch.
        """
        log = GraphLog(Store(store))
        last = log.last()
        rows, files = 0, [0]
        for batch in range(0 if last is None else last + 1):
            meta = log.meta(batch)
            assert meta is not None, f"the log has no entry for batch {batch}"
            rows += meta.rows
            files.append(bisect_right(self._ends, rows))
            assert rows == [0, *self._ends][files[-1]], f"batch {batch} ends in the middle of a file"
            self._check_counts(meta, self._reasons[files[-1] - 1] if meta.rows else Counter())
        assert rows == self._ends[-1], f"{rows} of {self._ends[-1]} events were processed"
        return files[1:]

    def check_end(self, got: dict[Key, Any]) -> None:
        """Compare embeddings with those of the oracle after the last batch."""
        self._compare("at the end", got, self.oracle_embeddings())

    def oracle_embeddings(self) -> dict[Key, Floats]:
        """The embeddings after the last batch."""
        return self._after[-1]

    def _check_counts(self, meta: EntryMeta, reasons: Counter[Reason]) -> None:
        """Compare the counts of repeated and late events and dead letters of a batch."""
        expected = {
            "repeated": reasons[Reason.REPEATED],
            "late": reasons[Reason.LATE],
            "dead": sum(count for reason, count in reasons.items() if reason.is_dead),
        }
        got = {name: getattr(meta, name) for name in expected}
        assert got == expected, f"batch {meta.batch}: logged {got}, oracle {expected}"

    def _record(self, batch: int, table: dict[Key, Any], rows: list[dict[str, Any]]) -> None:
        """Apply output rows to the table; a batch may have only one row per id."""
        ids = Counter(row["id"] for row in rows)
        assert not rows or max(ids.values()) == 1, f"batch {batch} has two rows for one id: {ids}"
        for row in rows:
            if row["deleted"]:
                assert row["id"] in table, f"batch {batch}: tombstone for unknown id {row['id']}"
                del table[row["id"]]
            else:
                table[row["id"]] = row["embedding"]

    def _compare(self, when: str, got: dict[Key, Any], expected: dict[Key, Floats]) -> None:
        extra, missing = sorted(set(got) - set(expected)), sorted(set(expected) - set(got))
        assert not extra, f"{when} the table has {extra}, which are not in the graph"
        assert not missing, f"{when} the table has no rows for {missing}"
        if expected:
            actual = np.array([got[id] for id in expected], np.float32)
            error = relative_error(actual, np.stack(list(expected.values())))
            assert error <= self.tolerance, f"{when} embeddings differ by {error:.2e}"
