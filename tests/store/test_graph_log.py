"""The graph log returns what was stored, detects gaps, and is readable as a table by Spark."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings

from d3gnn import GraphSchema
from d3gnn.events import (
    Event,
    EventBatch,
    Key,
    Reason,
    delete_vertex,
    edge,
    edge_feature,
    feature,
    label,
    vertex,
)
from d3gnn.events.keys import keys_of
from d3gnn.kernel.log import LogEntry
from d3gnn.kernel.operators import Partition
from d3gnn.oracle import Oracle
from d3gnn.store.entry import EntryMeta
from d3gnn.store.graph_log import GraphLog, LogGap, ReplayMismatch
from d3gnn.store.input_hash import input_hash
from d3gnn.store.store import Store, StoreError
from d3gnn.testing import event_batches, schemas

PARTS = 3
PLAIN = GraphSchema(features={"x": 1})
NO_ENTRY = LogEntry(EventBatch.of([]), np.zeros(0, np.int32))


def open_log(
    folder: Path | str, ids: str = "int", keys: str = "int", schema: GraphSchema = PLAIN
) -> GraphLog:
    store = Store(folder)
    store.fix({"ids": ids, "keys": keys, "parts": PARTS, "schema": schema.to_dict()})
    return GraphLog(store)


def write(
    log: GraphLog, schema: GraphSchema, stream: Iterable[Iterable[Event]]
) -> tuple[Partition, list[LogEntry]]:
    """Log a stream as the pipeline does; return the Partition operator and the entries."""
    partition, entries = Partition(schema, PARTS), []
    for b, events in enumerate(stream):
        batch = EventBatch.of(events)
        log.check_next(b)
        result = partition.process(batch, clock=1)
        assert log.create(b, result.entry, EntryMeta.of(b, batch, result.status))
        entries.append(result.entry)
    return partition, entries


#: Those of the event format in a store without lifetimes.
COLUMNS = [name for name in Event._fields if name != "ttl"]


def rows(entry: LogEntry) -> list[tuple[Any, ...]]:
    """An entry as plain values, with the arrivals of the entry."""
    events = entry.events if entry.arrival is None else replace(entry.events, arrival=entry.arrival)
    table = replace(events, origin=None).to_arrow()
    columns = [table[c].to_pylist() if c in table.column_names else [None] * len(entry) for c in COLUMNS]
    return list(zip(*columns, entry.part.tolist(), strict=True))


def graph(oracle: Oracle) -> dict[str, Any]:
    """The oracle's state, times included."""
    return {
        "features": oracle._features,
        "copies": oracle._copies,
        "edge features": {edge: values for edge, values in oracle._edge_features.items() if values},
        "labels": {id: values for id, values in oracle._labels.items() if values},
    }


def applied(schema: GraphSchema, stream: Iterable[Iterable[Event]]) -> dict[str, Any]:
    oracle = Oracle(schema)
    for events in stream:
        oracle.apply(events)
    return graph(oracle)


def replayed(schema: GraphSchema, entries: Iterable[LogEntry]) -> dict[str, Any]:
    """The graph that a log creates, row by row; every event must apply, but for the deletes with which a
    snapshot begins.
    """
    oracle, begun = Oracle(schema), False
    for entry in entries:
        for i in range(len(entry)):
            result = oracle.apply(entry.events.take(np.array([i])))
            begun |= result == [Reason.APPLIED]
            assert result == [Reason.APPLIED if begun else Reason.NO_SUCH_VERTEX]
    return graph(oracle)


@st.composite
def streams(draw: st.DrawFn) -> tuple[GraphSchema, str, list[list[Event]]]:
    """A schema, the type of its ids, and batches; the first one decides the types of ids and keys."""
    schema = draw(schemas())
    ids: Any = draw(st.sampled_from(["int", "str"]))
    u, v = (0, 1) if ids == "int" else ("a", "b")
    first = edge(u, v, key=0 if schema.edges == "keyed" else None, time=-9)
    rest = draw(event_batches(schema, ids, n_vertices=4))
    return schema, {"int": "int", "str": "string"}[ids], [[first], *rest]


# ---------------------------------------------------------------------- writing and reading


