"""Damage to any byte of a store is found and named, before anything is computed from it; repair drops it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from d3gnn import GraphSchema
from d3gnn.store.check import StoreReport, check_store
from d3gnn.store.dead_letters import read_dead_letters
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.models import get_model, list_models
from d3gnn.store.names import StrayFile
from d3gnn.store.repair import plan_repair
from d3gnn.store.seal import Kind, open_sealed
from d3gnn.store.spark_checkpoint import SparkCheckpoint
from d3gnn.store.store import Store, StoreDamaged, StoreError
from d3gnn.testing import random_batches
from d3gnn.testing.in_process import InProcessPipeline

SCHEMA = GraphSchema(features={"x": 3})
BATCHES = list(random_batches(SCHEMA, seed=2, n_batches=8, batch_size=12, n_vertices=10, bad=0.2))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with eight batches, dead letters, and snapshots of batches 3 and 5."""
    folder = tmp_path_factory.mktemp("original")
    pipeline = InProcessPipeline(folder, SCHEMA)
    for b, batch in enumerate(BATCHES):
        pipeline.run(b, batch, ["refresh"] if b in (3, 5) else [])
    assert pipeline.log.store.list("snapshots") == ["000000000003.parquet", "000000000005.parquet"]
    assert pipeline.log.store.list("dead_letters")
    return folder / "store"


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Store:
    shutil.copytree(original, tmp_path / "store")
    return Store(tmp_path / "store")


def file(store: Store, path: str) -> Path:
    return Path(store.uri) / path


def entry(batch: int) -> str:
    return f"log/{batch:012d}.parquet"


def snapshot(batch: int) -> str:
    return f"snapshots/{batch:012d}.parquet"


