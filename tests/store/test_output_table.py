"""Rows are erased from a table of Parquet files, as Spark's file sink writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from d3gnn.store.compacted_table import OutputTable
from d3gnn.store.named_ids import NamedIds
from d3gnn.store.output_table import check_table, erase_from_table, search_table

IDS = NamedIds(["eve"])


def table(folder: Path) -> Path:
    """Two files in the sink's log, one that a failed task has left, and a checksum of Hadoop."""
    (folder / "_spark_metadata").mkdir(parents=True)
    lines = []
    for name, rows in (("part-0", ["ann", "eve", "bob"]), ("part-1", ["bob"]), ("part-2", ["eve"])):
        content = pa.table({"id": rows, "time": pa.array([10**15] * len(rows), pa.timestamp("us"))})
        file = folder / f"{name}.parquet"
        pq.write_table(content, file, use_deprecated_int96_timestamps=True, compression="snappy")
        (folder / f".{file.name}.crc").write_bytes(b"crc")
        entry = {"path": f"file://{file}", "size": file.stat().st_size, "action": "add"}
        lines.append(json.dumps(entry, separators=(",", ":")))
    (folder / "_spark_metadata" / "0").write_text("\n".join(["v1", lines[0]]))
    (folder / "_spark_metadata" / "1.compact").write_text("\n".join(["v1", *lines[:2]]))
    return folder


def sizes(folder: Path) -> bool:
    """Whether the sink's log has the sizes of the files."""
    found = []
    for log in (folder / "_spark_metadata").glob("[0-9]*"):
        version, *lines = log.read_text().splitlines()
        assert version == "v1"
        found += [json.loads(line) for line in lines]
    assert len(found) == 3
    return all(entry["size"] == Path(entry["path"][7:]).stat().st_size for entry in found)


def test_rows_are_erased_and_the_log_of_the_sink_is_corrected(tmp_path: Path) -> None:
    folder = table(tmp_path / "table")
    untouched = (folder / "part-1.parquet").read_bytes()
    assert [Path(path).name for path in search_table(folder, IDS)] == ["part-0.parquet", "part-2.parquet"]
    erase_from_table(folder, IDS)
    assert not search_table(folder, IDS)
    assert b"eve" not in b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert pq.read_table(folder / "part-0.parquet").to_pydict()["id"] == ["ann", "bob"]
    assert pq.read_metadata(folder / "part-0.parquet").schema.column(1).physical_type == "INT96"
    assert (folder / "part-1.parquet").read_bytes() == untouched
    assert sizes(folder)
    assert {file.name for file in folder.glob(".*")} == {".part-1.parquet.crc"}


def test_a_compacted_table_and_unfinished_files(tmp_path: Path) -> None:
    folder = table(tmp_path / "table")
    opened = OutputTable(folder)
    made = opened.next_compaction()
    compacted = Path(opened.folder(made)) / "part-0.snappy.parquet"
    unfinished = folder / "_compacted" / "000002-0123abcd" / "_temporary" / "0" / "part-0.parquet"
    for file in (compacted, unfinished, folder / "part-9.parquet"):
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": ["bob", "eve", "eve"]}), file)
    opened.commit(made)
    for file in (unfinished, folder / "part-9.parquet"):  # of processes that were killed
        file.write_bytes(file.read_bytes()[:-20])
    found = {Path(path).name: rows for path, rows in search_table(folder, IDS).items()}
    assert found == {
        "part-0.parquet": 1, "part-2.parquet": 1, "part-9.parquet": 1, "part-0.snappy.parquet": 2,
    }  # fmt: skip
    erase_from_table(folder, IDS)
    assert not search_table(folder, IDS)
    assert b"eve" not in b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert not unfinished.exists()
    newest = opened.newest_compaction()
    assert newest is not None
    assert pq.read_table(opened.folder(newest))["id"].to_pylist() == ["bob"]
    compacted.write_bytes(compacted.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"part-0.snappy.parquet is damaged: restore it"):
        search_table(folder, IDS)


def test_a_crash_before_the_log_is_corrected_is_made_good(tmp_path: Path) -> None:
    folder = table(tmp_path / "table")
    pq.write_table(pa.table({"id": ["ann", "bob"]}), folder / "part-0.parquet")  # what the first run did
    (folder / ".part-2.parquet.forget").write_bytes(b"half a file")
    assert not sizes(folder)
    erase_from_table(folder, IDS)
    assert sizes(folder)
    assert not list(folder.glob("*.forget"))


def test_an_id_that_is_only_in_a_dictionary_or_in_statistics_is_found(tmp_path: Path) -> None:
    leaking = pa.table({"id": pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(["ann", "eve"]))})
    file = str(tmp_path / "a.parquet")
    pq.write_table(leaking, file, write_statistics=False)
    assert pq.read_table(file)["id"].to_pylist() == ["ann", "ann"]
    assert b"eve" in Path(file).read_bytes()
    assert IDS.in_parquet(file) == 1


def test_other_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "part-0.json").write_text("{}")
    for folder, expected in (
        ("delta", "Delta's DELETE"),
        ("json", "another format"),
        ("no", "no such folder"),
    ):
        with pytest.raises(ValueError, match=expected):
            check_table(tmp_path / folder)