@settings(max_examples=60)
@given(streams())
def test_entries_are_read_as_written(drawn: tuple[GraphSchema, str, list[list[Event]]]) -> None:
    schema, ids, stream = drawn
    with tempfile.TemporaryDirectory() as folder:
        log = open_log(folder, ids, schema=schema)
        _, entries = write(log, schema, stream)
        assert log.last() == len(stream) - 1
        for b, (events, entry) in enumerate(zip(stream, entries, strict=True)):
            read = log.read(b)
            assert read is not None
            assert rows(read[0]) == rows(entry)
            assert log.meta(b) == read[1]
            log.same_input(read[1], EventBatch.of(events))
        assert replayed(schema, log.entries()) == applied(schema, stream)


@settings(max_examples=30)
@given(drawn=streams(), data=st.data())
def test_a_snapshot_replaces_the_entries_before_it(
    drawn: tuple[GraphSchema, str, list[list[Event]]], data: st.DataObject
) -> None:
    schema, ids, stream = drawn
    uptos = sorted(data.draw(st.sets(st.integers(0, len(stream) - 1), min_size=1, max_size=2), "uptos"))
    forget = data.draw(st.booleans(), "forget")
    with tempfile.TemporaryDirectory() as folder:
        log = open_log(folder, ids, schema=schema)
        partition, _ = write(log, schema, stream)
        for upto in uptos:
            log.compact(upto, forget_history=forget)
        kept = uptos[-1:] if forget else uptos
        assert log.store.list("snapshots") == [f"{upto:012d}.parquet" for upto in kept]
        assert log.last() == len(stream) - 1
        assert log.read(uptos[-1]) is not None
        log.check_next(len(stream))
        entries = log.entries()
        assert replayed(schema, entries) == applied(schema, stream)
        # The parts are the same, also in the operator.
        rebuilt = Partition(schema, PARTS)
        for entry in entries:
            assert not rebuilt.process(entry.events, 0, replay=entry.part).status.any()
        keys = partition.live_ids()
        assert sorted(map(str, rebuilt.live_ids().to_list())) == sorted(map(str, keys.to_list()))
        assert rebuilt.locate(keys)[0].tolist() == partition.locate(keys)[0].tolist()
        if not forget:
            for upto in (0, uptos[0], uptos[-1] - 1):
                assert replayed(schema, log.entries(upto)) == applied(schema, stream[: upto + 1])


def test_all_fields_of_events_are_stored(tmp_path: Path) -> None:
    schema = GraphSchema(edges="keyed", features={"x": 2, "y": 1}, edge_features={"w": 1}, label_width=2)
    stream = [
        [
            vertex("", [0.5, -0.0], time=1),
            edge("a\0", "é", [2.0], key="k", time=2)._replace(arrival=7, partition=0, offset=2**40),
            feature("new", [1e-30], time=3, name="y"),
            label("later", [1.0, 2.0], time=4),
            edge_feature("a\0", "é", [3.0], key="k", time=5),
            delete_vertex("new", time=6),
        ],
        [],
    ]
    log = open_log(tmp_path, "string", "string", schema)
    _, entries = write(log, schema, stream)
    read = log.read(0)
    assert read is not None
    assert len(read[0]) == 6
    assert rows(read[0]) == rows(entries[0])
    assert read[0].events.arrival is not None
    assert read[0].events.arrival.tolist() == [1, 7, 1, 1, 1, 1]
    assert read[1] == EntryMeta(0, 6, input_hash(EventBatch.of(stream[0])))
    empty = log.read(1)
    assert empty is not None
    assert len(empty[0]) == 0
    assert log.entries()[0].part.tolist() == entries[0].part.tolist()


def test_metadata_counts_the_results_of_a_batch(tmp_path: Path) -> None:
    log, partition = open_log(tmp_path), Partition(PLAIN, PARTS)
    batch = EventBatch.of(
        [
            feature(1, [1.0], time=5),
            feature(1, [2.0], time=6),
            vertex(1, time=7),
            edge(1, 2)._replace(op="destroy"),
        ]
    )
    partition.process(EventBatch.of([feature(1, [1.0], time=6)]), 1)
    result = partition.process(batch, 1)
    meta = EntryMeta.of(0, batch, result.status, model_version=3, clock=2**50)
    assert (meta.rows, meta.late, meta.repeated, meta.dead) == (4, 1, 1, 1)
    log.create(0, result.entry, meta)
    assert log.meta(0) == meta
    assert log.meta(1) is None
    assert log.read(1) is None
    with pytest.raises(ValueError, match="the entry of batch 4 has the metadata of batch 0"):
        log.create(4, result.entry, meta)