def flip(path: Path, place: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 1
    path.write_bytes(data)


def fewer_rows(path: Path) -> None:
    """An entry without its last row, with the metadata of the whole one, as a tool might write it."""
    table = pq.read_table(path)
    pq.write_table(table.slice(0, len(table) - 1), path)


def damaged(report: StoreReport) -> list[str]:
    return [damage.path for damage in report.damages]


def test_every_byte_of_an_entry_is_covered(store: Store) -> None:
    data = file(store, entry(2)).read_bytes()
    open_sealed(Kind.ENTRY, data)
    for place in range(0, len(data), 3):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        with pytest.raises(ValueError, match=r"checksum|Parquet|kind"):
            open_sealed(Kind.ENTRY, bytes(changed))
    log = GraphLog(store)
    for place in range(len(data) // 2, len(data), 7):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        file(store, entry(2)).write_bytes(changed)
        with pytest.raises(StoreDamaged, match=entry(2)):
            log.read(2)
    for place in (1, 9, 200, 600):  # where only the metadata is read, from the end of the file
        changed = bytearray(data)
        changed[-place] ^= 1
        file(store, entry(2)).write_bytes(changed)
        with pytest.raises(StoreDamaged, match=entry(2)):
            log.meta(2)


@pytest.mark.parametrize("damage", [flip, fewer_rows, lambda path: path.write_bytes(path.read_bytes()[:-9])])
def test_a_damaged_entry_is_refused_by_name(store: Store, damage: Callable[[Path], None]) -> None:
    damage(file(store, entry(6)))
    log = GraphLog(store)
    for action in (lambda: log.read(6), log.entries, log.graph, log.history, log.compact):
        with pytest.raises(StoreDamaged, match=rf"{entry(6)} in the store .* is damaged.*d3gnn repair"):
            action()
    assert log.entries(5), "a snapshot has the graph before"
    assert damaged(check_store(store)) == [entry(6)]


def test_an_older_entry_of_the_same_number_does_not_pass(
    store: Store, original: Path, tmp_path: Path
) -> None:
    """The entry is whole, and of the same store: only the entries after it tell."""
    other = InProcessPipeline(tmp_path, SCHEMA)
    other.log.drop_after(5)
    other.run(6, BATCHES[7])
    other.run(7, BATCHES[6])
    store.delete(snapshot(6))  # the graph is rebuilt from that of batch 5
    shutil.copy(original / entry(6), file(store, entry(6)))
    with pytest.raises(StoreDamaged, match=rf"{entry(7)}.* does not follow .*{entry(6)}"):
        GraphLog(store).entries()
    with pytest.raises(StoreDamaged, match=entry(7)):
        GraphLog(store).read(7)
    report = check_store(store)
    assert damaged(report) == [entry(7)]
    assert report.intact() == 5, "either of the two may be the wrong one"


def test_files_of_other_places_do_not_pass(store: Store, tmp_path: Path) -> None:
    shutil.copy(file(store, snapshot(5)), file(store, entry(5)))
    with pytest.raises(StoreDamaged, match=rf"{entry(5)}.* of another kind \(snapshot\)"):
        GraphLog(store).read(5)
    shutil.copy(file(store, entry(4)), file(store, entry(5)))
    with pytest.raises(StoreDamaged, match=rf"{entry(5)}.* is of batch 4, format 2; expected batch 5"):
        GraphLog(store).read(5)
    other = InProcessPipeline(tmp_path / "other", SCHEMA)
    other.run(0, BATCHES[0])
    shutil.copy(other.store / entry(0), file(store, entry(0)))
    with pytest.raises(StoreDamaged, match=entry(0)):
        GraphLog(store).read(0)


def test_a_snapshot_of_another_history_does_not_pass(store: Store, tmp_path: Path) -> None:
    other = InProcessPipeline(tmp_path / "other", SCHEMA)
    for b, batch in enumerate([*BATCHES[:5], BATCHES[6]]):
        other.run(b, batch)
    other.log.compact(5)
    shutil.copy(other.store / snapshot(5), file(store, snapshot(5)))
    with pytest.raises(StoreDamaged, match=rf"{snapshot(5)}.* of another history .* {entry(5)}"):
        GraphLog(store).entries()
    assert damaged(check_store(store)) == [snapshot(5)]


def test_damaged_models_settings_and_dead_letters_are_named(store: Store) -> None:
    path = list_models(store)[-1].path
    flip(file(store, path), 0.9)  # in a weight
    with pytest.raises(StoreDamaged, match=f"{path} in the store"):
        get_model(store, path)
    letters = f"dead_letters/{store.list('dead_letters')[0]}"
    flip(file(store, letters))
    with pytest.raises(StoreDamaged, match=letters):
        read_dead_letters(store, int(letters[13:25]))
    flip(file(store, "query.json"), 0.3)
    assert sorted(damaged(check_store(store))) == sorted([path, letters, "query.json"])
    settings = file(store, "settings.json")
    for text in (settings.read_text().replace('"parts": 2', '"parts": 3'), "{", '"x"', "\xff"):
        settings.write_text(text, "latin-1")
        with pytest.raises(StoreDamaged, match=r"settings.json in the store .* is damaged"):
            _ = Store(store.uri).settings
        assert damaged(check_store(Store(store.uri))) == ["settings.json"]


def test_stray_files_are_ignored_with_a_warning(store: Store) -> None:
    strays = [
        "log/_SUCCESS",
        "snapshots/copy.parquet",
        "models/notes.txt",
        "dead_letters/000000000003.parquet~",
    ]
    for path in strays:
        file(store, path).write_bytes(b"x")
    with pytest.warns(StrayFile, match=r"log/_SUCCESS in the store .* is ignored"):
        assert GraphLog(store).last() == 7
    file(store, strays[0]).unlink()
    with pytest.warns(StrayFile, match=r"snapshots/copy.parquet"):
        assert len(GraphLog(store).entries()) == 3
    with pytest.warns(StrayFile, match=r"models/notes.txt"):
        list_models(store)
    file(store, strays[0]).touch()
    report = check_store(store)
    assert (sorted(report.strays), report.damages) == (sorted(strays), [])
    assert (report.entries, report.snapshots, report.models, report.last) == (8, 2, 1, 7)


def test_a_check_names_the_damaged_batches(store: Store) -> None:
    for batch in (1, 2, 6):
        flip(file(store, entry(batch)))
    store.delete(entry(4))
    report = check_store(store)
    assert report.damaged_batches == "batches 1 to 2, 4 and 6"
    assert [report.intact(upto) for upto in (0, 2, 3, 4, 5, 7)] == [0, 0, 3, 3, 5, 5]


# ---------------------------------------------------------------------- repair


def make_checkpoint(folder: Path, committed: int, first: int = 0) -> SparkCheckpoint:
    for name, last in (("offsets", committed + 1), ("commits", committed)):
        (folder / name).mkdir(parents=True)
        for batch in range(first, last + 1):
            (folder / name / str(batch)).write_text("v1")
            (folder / name / f".{batch}.crc").write_text("crc")
    return SparkCheckpoint(folder)


def repaired(store: Store, checkpoint: SparkCheckpoint | None = None, last_batch: int | None = None) -> int:
    plan = plan_repair(store, check_store(store), checkpoint, last_batch)
    assert plan.is_needed
    plan.apply()
    report = check_store(store)
    assert report.damages == []
    assert not plan_repair(store, report, checkpoint, last_batch).is_needed
    assert report.last == plan.keep
    return plan.keep


def test_a_damaged_tail_is_dropped_and_read_again(store: Store, tmp_path: Path) -> None:
    flip(file(store, entry(6)))
    checkpoint = make_checkpoint(tmp_path / "checkpoint", committed=7)
    plan = plan_repair(store, check_store(store), checkpoint)
    assert plan.steps() == [
        "drop batches 6 to 7 from the log: the pipeline must read their events again",
        f"set the checkpoint {checkpoint.path} back to batch 5: Spark reads the events after it again",
    ]
    assert repaired(store, checkpoint) == 5
    assert (checkpoint.planned(), checkpoint.committed()) == (5, 5)
    assert sorted(path.name for path in (tmp_path / "checkpoint" / "commits").glob(".*"))[-1] == ".5.crc"
    assert all(int(name[:12]) < 6 for name in store.list("dead_letters"))
    pipeline = InProcessPipeline(tmp_path, SCHEMA)
    for batch in (6, 7):
        pipeline.run(batch, BATCHES[batch])
    assert pipeline.error(BATCHES) < 1e-5
    assert pipeline.verify().max_relative_error < 1e-5


def test_damage_before_a_snapshot_costs_history_only(store: Store) -> None:
    graph = GraphLog(store).graph().to_pylist()
    for path in (entry(1), entry(4), snapshot(3)):
        flip(file(store, path))
    assert repaired(store) == 7
    assert store.list("log") == [f"{b:012d}.parquet" for b in (5, 6, 7)]
    assert GraphLog(store).graph().to_pylist() == graph
    flip(file(store, entry(5)))  # the snapshot has its graph, and the next entry is linked to it
    assert repaired(store) == 7
    assert GraphLog(store).graph().to_pylist() == graph
    GraphLog(store).check_next(8)


def test_a_repair_to_an_older_batch(store: Store, tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", committed=4)
    assert repaired(store, checkpoint, last_batch=4) == 4
    assert checkpoint.committed() == 4
    assert GraphLog(store).graph().num_rows


def test_other_damaged_files_are_deleted(store: Store) -> None:
    model = list_models(store)[-1].path
    for path in (model, "query.json", f"dead_letters/{store.list('dead_letters')[0]}"):
        flip(file(store, path))
    assert repaired(store) == 7
    assert not store.exists(model)
    assert not store.exists("query.json")


def test_what_cannot_be_repaired_is_refused(store: Store, tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", committed=7, first=6)
    flip(file(store, entry(6)))
    with pytest.raises(StoreError, match="cannot be set back to batch 5: Spark keeps the newest 100"):
        plan_repair(store, check_store(store), checkpoint)
    GraphLog(store).drop_after(5)
    GraphLog(store).compact(5, forget_history=True)
    flip(file(store, snapshot(5)))
    with pytest.raises(StoreError, match=r"nothing of the graph log .* can be saved"):
        plan_repair(store, check_store(store), None)
    settings = json.loads(file(store, "settings.json").read_text()) | {"parts": 9}
    file(store, "settings.json").write_text(json.dumps(settings))
    with pytest.raises(StoreDamaged, match=r"settings.json cannot be repaired"):
        plan_repair(store, check_store(Store(store.uri)), None)


def test_a_table_that_is_newer_than_its_checkpoint_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "table"
    (table / "_spark_metadata").mkdir(parents=True)
    checkpoint = make_checkpoint(tmp_path / "checkpoint", committed=4)
    for name in ("3", "5", "9.compact"):
        (table / "_spark_metadata" / name).write_text("v1")
        if name == "9.compact":
            with pytest.raises(StoreError, match=r"batches up to 9, but the checkpoint .* ends at batch 5"):
                checkpoint.check_table(table)
        else:
            checkpoint.check_table(table)
    with pytest.raises(StoreError, match="is new, so that Spark would skip"):
        SparkCheckpoint(tmp_path / "other").check_table(table)


def test_features_flipped_in_place_never_pass(store: Store) -> None:
    """A value as a disk would change it: the bytes of a float in an uncompressed page."""
    log = GraphLog(store)
    values = {
        b: read[0].events.values
        for b in range(8)
        if (read := log.read(b)) and read[0].events.values is not None
    }
    batch, found = next(iter(values.items()))
    data, value = file(store, entry(batch)).read_bytes(), found[0].tobytes()
    assert data.count(value) == 1
    file(store, entry(batch)).write_bytes(data.replace(value, bytes([value[0] ^ 1]) + value[1:]))
    with pytest.raises(StoreDamaged, match=entry(batch)):
        log.read(batch)
