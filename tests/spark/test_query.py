"""What `StreamingGNN.start` returns answers like pyspark's StreamingQuery."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from d3gnn import StreamingGNN, from_edges, latest
from d3gnn.nn import GraphSAGE
from d3gnn.spark.restarting import RestartingQuery


def edges(spark: SparkSession, folder: Path) -> DataFrame:
    folder.mkdir()
    (folder / "a.csv").write_text("ann,bob,2026-01-01 10:00:00\nbob,cho,2026-01-01 10:00:01\n")
    return from_edges(
        spark.readStream.schema("src string, dst string, ts timestamp").csv(str(folder)), ts="ts"
    )


def test_start_returns_a_query_with_the_attributes_of_a_streaming_query() -> None:
    public = {name for name in vars(StreamingQuery) if not name.startswith("_")}
    assert public - {"rawProgress"} <= set(dir(RestartingQuery))


class FailedQuery:
    """Ended by an error that a restart cures, or runs until it is stopped."""

    def __init__(self, fails: bool) -> None:
        self.fails, self.isActive, self.stopped = fails, not fails, Event()

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        if self.fails:
            raise RuntimeError("Python worker exited unexpectedly")
        return self.stopped.wait(timeout)

    def stop(self) -> None:
        self.isActive = False
        self.stopped.set()


def test_threads_that_see_one_failure_restart_once() -> None:
    begun: list[FailedQuery] = []

    def begin() -> Any:
        sleep(0.1)  # starting takes time, in which other threads look
        begun.append(FailedQuery(fails=not begun))
        return begun[-1]

    query = RestartingQuery(begin, restarts=3)
    with ThreadPoolExecutor(4) as threads:
        looks = [threads.submit(lambda: query.isActive) for _ in range(4)]
        assert all(look.result() for look in looks)
    assert (query.restarted, len(begun)) == (1, 2)
    query.stop()


def test_a_stop_during_a_restart_stops_the_new_query() -> None:
    begun: list[FailedQuery] = []
    restarting = Event()

    def begin() -> Any:
        if begun:
            restarting.set()
            sleep(0.1)
        begun.append(FailedQuery(fails=not begun))
        return begun[-1]

    query = RestartingQuery(begin, restarts=3)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(query.awaitTermination)
        restarting.wait()
        query.stop()
        waiting.result(timeout=10)
    assert [each.isActive for each in begun] == [False, False]


def test_one_pipeline_starts_on_two_checkpoints(spark: SparkSession, tmp_path: Path) -> None:
    events = edges(spark, tmp_path / "edges")
    gnn = StreamingGNN(GraphSAGE(2, 4, 1, seed=1), name="twice")
    runs = [gnn.start(events, tmp_path / f"out{i}", checkpoint=tmp_path / f"checkpoint{i}") for i in range(2)]
    try:
        first, second = runs
        assert (first.name, second.name) == ("twice", "twice-2")
        for run in runs:
            run.processAllAvailable()
        assert first.isActive
        assert first.exception() is None
        assert first.id != second.id
        assert {query.id for query in spark.streams.active} >= {first.id, second.id}
        assert first.status["message"]
        assert first.lastProgress.batchId >= 0
        assert {str(progress.runId) for progress in first.recentProgress} == {first.runId}
        assert first.awaitTermination(1) is False
        assert (first.restarts, first.restarted, first.pending()) == (3, 0, 0)
        assert "twice" in repr(first)
        first.refresh()
        before = first.lastProgress.batchId
        while first.lastProgress.batchId == before:
            first.processAllAvailable()
    finally:
        for run in runs:
            run.stop()
    assert first.awaitTermination(1) is True
    assert first.awaitTermination() is None
    assert not first.status["isTriggerActive"]
    for i in range(2):
        assert (tmp_path / f"checkpoint{i}" / "graph" / "log").is_dir()
        assert sorted(row.id for row in latest(spark, str(tmp_path / f"out{i}")).collect()) == [
            "ann",
            "bob",
            "cho",
        ]


def test_commands_need_a_store(tmp_path: Path) -> None:
    gnn = StreamingGNN(GraphSAGE(2, 4, 1))
    for command in (gnn.refresh, gnn.drain, gnn.pending):
        with pytest.raises(ValueError, match="query that start"):
            command()
    assert StreamingGNN(GraphSAGE(2, 4, 1), store=tmp_path / "store").pending() == 0
    with pytest.raises(ValueError, match="needs store="):
        StreamingGNN(GraphSAGE(2, 4, 1), arrays=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"once": True}, ValueError, "availableNow=True"),
        ({"continuous": "1 second"}, ValueError, "processingTime"),
        ({"realTime": "1 second"}, ValueError, "processingTime"),
        ({"trigger": {"availableNow": True}}, TypeError, "no argument 'trigger'"),
        ({"availableNow": True, "processingTime": "1 second"}, ValueError, "one trigger"),
        ({"output": None}, ValueError, "output= is missing"),
    ],
)
def test_wrong_arguments_are_named(
    spark: SparkSession, tmp_path: Path, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    events = edges(spark, tmp_path / "edges")
    settings = {"output": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"} | arguments
    with pytest.raises(error, match=message):
        StreamingGNN(GraphSAGE(2, 4, 1)).start(events, **settings)


def test_a_batch_dataframe_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    events = from_edges(spark.createDataFrame([(1, 2)], "src int, dst int"))
    with pytest.raises(ValueError, match=r"not a streaming DataFrame: .*spark\.readStream"):
        StreamingGNN(GraphSAGE(2, 4, 1)).start(events, tmp_path / "out", checkpoint=tmp_path / "checkpoint")


class FakeQuery:
    """A query that ends with an error as soon as it starts."""

    id, name = "id", "fake"
    isActive = False  # noqa: N815

    def __init__(self, run: int, error: str | None) -> None:
        self.runId, self._error = f"run {run}", error

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        if self._error is not None:
            raise RuntimeError(self._error)
        return None if timeout is None else True

    def exception(self) -> str | None:
        return self._error

    processAllAvailable = awaitTermination  # noqa: N815


def restarting(*errors: str | None, restarts: int = 3) -> RestartingQuery:
    """A query whose runs end with these errors, one after the other."""
    runs = iter(enumerate(errors))
    return RestartingQuery(lambda: FakeQuery(*next(runs)), restarts)  # type: ignore[arg-type, return-value]


LOST = "Python worker exited unexpectedly (crashed)"


def test_a_lost_process_restarts_the_query_in_every_method() -> None:
    looks: dict[str, Any] = {
        "awaitTermination": lambda query: query.awaitTermination(),
        "processAllAvailable": lambda query: query.processAllAvailable(),
        "isActive": lambda query: query.isActive,
        "exception": lambda query: query.exception(),
    }
    for look in looks.values():
        query = restarting(LOST, None)
        assert look(query) in (None, False)
        assert (query.restarted, query.runId, query.exception()) == (1, "run 1", None)


def test_other_errors_and_too_many_losses_are_raised() -> None:
    with pytest.raises(RuntimeError, match="no such column"):
        restarting("no such column").awaitTermination()
    query = restarting(LOST, LOST, LOST, restarts=2)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        query.awaitTermination()
    assert query.restarted == 2
    assert str(query.exception()) == LOST