def test_the_first_writer_wins(tmp_path: Path) -> None:
    log, batch = open_log(tmp_path), EventBatch.edges([1], [2])
    result = Partition(PLAIN, PARTS).process(batch, 1)
    assert log.create(0, result.entry, EntryMeta.of(0, batch, result.status))
    assert not log.create(0, NO_ENTRY, EntryMeta(0, 0, 0))
    read = log.read(0)
    assert read is not None
    assert len(read[0]) == 1


def test_columns_of_the_wrong_type_are_not_stored(tmp_path: Path) -> None:
    batch = replace(
        EventBatch.of([vertex(1), vertex(2)]), dst=keys_of(["a", "b"]), key=keys_of(["k", None]), origin=None
    )
    log = open_log(tmp_path)
    result = Partition(PLAIN, PARTS).process(batch, 1)
    assert len(result.entry) == 2
    log.create(0, result.entry, EntryMeta.of(0, batch, result.status))
    read = log.read(0)
    assert read is not None
    assert read[0].events.dst is None
    assert read[0].events.key is None


def test_ids_must_have_the_type_of_the_store(tmp_path: Path) -> None:
    log, partition = open_log(tmp_path, "string"), Partition(PLAIN, PARTS)
    log.create(0, NO_ENTRY, EntryMeta(0, 0, 0))  # an empty entry has integer ids
    batch = EventBatch.edges([1], [2])
    with pytest.raises(TypeError, match=r"batch 1 has ids of the type int64, but the store .* large_string"):
        log.create(1, partition.process(batch, 1).entry, EntryMeta(1, 1, 0))
    store = Store(tmp_path / "other")
    with pytest.raises(StoreError, match="no pipeline has used this folder"):
        GraphLog(store)
    store.fix({"ids": "uuid"})
    with pytest.raises(StoreError, match="ids='uuid': must be 'int' or 'string'"):
        GraphLog(store)


def test_a_log_can_be_pickled(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, PLAIN, [[edge(1, 2)]])
    there = pickle.loads(pickle.dumps(log))
    assert there.last() == 0
    assert repr(there) == f"GraphLog(Store({str(tmp_path)!r}))"


def test_the_log_is_read_as_tables_from_the_store_or_the_checkpoint(tmp_path: Path) -> None:
    log = open_log(tmp_path / "checkpoint" / "graph", "string")
    stream = [
        [edge("ann", "bob", time=1), edge("bob", "cho", time=2), edge("ann", "bob", time=3)],
        [],
        [delete_vertex("cho", time=4)],
    ]
    write(log, PLAIN, stream)
    for path in (tmp_path / "checkpoint", tmp_path / "checkpoint" / "graph"):
        log = GraphLog.open(path)
        history = log.history()
        assert history.select(["batch", "op", "src"]).to_pylist() == [
            {"batch": 0, "op": "create", "src": "ann"},
            {"batch": 0, "op": "create", "src": "bob"},
            {"batch": 2, "op": "delete", "src": "cho"},
        ]
        assert log.history(1).num_rows == 1
        assert log.history(last=0).num_rows == 2
        edges = [row["dst"] for row in log.graph(0).to_pylist() if row["element"] == "edge"]
        assert edges == ["bob", "cho"]
        vertices = [row["src"] for row in log.graph().to_pylist() if row["element"] == "vertex"]
        assert sorted(vertices) == ["ann", "bob"]
        log.compact()
        assert log.store.list("snapshots") == ["000000000002.parquet"]
    with pytest.raises(FileNotFoundError, match="neither a checkpoint of a d3gnn pipeline nor the store"):
        GraphLog.open(tmp_path)


# ---------------------------------------------------------------------- gaps


def edges_log(folder: Path, n: int) -> GraphLog:
    log = open_log(folder)
    write(log, PLAIN, [[edge(b, b + 1, time=b)] for b in range(n)])
    return log


def test_a_batch_that_skips_an_entry_is_refused(tmp_path: Path) -> None:
    log = edges_log(tmp_path, 3)
    for batch in range(4):
        log.check_next(batch)
    with pytest.raises(LogGap, match=r"has no entry for batch 3, but batch 4 comes next\. .* is lost"):
        log.check_next(4)
    with pytest.raises(LogGap, match=r"for batches 3 to 9, but batch 10 comes next"):
        log.check_next(10)
    with pytest.raises(LogGap, match=r"for batches 0 to 6, but batch 7 comes next"):
        open_log(tmp_path / "new").check_next(7)


