"""Erased vertices are in no file of the store, all else stays, and a replay is still recognised."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from d3gnn import GraphSchema
from d3gnn.events import Event, EventBatch, Key, delete_vertex, edge, feature, label, vertex
from d3gnn.kernel.operators import Partition
from d3gnn.oracle import Oracle
from d3gnn.runtime.erasure import Erasure, forget
from d3gnn.runtime.liveness import PipelineRunning, mark_running
from d3gnn.store.dead_letters import put_dead_letters
from d3gnn.store.entry import EntryMeta
from d3gnn.store.erasure import erase_from_dead_letters, erase_from_log, erasures, search_store
from d3gnn.store.graph_log import GraphLog, LogGap
from d3gnn.store.named_ids import NamedIds
from d3gnn.store.store import Store
from d3gnn.testing import event_batches, schemas

PARTS = 2
PLAIN = GraphSchema(features={"x": 1})
EVE = "eve@example.org"
#: Every file of a store is synced to its disk, which takes most of the time of a test that writes many.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def write(folder: Path | str, schema: GraphSchema, ids: str, stream: Iterable[Iterable[Event]]) -> GraphLog:
    """A store as a pipeline leaves it, with a snapshot after the second batch."""
    store = Store(folder)
    store.fix({"name": "p", "ids": ids, "keys": "int", "parts": PARTS, "schema": schema.to_dict()})
    log, partition = GraphLog(store), Partition(schema, PARTS)
    for b, events in enumerate(stream):
        batch = EventBatch.of(events)
        result = partition.process(batch, clock=1)
        put_dead_letters(store, b, batch, result.status)
        log.create(b, result.entry, EntryMeta.of(b, batch, result.status, clock=b))
        if b == 1:
            log.compact()
    return log


def erase(folder: Path | str, *ids: Key) -> Erasure:
    return forget(folder, ids, arrays=Path(folder) / "arrays")


def naming(folder: Path, text: str) -> list[Path]:
    """Files that have a text in them, as it is, or in a column; written without the code that is tested."""
    found = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = file.read_bytes()
        if file.suffix == ".parquet":
            table, metadata = pq.read_table(io.BytesIO(content)), pq.read_metadata(io.BytesIO(content))
            content += repr((table.to_pydict(), metadata.to_dict(), metadata.metadata)).encode()
        if text.encode() in content:
            found.append(file)
    return found


def graph(log: GraphLog, upto: int | None = None) -> tuple[set[Key], list[Any], dict[Key, Any]]:
    """Vertices, edges and features that the log creates."""
    oracle = Oracle(GraphSchema(**log.store.settings["schema"]), replays=True)
    for entry in log.entries(upto):
        oracle.apply(entry.events)
    return set(oracle.vertices), sorted(oracle.edges(), key=str), oracle._features


def without(
    graph: tuple[set[Key], list[Any], dict[Key, Any]], id: Key
) -> tuple[set[Key], list[Any], dict[Key, Any]]:
    vertices, edges, features = graph
    return vertices - {id}, [e for e in edges if id not in e], {v: f for v, f in features.items() if v != id}


STREAM: list[list[Event]] = [
    [edge("ann", "bob", time=1), edge(EVE, "ann", time=2), feature(EVE, [0.5], time=3)],
    [label(EVE, 1.0, time=4), feature("bob", [1.0], time=5), edge(EVE, "a", time=6)._replace(op="update")],
    [delete_vertex("ann", time=7)],
    [edge("cho", EVE, time=8), edge("cho", "dan", time=9), feature("cho", [2.0], time=9)],
]


def test_no_file_names_an_erased_vertex(tmp_path: Path) -> None:
    log = write(tmp_path / "graph", PLAIN, "string", STREAM)
    before, meta = graph(log), log.meta(3)
    (tmp_path / "graph" / ".tmp").mkdir(exist_ok=True)
    (tmp_path / "graph" / ".tmp" / "half").write_text(f"half an entry of {EVE}")
    assert {file.parent.name for file in naming(tmp_path, EVE)} == {
        "log",
        "snapshots",
        "dead_letters",
        ".tmp",
    }
    erasure = erase(tmp_path / "graph", EVE, "zoe")
    assert naming(tmp_path, EVE) == []
    assert erasure.left == ()
    assert (erasure.ids, erasure.vertices, erasure.edges) == (2, 1, 1)
    assert {place.place: place.rows for place in erasure.found} == {
        "log": 4, "snapshots": 4, "dead_letters": 1, ".tmp": 1,
    }  # fmt: skip
    again = GraphLog.open(tmp_path)
    assert graph(again) == without(before, EVE)
    assert "cho" in graph(again)[0], "the other end of an edge of the last batch"
    assert again.meta(3) == meta
    again.same_input(meta, EventBatch.of(STREAM[3]))  # type: ignore[arg-type]
    again.check_next(4)
    with pytest.raises(LogGap, match="has no entry for batch 0, but it comes next"):
        again.check_next(0)  # of a checkpoint from before


def test_deletes_of_other_vertices_stay_and_those_of_erased_ones_do_not(tmp_path: Path) -> None:
    stream = [[edge("ann", EVE, time=1)], [delete_vertex("ann", time=5), delete_vertex(EVE, time=5)]]
    write(tmp_path, PLAIN, "string", stream)
    erase(tmp_path, EVE)
    partition = Partition(PLAIN, PARTS)
    for entry in GraphLog.open(tmp_path).entries():
        partition.process(entry.events, 0, replay=entry.part)
    late = EventBatch.of([vertex("ann", time=4), vertex(EVE, time=4)])
    assert partition.process(late, 0).status.tolist() == [2, 0]


def test_a_dead_letter_with_the_id_as_the_other_type_is_erased(tmp_path: Path) -> None:
    write(tmp_path, PLAIN, "int", [[edge(7, 8)], [vertex("7"), vertex("77")], [vertex(9)]])
    assert erase(tmp_path, 7).left == ()
    table = pq.read_table(tmp_path / "dead_letters" / "000000000001.parquet")
    assert table["src"].to_pylist() == ["77"]
    assert erase(tmp_path, 77).left == ()
    assert not list((tmp_path / "dead_letters").iterdir())


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, PLAIN, "string", STREAM)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    erasure = forget(tmp_path, [EVE], arrays=tmp_path / "arrays", dry_run=True)
    assert [Path(tmp_path / path) for path in erasure.left] == naming(tmp_path, EVE)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")} == files


def test_a_stray_file_that_names_the_id_is_reported(tmp_path: Path) -> None:
    write(tmp_path, PLAIN, "string", STREAM)
    (tmp_path / "notes.txt").write_text(f"ask {EVE} about this, not {EVE}.uk")
    (tmp_path / "other.txt").write_text("ask steve@example.organic")
    assert erase(tmp_path, EVE).left == ("notes.txt",)


def test_ids_are_refused_while_a_query_runs_or_of_another_type(tmp_path: Path) -> None:
    log = write(tmp_path, PLAIN, "string", STREAM)
    with mark_running(log.store, tmp_path), pytest.raises(PipelineRunning, match="stop it"):
        erase(tmp_path, EVE)
    for ids, expected in (([], "no ids"), ([7], "are strings; 7 is none")):
        with pytest.raises(ValueError, match=expected):
            forget(tmp_path, ids, arrays=tmp_path)
    assert naming(tmp_path, EVE)


class Crash(Exception):
    pass


class CrashingStore(Store):
    """Dies before a change of the store."""

    changes_left = 0

    def _change(self) -> None:
        self.changes_left -= 1
        if self.changes_left < 0:
            raise Crash

    def replace(self, path: str, *data: Any) -> None:
        self._change()
        super().replace(path, *data)

    def delete(self, path: str) -> None:
        self._change()
        super().delete(path)


@settings(max_examples=20)
@given(data=st.data())
def test_after_a_crash_the_log_is_whole_and_a_second_run_finishes(data: st.DataObject) -> None:
    schema = data.draw(schemas(), "schema")
    u, v = edge(0, 1, key=0 if schema.edges == "keyed" else None, time=-9), 3
    stream = [[u], *data.draw(event_batches(schema, n_vertices=4, max_batches=4), "stream")]
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        log = write(folder, schema, "int", stream)
        last = log.last()
        before, meta = graph(log), log.meta(len(stream) - 1)
        store = CrashingStore(folder)
        store.changes_left = data.draw(st.integers(0, 8), "changes before the crash")
        try:
            erase_from_log(GraphLog(store), NamedIds([v]))
            erase_from_dead_letters(store, NamedIds([v]))
        except Crash:
            assert graph(GraphLog.open(folder)) in (before, without(before, v))
            erase(folder, v)
        assert not search_store(Store(folder), NamedIds([v]))
        again = GraphLog.open(folder)
        assert graph(again) == without(before, v)
        assert (again.last(), again.meta(len(stream) - 1)) == (last, meta)
        # A replay of the last batch, on the graph before it, comes to the same graph.
        partition = Partition(schema, PARTS)
        previous, replayed = (
            again.snapshot(len(stream) - 2) if len(stream) > 1 else None,
            again.read(last or 0),
        )
        assert replayed is not None
        for entry in (previous, replayed[0]):
            if entry is not None:
                partition.process(entry.events, 0, replay=entry.part)
        assert set(partition.live_ids().to_list()) == without(before, v)[0]


def test_every_erasure_puts_state_out_of_date(tmp_path: Path) -> None:
    """State on other hosts is not at hand, and may hold an id that the log has forgotten."""
    write(tmp_path, PLAIN, "string", STREAM)
    store = Store(tmp_path)
    assert erasures(store) == 0
    for n, id in enumerate((EVE, "nobody"), start=1):
        assert erase(tmp_path, id).left == ()
        assert erasures(store) == n
    assert json.loads(store.read("erasures/000001.json") or b"")["ids"] == 1


def test_a_log_whose_history_was_deleted_before(tmp_path: Path) -> None:
    log = write(tmp_path, PLAIN, "string", STREAM)
    before = graph(log)
    log.compact(forget_history=True)
    assert erase(tmp_path, EVE).left == ()
    assert naming(tmp_path, EVE) == []
    assert graph(GraphLog.open(tmp_path)) == without(before, EVE)


def test_a_graph_of_which_nothing_is_left(tmp_path: Path) -> None:
    write(tmp_path, PLAIN, "string", [[edge("ann", EVE, time=1)]])
    assert erase(tmp_path, EVE, "ann").vertices == 2
    assert graph(GraphLog.open(tmp_path)) == (set(), [], {})
