"""The control source reads commands in order, exactly once, and causes no batch without one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from d3gnn.sources import control
from d3gnn.sources.control import ControlReader, control_stream
from d3gnn.store.control import command, command_numbers
from d3gnn.store.store import Store, StoreError


class Sink:
    """Collects the rows of each batch; fails while `fails` is set."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[tuple[str, int]]]] = []
        self.fails = False

    def __call__(self, df: DataFrame, batch: int) -> None:
        self.batches.append((batch, sorted((row.kind, row.number) for row in df.collect())))
        if self.fails:
            raise RuntimeError("set to fail")

    @property
    def rows(self) -> list[tuple[str, int]]:
        return [row for _, rows in self.batches for row in rows]


def start(df: DataFrame, sink: Sink, folder: Path, **trigger: Any) -> StreamingQuery:
    writer = df.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**trigger).start()


def wait_for(happened: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def idle_time() -> None:
    time.sleep(0.7)


class Clock:
    """The time for readers in this process; it changes only when a test sets it."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def time_ns(self) -> int:
        return int(self.seconds * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(control, "time", clock)
    return clock


# ------------------------------------------------------------------ its clock


def test_the_clock_goes_on_when_the_system_clock_is_set_back(clock: Clock) -> None:
    second, steady = 1_000_000, control._Clock()
    assert steady.at_least(0) == 1000 * second
    clock.seconds = 400.0
    assert steady.at_least(0) == 1000 * second
    clock.seconds = 403.0
    assert steady.at_least(0) == 1003 * second
    clock.seconds = 1005.0
    assert steady.at_least(0) == 1005 * second, "it has caught up"


def test_a_deadline_tells_a_new_process_that_the_system_clock_was_set_back(clock: Clock) -> None:
    second, steady = 1_000_000, control._Clock()
    assert steady.at_least(5000 * second) == 5000 * second
    clock.seconds += 2
    assert steady.at_least(5000 * second) == 5002 * second


# ------------------------------------------------------------------ commands


def test_commands_are_numbered(tmp_path: Path) -> None:
    assert [command(tmp_path / "new" / "folder", "tick") for _ in range(3)] == [1, 2, 3]


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="choose one of refresh, drain, tick"):
        command(tmp_path, "explode")  # type: ignore[arg-type]


def test_no_command_is_lost_when_several_processes_send_them(tmp_path: Path) -> None:
    code = "import sys; from d3gnn.store.control import command\n"
    code += "print(*[command(sys.argv[1], 'tick') for _ in range(40)])"
    run = [sys.executable, "-c", code, str(tmp_path)]
    processes = [subprocess.Popen(run, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    numbers = [int(number) for process in processes for number in process.communicate()[0].split()]
    assert sorted(numbers) == list(range(1, 81))


# ------------------------------------------------------------------ the reader


def test_the_offset_stays_without_commands(tmp_path: Path) -> None:
    reader = ControlReader(str(tmp_path / "absent"))
    rows, end = reader.read(reader.initialOffset())
    assert (list(rows), end) == ([], reader.initialOffset())


def test_rows_follow_from_the_offsets_alone(tmp_path: Path) -> None:
    command(tmp_path, "refresh")
    command(tmp_path, "drain")
    first = ControlReader(str(tmp_path))
    start = first.initialOffset()
    rows, end = first.read(start)
    assert list(rows) == [("refresh", 1), ("drain", 2)]
    assert end["number"] == 2
    elsewhere = ControlReader(str(tmp_path / "elsewhere"))
    assert list(elsewhere.readBetweenOffsets(start, end)) == [("refresh", 1), ("drain", 2)]
    assert list(elsewhere.readBetweenOffsets(end, end)) == []


def test_files_that_are_no_commands_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    command(tmp_path, "refresh")
    (tmp_path / "secret").write_text("drain")
    planted: dict[str, Callable[[Path], Any]] = {
        "000000000002": lambda path: path.write_text("explode"),
        "000000000003": lambda path: path.symlink_to(tmp_path / "secret"),
        "000000000004": lambda path: path.write_bytes(b"\xff\0"),
        "9": lambda path: path.write_text("drain"),
        "9999999999999999999": lambda path: path.write_text("drain"),
    }
    if os.geteuid() == 0:
        planted["000000000005"] = lambda path: path.write_text("drain")
    for name, plant in planted.items():
        plant(tmp_path / name)
    if os.geteuid() == 0:
        os.chown(tmp_path / "000000000005", 65534, 65534)
    number = command(tmp_path, "drain")
    reader = ControlReader(str(tmp_path))
    with caplog.at_level("WARNING", "d3gnn"):
        rows, end = reader.read(reader.initialOffset())
        assert list(rows) == [("refresh", 1), ("drain", number)]
        assert list(ControlReader(str(tmp_path)).read(end)[0]) == []
    for name in planted:
        start = f"the file {tmp_path / name} is ignored"
        assert [record.getMessage().startswith(start) for record in caplog.records].count(True) == 1
    (tmp_path / "999999999999").touch()
    with pytest.raises(StoreError, match="999999999999, which no command made: delete it"):
        command(tmp_path, "drain")


@pytest.mark.usefixtures("clock")
def test_committed_commands_are_deleted_but_numbers_continue(tmp_path: Path) -> None:
    for _ in range(3):
        command(tmp_path, "tick")
    reader = ControlReader(str(tmp_path))
    _, end = reader.read(reader.initialOffset())
    reader.commit(end)
    assert [path.name for path in tmp_path.glob("0*")] == ["000000000003"]
    assert command(tmp_path, "drain") == 4
    rows, _ = reader.read(end)
    assert list(rows) == [("drain", 4)]


def test_available_now_ends_at_the_last_command_before_its_start(tmp_path: Path) -> None:
    command(tmp_path, "tick")
    reader = ControlReader(str(tmp_path))
    reader.prepareForTriggerAvailableNow()
    command(tmp_path, "tick")
    rows, end = reader.read(reader.initialOffset())
    assert list(rows) == [("tick", 1)]
    rows, same = reader.read(end)
    assert (list(rows), same) == ([], end)


def test_a_slow_folder_is_listed_less_often(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(tmp_path, "tick")
    looks: list[float] = []

    def slow(store: Store) -> list[int]:
        looks.append(clock.seconds)
        clock.seconds += 0.02
        return command_numbers(store)

    monkeypatch.setattr(control, "command_numbers", slow)
    reader = ControlReader(str(tmp_path))
    _, end = reader.read(reader.initialOffset())
    command_while_it_rests = command(tmp_path, "drain")
    looks.clear()
    for _ in range(50):
        assert reader.read(end)[1] == end
    assert not looks
    clock.seconds += 0.02 * 20
    rows, _ = reader.read(end)
    assert list(rows) == [("drain", command_while_it_rests)]


# ------------------------------------------------------------------ in Spark


def test_with_other_streams_available_now_goes_batch_by_batch_and_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    for i in range(3):
        (folder / f"{i}.csv").write_text(f"event,{i}\n")
    command(tmp_path / "control", "drain")
    events = spark.readStream.schema(control.SCHEMA).option("maxFilesPerTrigger", 1).csv(str(folder))
    both = events.union(control_stream(spark, tmp_path / "control"))
    sink = Sink()
    for _ in range(2):
        query = start(both, sink, tmp_path, availableNow=True)
        assert query.awaitTermination(30)
    assert len(sink.batches) == 3
    assert sorted(sink.rows) == [("drain", 1), ("event", 0), ("event", 1), ("event", 2)]


def test_a_command_causes_one_batch_and_no_command_none(spark: SparkSession, tmp_path: Path) -> None:
    commands, sink = tmp_path / "control", Sink()
    query = start(control_stream(spark, commands), sink, tmp_path, processingTime="0 seconds")
    try:
        wait_for(lambda: len(sink.batches) == 1)  # Spark's first batch, which is empty
        idle_time()
        assert sink.batches == [(0, [])]
        command(commands, "refresh")
        wait_for(lambda: len(sink.batches) == 2)
        idle_time()
        assert sink.batches[1:] == [(1, [("refresh", 1)])]
    finally:
        query.stop()


def test_a_restart_replays_uncommitted_commands_only(spark: SparkSession, tmp_path: Path) -> None:
    commands, sink = tmp_path / "control", Sink()
    command(commands, "refresh")
    start(control_stream(spark, commands), sink, tmp_path, availableNow=True).awaitTermination(30)
    command(commands, "drain")
    command(commands, "tick")
    sink.fails = True
    with pytest.raises(StreamingQueryException, match="set to fail"):
        start(control_stream(spark, commands), sink, tmp_path, availableNow=True).awaitTermination(30)
    command(commands, "refresh")
    for path in commands.glob("0*2"):
        path.unlink()  # the offset holds the rows: the files are not read again
    sink.fails = False
    start(control_stream(spark, commands), sink, tmp_path, availableNow=True).awaitTermination(30)
    again = (1, [("drain", 2), ("tick", 3)])
    assert sink.batches == [(0, [("refresh", 1)]), again, again, (2, [("refresh", 4)])]