def test_missing_entries_are_named(tmp_path: Path) -> None:
    log = edges_log(tmp_path, 10)
    for batch in (2, 3, 4, 7):
        log.store.delete(f"log/{batch:012d}.parquet")
    with pytest.raises(LogGap, match=r"no entry for batches 2 to 4 and 7, but the graph after batch 9"):
        log.entries()
    with pytest.raises(LogGap, match=r"no entry for batch 2, but the graph after batch 2"):
        log.compact(2)
    assert sum(map(len, log.entries(1))) == 2
    with pytest.raises(LogGap, match=r"for batches 10 to 11, but"):
        edges_log(tmp_path / "other", 10).entries(11)


def test_forgotten_history_is_deleted(tmp_path: Path) -> None:
    log = edges_log(tmp_path, 10)
    log.compact(6, forget_history=True)
    log.compact(6)  # nothing to do
    assert log.store.list("log") == [f"{b:012d}.parquet" for b in range(6, 10)]
    assert len(log.entries()) == 1 + 3
    assert len(log.entries(6)) == 1
    with pytest.raises(LogGap, match="batches 0 to 5, but the graph after batch 5"):
        log.entries(5)
    log.check_next(10)


def test_a_snapshot_that_is_written_meanwhile_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = edges_log(tmp_path, 6), open_log(tmp_path)
    log.compact(2)
    read = GraphLog._read
    done: list[bool] = []

    def slow(self: GraphLog, path: str, batch: int) -> Any:
        if not done:
            done.append(True)
            other.compact(4, forget_history=True)
        return read(self, path, batch)

    monkeypatch.setattr(GraphLog, "_read", slow)
    assert replayed(PLAIN, log.entries()) == applied(PLAIN, [[edge(b, b + 1, time=b)] for b in range(6)])


def test_the_last_entry_is_found_without_listing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = open_log(tmp_path), open_log(tmp_path)
    assert log.last() is None
    write(other, PLAIN, [[edge(1, 2)], [], [edge(2, 3)]])
    assert log.last() == 2
    listed: list[str] = []
    monkeypatch.setattr(Store, "list", lambda _, folder: listed.append(folder))
    other.create(3, NO_ENTRY, EntryMeta(3, 0, 0))
    assert log.last() == 3
    log.check_next(4)
    assert listed == []


def test_an_empty_graph_has_an_empty_snapshot(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, PLAIN, [[], [vertex(1)], [delete_vertex(1, time=1)], []])
    log.compact(0)
    assert log.entries(0) == []
    log.compact(2, forget_history=True)
    assert [str(event) for entry in log.entries() for event in entry.events.rows([0])] == [
        "delete vertex 1 at 1"
    ]
    assert log.graph().num_rows == 0


@pytest.mark.parametrize("damage", ["cut", "foreign", "moved"])
def test_a_damaged_entry_is_named(tmp_path: Path, damage: str) -> None:
    log = edges_log(tmp_path, 2)
    path = tmp_path / "log" / "000000000001.parquet"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
        expected = r"log/000000000001.parquet in the store .* is damaged: it is not a whole Parquet file"
    elif damage == "foreign":
        ds.write_dataset(
            ds.dataset(tmp_path / "log").to_table().replace_schema_metadata(),
            tmp_path / "x",
            format="parquet",
        )
        shutil.copy(next((tmp_path / "x").iterdir()), path)
        expected = "is damaged: it has no checksum: d3gnn did not write it"
    else:
        shutil.copy(tmp_path / "log" / "000000000000.parquet", path)
        expected = "is damaged: it is of batch 0, format 2; expected batch 1, format 2"
    for action in (log.read, log.meta):
        with pytest.raises(StoreError, match=expected):
            action(1)


# ---------------------------------------------------------------------- the same input


