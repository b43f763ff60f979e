"""Recorded events come at their times, and again the same after a restart."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from d3gnn.events import EventBatch
from d3gnn.sources.replay import ReplayReader, replay_stream, write_recording


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "events.arrow"
    write_recording(EventBatch.edges(np.arange(100), np.arange(100) + 1).to_arrow(), path)
    return path


def at(monkeypatch: pytest.MonkeyPatch, now: float) -> None:
    monkeypatch.setattr("d3gnn.sources.replay.time.time", lambda: now)


def test_events_come_when_they_are_due(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ReplayReader(str(recording), 10.0, 1000.0)
    start = reader.initialOffset()
    at(monkeypatch, 999.0)
    assert reader.read(start)[1] == start
    at(monkeypatch, 1002.05)
    rows, end = reader.read(start)
    (batch,) = rows
    assert end == {"event": 20}
    assert batch.column("src").to_pylist() == list(range(20))
    assert batch.column("arrival").to_pylist()[::10] == [1_000_000_000, 1_001_000_000]
    at(monkeypatch, 1_000_000.0)
    rows, last = reader.read(end)
    assert last == {"event": 100}
    assert sum(batch.num_rows for batch in rows) == 80
    assert reader.read(last)[1] == last


def test_the_same_offsets_give_the_same_rows(recording: Path) -> None:
    first, again = (ReplayReader(str(recording), 50.0, 5.0) for _ in range(2))
    one, two = ([*r.readBetweenOffsets({"event": 7}, {"event": 30})] for r in (first, again))
    assert one == two
    assert [*first.readBetweenOffsets({"event": 7}, {"event": 7})] == []


def test_an_arrival_of_its_own_is_replaced(tmp_path: Path) -> None:
    table = pa.table({"src": [1], "dst": [2], "arrival": [3]})
    write_recording(table, tmp_path / "x.arrow")
    reader = ReplayReader(str(tmp_path / "x.arrow"), 1.0, 10.0)
    (batch,) = reader.readBetweenOffsets({"event": 0}, {"event": 1})
    assert batch.column("arrival").to_pylist() == [10_000_000]


def test_a_rate_that_is_none(recording: Path, spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="rate=0"):
        replay_stream(spark, recording, 0)


def test_in_a_query(recording: Path, spark: SparkSession, tmp_path: Path) -> None:
    seen: list[list[tuple[int, int]]] = []

    def collect(rows: DataFrame, batch: int) -> None:
        now = time.time()
        found = sorted((row.src, row.arrival) for row in rows.collect())
        assert all(arrival <= now * 1e6 for _, arrival in found)
        seen.append(found)

    events = replay_stream(spark, recording, 200.0, time.time() + 0.5)
    query = (
        events.writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    deadline = time.monotonic() + 30
    while sum(map(len, seen)) < 100 and time.monotonic() < deadline:
        time.sleep(0.05)
    query.stop()
    rows = [row for batch in seen for row in batch]
    assert [src for src, _ in rows] == list(range(100))
    assert np.diff([arrival for _, arrival in rows]).tolist() == pytest.approx([5000] * 99, abs=1)
