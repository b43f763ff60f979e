"""The control source: a stream of commands that is always unioned with the events.

A command is a small file in a folder: its name is its number, its content its kind. The source's offset holds
the number of the last command, and with it the rows of the batch that it ends, so that a replay gives the
same rows whatever has become of the files. It advances only when there is a command, or when the query has
been idle for `keep_warm_ms`, or when something that waits in a window is due, or when the arrays are lost or
were made with another model, say: otherwise it causes no batch. With the trigger availableNow, it asks for
the end (`finish`) as long as anything waits.

It is a Python data source, which is cheaper than a file stream over the same folder (2 busy cores, medians:
1 ms against 22 for every look, and 12 ms less to plan a batch with a command). The rows come out of the
process that looks for them, so that no Python task has to fetch them. Spark makes one batch when a query
starts on a new checkpoint, whether there is a command or not.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, get_args

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from d3gnn.spark.board import read_board
from d3gnn.spark.made_with import MadeWith
from d3gnn.spark.store import Store

__all__ = [
    "FORMAT",
    "SCHEMA",
    "ControlReader",
    "ControlSource",
    "Kind",
    "Watched",
    "command",
    "control_stream",
]

FORMAT = "d3gnn_control"
SCHEMA = "kind string, number bigint"
Kind = Literal["refresh", "drain", "tick", "finish"]
Path = str | os.PathLike[str]
_KINDS = get_args(Kind)
#: After a look it rests for so many times as long, so that far folders are looked at less often.
_REST = 20
_LONGEST_REST = 1.0

Offset = dict[str, Any]
_Rows = Iterator[tuple[str, int]]


def command(path: Path, kind: Kind) -> int:
    """Give a command to the query that listens at `path`, from any process; the command's number.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> command(folder, "refresh"), command(folder, "drain")
    (1, 2)
    """
    if kind not in _KINDS:
        raise ValueError(f"kind={kind!r}: choose one of {', '.join(_KINDS)}")
    store = Store(path)
    while True:
        # A number exists only after the one before it, so that no command turns up behind the reader.
        number = max(_numbers(store), default=0) + 1
        if store.create(_name(number), kind.encode()):
            return number


def control_stream(
    spark: SparkSession,
    path: Path,
    keep_warm_ms: int | None = None,
    watched: Watched | None = None,
) -> DataFrame:
    """The commands given at `path`, as a stream of (kind, number) for one query alone.

    With `keep_warm_ms`, a query that has made no batch for so long gets a row (tick, number of the last
    command), so that its Python workers stay alive; not with the trigger availableNow, which must end. It
    also gets one when something is due in the pipeline that is `watched`, or has to be made anew.
    """
    if keep_warm_ms is not None and keep_warm_ms <= 0:
        raise ValueError(f"keep_warm_ms={keep_warm_ms}: a positive number of milliseconds, or None")
    spark.dataSource.register(ControlSource)
    reader = spark.readStream.format(FORMAT).option("path", os.fspath(path))
    if keep_warm_ms is not None:
        reader = reader.option("keep_warm_ms", keep_warm_ms)
    if watched is not None:
        reader = reader.option("watched", json.dumps(watched))
    return reader.load()


class Watched(NamedTuple):
    """A pipeline, as far as the control source looks at it."""

    #: Folder of its arrays on the host, and what they are to be made with.
    arrays: str
    made_with: MadeWith
    windowed: bool
    #: Whether time alone makes due what waits.
    by_time: bool = True


class ControlSource(DataSource):
    """What Spark knows as `d3gnn_control`, with options `path`, `keep_warm_ms` and `watched`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def simpleStreamReader(self, schema: StructType) -> ControlReader:  # noqa: N802
        keep_warm = self.options.get("keep_warm_ms")
        seconds = None if keep_warm is None else int(keep_warm) / 1000
        watched = None
        if "watched" in self.options:
            arrays, made_with, *rest = json.loads(self.options["watched"])
            watched = Watched(arrays, MadeWith(*made_with), *rest)
        return ControlReader(self.options["path"], seconds, watched)


class ControlReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """Looks for commands, in one Python process beside the driver.

    An offset holds `number`, that of the last command; `ticks`, how often the query was kept warm; and
    `rows`, what came in with this offset.
    """

    def __init__(self, path: str, keep_warm: float | None = None, watched: Watched | None = None) -> None:
        self._store, self._pipeline = Store(path), Store(path.rpartition("/")[0])
        self._keep_warm, self._watched = keep_warm, watched
        self._is_as_planned = False
        self._rests_until = 0.0
        self._last_batch = time.monotonic()
        self._until: int | None = None  # availableNow: the last command that counts
        self._cleaned = 0

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"number": 0, "ticks": 0, "rows": []}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = max(_numbers(self._store), default=0)

    def read(self, start: Offset) -> tuple[_Rows, Offset]:
        seen, ticks = start["number"], start["ticks"]
        rows = self._new_rows(seen)
        if not rows and self._waits():
            rows, ticks = [("tick" if self._until is None else "finish", seen)], ticks + 1
        if not rows and self._is_cold():
            rows, ticks = [("tick", seen)], ticks + 1
        if not rows:
            return iter([]), start
        self._last_batch = time.monotonic()
        return iter(rows), {"number": rows[-1][1], "ticks": ticks, "rows": [list(row) for row in rows]}

    def readBetweenOffsets(self, start: Offset, end: Offset) -> _Rows:  # noqa: N802
        return iter([] if start == end else [(kind, number) for kind, number in end["rows"]])

    def commit(self, end: Offset) -> None:
        """Spark says so of every batch, whichever source caused it."""
        self._last_batch = time.monotonic()
        if end["number"] > self._cleaned:
            self._cleaned = end["number"]
            for number in _numbers(self._store):
                if number < self._cleaned:  # the newest stays, as the next number follows from it
                    self._store.delete(_name(number))

    def _new_rows(self, seen: int) -> list[tuple[str, int]]:
        begun = time.monotonic()
        if self._until is None and begun < self._rests_until:
            return []
        until = float("inf") if self._until is None else self._until
        new = [number for number in _numbers(self._store) if seen < number <= until]
        took = time.monotonic() - begun
        self._rests_until = begun + min(_REST * took, _LONGEST_REST)
        return [((self._store.read(_name(number)) or b"").decode(), number) for number in new]

    def _waits(self) -> bool:
        """Whether something in a window is due; or, in a run that must end, waits at all; or whether the
        arrays have to be made anew, which any batch does.
        """
        watched = self._watched
        if watched is None:
            return False
        if not self._is_as_planned:
            query = self._pipeline.owner()
            if query and MadeWith.peek(f"{watched.arrays}/{query}/partition/0") != watched.made_with:
                return True
            self._is_as_planned = bool(query)  # and stays so, as long as this run goes on
        if not watched.windowed:
            return False
        waiting = read_board(watched.arrays)
        if waiting is None:  # it went with the arrays, and with them what was pending: the log has everything
            return bool(self._pipeline.owner())
        if not waiting.pending:
            return False
        if self._until is not None:
            return True
        return watched.by_time and waiting.look_at <= time.time_ns() // 1000

    def _is_cold(self) -> bool:
        if self._keep_warm is None or self._until is not None:
            return False
        return time.monotonic() - self._last_batch >= self._keep_warm


def _name(number: int) -> str:
    return f"{number:012d}"


def _numbers(store: Store) -> list[int]:
    """The numbers of the commands that are there, in order; other files are none of ours."""
    return [int(name) for name in store.list("") if name.isdecimal()]