@settings(max_examples=80)
@given(drawn=streams(), random=st.randoms(use_true_random=False))
def test_the_hash_does_not_depend_on_the_order(
    drawn: tuple[GraphSchema, str, list[list[Event]]], random: Any
) -> None:
    # Rows of one batch: in another batch, ids may have the other type.
    batch = EventBatch.of(max(drawn[2], key=len, default=[])[:8])
    shuffled = list(range(len(batch)))
    random.shuffle(shuffled)
    whole = input_hash(batch)
    assert input_hash(batch.take(np.array(shuffled, np.int64))) == whole
    table = replace(batch, origin=None).to_arrow()
    assert input_hash(EventBatch.from_arrow(table)) == whole
    pieces = [input_hash(batch.take(np.array([i]))) for i in range(len(batch))]
    assert sum(pieces) % 2**64 == whole


OTHERS: list[Event] = [
    edge(1, 2, time=3),
    edge(2, 1, time=3),
    edge(1, 3, time=2),
    edge(1, 2, time=4),
    edge(1, 2, key=0, time=3),
    edge(1, 2, key=3, time=3),
    edge(1, 2, key="3", time=3),
    edge(1, 2, [3.0], time=3),
    edge(1, 2, [0.0], time=3),
    edge(1, 2, [-0.0], time=3),
    edge(1, 2, [0.0, 0.0], time=3),
    edge(1, 2, [3.0], time=3, name="x"),
    edge(1, 2, [3.0], time=3, name="y"),
    edge(1, 2, time=0),
    edge(1, 2)._replace(time=None),
    edge(1, 2, time=3)._replace(arrival=3),
    edge(1, 2, time=3)._replace(partition=3),
    edge(1, 2, time=3)._replace(offset=3),
    edge(1, 2, time=3)._replace(arrival=0, offset=0),
    edge(1, 2, time=3)._replace(op="delete"),
    edge(1, 2, time=3)._replace(op="destroy"),
    edge(1, 2, time=3)._replace(element="edge_feature"),
    edge(1, 2, time=3)._replace(dst=None),
    edge(1, 2, time=3)._replace(src=None),
    edge("1", "2", time=3),
    edge("1", "", time=3),
    edge("1", "2", time=3)._replace(dst=None),
]


def test_every_change_of_a_row_changes_the_hash() -> None:
    hashes = [input_hash(EventBatch.of([event])) for event in OTHERS]
    assert len(set(hashes)) == len(OTHERS)
    assert input_hash(EventBatch.of([])) == 0
    twice = EventBatch.of([OTHERS[0], OTHERS[0]])
    assert input_hash(twice) not in (0, hashes[0])


def test_the_hash_never_changes() -> None:
    batch = EventBatch.of([edge(1, 2, [0.5], key=7, time=3, name="w")._replace(arrival=4, offset=5)])
    assert input_hash(batch) == 14418561333294862237


def test_other_rows_for_a_batch_are_refused(tmp_path: Path) -> None:
    log, batch = open_log(tmp_path), EventBatch.edges([1, 2], [3, 4])
    meta = EntryMeta.of(5, batch, np.zeros(2, np.int8))
    log.same_input(meta, batch.take(np.array([1, 0])))
    with pytest.raises(
        ReplayMismatch, match=r"other rows for batch 5 than before: 1 rows, where there were 2 "
    ):
        log.same_input(meta, batch.take(np.array([1])))
    with pytest.raises(ReplayMismatch, match=r"other rows for batch 5 than before: other rows, where"):
        log.same_input(meta, EventBatch.edges([1, 2], [3, 5]))


# ---------------------------------------------------------------------- other processes

RACER = """
import sys
from pathlib import Path
import numpy as np
from d3gnn.events import EventBatch
from d3gnn.kernel.log import LogEntry
from d3gnn.store.entry import EntryMeta
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.seal import Kind
from d3gnn.store.store import Store
me, root = int(sys.argv[1]), sys.argv[2]
log = GraphLog(Store(root + "/store"))
entry = LogEntry(EventBatch.edges(np.full(5000, me), np.arange(5000)), np.zeros(5000, np.int32))
log.format.write(Kind.ENTRY, entry, EntryMeta(0, 0, 0), bytes(16))
Path(root, f"ready-{me}").touch()
while not Path(root, "go").exists():
    pass
won = [log.create(b, entry, EntryMeta(b, 5000, me)) for b in range(30)]
read = [log.read(b) for b in range(30)]
assert all(set(entry.events.src.values) == {meta.input_hash} for entry, meta in read)
print([[b for b, is_won in enumerate(won) if is_won], [meta.input_hash for _, meta in read]])
"""


def test_only_one_of_two_processes_creates_an_entry(tmp_path: Path) -> None:
    open_log(tmp_path / "store")
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, me, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for me in "12"
    ]
    deadline = time.monotonic() + 120
    while not all((tmp_path / f"ready-{me}").exists() for me in "12"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (tmp_path / "go").touch()
    (won_1, read_1), (won_2, read_2) = (json.loads(racer.communicate(timeout=120)[0]) for racer in racers)
    assert sorted(won_1 + won_2) == list(range(30))
    assert read_1 == read_2 == [1 if b in won_1 else 2 for b in range(30)]


WRITER = """
import sys
import numpy as np
from d3gnn.events import EventBatch
from d3gnn.kernel.log import LogEntry
from d3gnn.store.entry import EntryMeta
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.store import Store
log, n, b = GraphLog(Store(sys.argv[1])), 100_000, 0
edges = EventBatch.edges(np.arange(n), np.random.default_rng(1).integers(0, 2**62, n))
while True:
    log.create(b, LogEntry(edges, np.zeros(n, np.int32)), EntryMeta(b, n, 0))
    print(b, flush=True)
    b += 1
"""


def test_a_killed_writer_leaves_complete_entries_only(tmp_path: Path) -> None:
    open_log(tmp_path)
    for run, delay in enumerate((0.0, 0.013, 0.031)):
        shutil.rmtree(tmp_path / "log", ignore_errors=True)
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            for _ in range(2):
                writer.stdout.readline()
            time.sleep(delay)
            writer.kill()
        log = open_log(tmp_path)
        last = log.last()
        assert last is not None, run
        assert [len(entry) for entry in log.entries()] == [100_000] * (last + 1)


SPARK = """
import json, sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1").getOrCreate()
)
found = []
for folder in sys.argv[1:]:
    log = spark.read.parquet(folder + "/log")
    rows = log.orderBy("batch", "row").drop("row").collect()
    everything = spark.read.option("mergeSchema", "true").parquet(folder + "/log", folder + "/snapshots")
    found.append({
        "types": dict(log.dtypes),
        "rows": [row.asDict() for row in rows],
        "same types": everything.dtypes == log.dtypes,
        "some": log.where("element = 'edge' and batch >= 1 and src is not null").count(),
    })
print("FOUND", json.dumps(found))
"""


def has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java") is not None or (home is not None and Path(home, "bin", "java").exists())


def test_spark_reads_the_log_as_one_table(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    if not has_java():
        pytest.skip("Spark needs Java, which is not here")
    schema = GraphSchema(edges="keyed", features={"x": 2})
    cases: list[tuple[str, str, Sequence[Key]]] = [
        ("int", "string", [1, 2, 3]),
        ("string", "int", ["a", "b", "é"]),
    ]
    expected, folders = [], []
    for ids, keys, (u, v, w) in cases:
        k: Key = "k" if keys == "string" else 7
        stream = [
            [],  # Spark infers the types
            [vertex(u, time=1)],
            [edge(u, v, key=k, time=2), feature(w, [1.0, 2.0], time=2, name="x"), label(u, 5.0, time=2)],
            [],
            [edge(v, w, key=k, time=3)],
        ]
        folders.append(tmp_path / ids)
        log = open_log(folders[-1], ids, keys, schema)
        _, entries = write(log, schema, stream)
        log.compact(2)
        names = [*COLUMNS, "part", "batch"]
        written = [
            dict(zip(names, (*row, b), strict=True)) for b, entry in enumerate(entries) for row in rows(entry)
        ]
        # The log has an edge for each neighbour instead.
        assert all(row.pop("neighbours") is None for row in written)
        expected.append(written)
    done = subprocess.run(
        [sys.executable, "-c", SPARK, *map(str, folders)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.split("FOUND", 1)[1])
    for (ids, keys, _), want, got in zip(cases, expected, found, strict=True):
        types = {"int": "bigint", "string": "string"}
        assert got["types"] == {
            "batch": "bigint",
            "row": "int",
            "op": "string",
            "element": "string",
            "src": types[ids],
            "dst": types[ids],
            "key": types[keys],
            "feature": "string",
            "value": "array<float>",
            "time": "bigint",
            "arrival": "bigint",
            "partition": "bigint",
            "offset": "bigint",
            "part": "int",
        }
        assert got["rows"] == want
        assert got["same types"]
        assert got["some"] == 2
