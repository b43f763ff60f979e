"""What the first files tell: their format, which column is what, and what is wrong with them."""

from __future__ import annotations

import gzip
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from d3gnn.sources import EdgeListError
from d3gnn.sources.files import Files, look


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


EVENTS = """op,element,src,dst,key,feature,value,time
create,edge,1,2,,,,1
create,feature,1,,,x,"[0.1, 0.2]",2
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.csv", "src,dst,ts\n1,2,3\n",
         "edges in CSV: src = src (bigint), dst = dst (bigint), time = ts (bigint)"),
        ("a.csv.gz", "u;v;w\n1;ann;3\n",
         "edges in CSV: src = u (string), dst = v (string); not used: w"),
        ("a.txt", "1 2 10\n2 3 11\n",
         "edges in text between white space: src = c1 (bigint), dst = c2 (bigint), time = c3 (bigint)"),
        ("a.txt.gz", "# made by hand\n1 2 10.5\n2 3 2000000000.5\n",
         "edges in text between white space: src = c1 (bigint), dst = c2 (bigint); not used: c3"),
        ("a.csv", "19971108,+,1,3\n",
         "edges in CSV: op = c2 (string), src = c3 (bigint), dst = c4 (bigint), time = c1 (bigint)"),
        ("a.csv", EVENTS,
         "events in CSV: op = op (string), element = element (string), src = src (bigint), "
         "dst = dst (bigint), feature = feature (string), value = value (string), time = time (bigint); "
         "not used: key"),
        ("a.jsonl", '{"src": 1, "dst": "x", "time": "2026-01-01T00:00:00Z"}\n{"src": 2, "value": [1, 2.5]}\n',
         "edges in JSON: src = src (string), dst = dst (string), value = value (array<double>), "
         "time = time (string)"),
        ("a", '{"src": 1, "element": "vertex"}\n',
         "events in JSON: element = element (string), src = src (bigint)"),
        ("a.csv", "src,dst,time\n1,2.0,2026-01-01\n3,,2026-01-02\n",
         "edges in CSV: src = src (bigint), dst = dst (double), time = time (date)"),
    ],
)  # fmt: skip
def test_what_files_hold(tmp_path: Path, name: str, text: str, expected: str) -> None:
    files = look(write(tmp_path, name, text)).files
    assert str(files) == expected
    assert Files(**asdict(files)) == files, "it can be written down and read again"


def test_times_can_have_a_unit(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "1 2 10\n2 3 2000000000\n")
    files = look(path, time_unit="s").files
    assert files.time_unit == "s"
    assert "time = c3 (bigint in s)" in str(files)
    assert Files(**asdict(files)) == files
    with pytest.raises(EdgeListError, match="date in the column time, which needs no --ts-unit"):
        look(write(tmp_path, "b.csv", "src,dst,time\n1,2,2026-01-01\n"), time_unit="s")
    with pytest.raises(EdgeListError, match="no times for which --ts-unit could count"):
        look(write(tmp_path, "c.csv", "src,dst\n1,2\n"), time_unit="ms")


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "when,payer,payee,amount\n2026-01-01 10:00:00,7,8,1.5\n")
    names = {"src": "payer", "dst": "payee", "time": "when", "value": "amount"}
    files = look(path, names=names, ids="string").files
    assert files.columns == {
        "when": "timestamp_ntz",
        "payer": "string",
        "payee": "string",
        "amount": "double",
    }
    assert (files.roles, files.ids, files.edges) == (names, "string", True)


def test_parquet_types(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "op": pa.array(["create"]).dictionary_encode(),
        "src": pa.array([1], pa.uint64()),
        "dst": pa.array([1], pa.int16()),
        "value": pa.array([[1.0]], pa.large_list(pa.float32())),
        "time": pa.array([1], pa.timestamp("ns")),
        "feature": pa.nulls(1),
        "extra": pa.array([{"a": 1}]),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    files = look(tmp_path).files
    assert files.columns == {
        "op": "string",
        "src": "decimal(20,0)",
        "dst": "bigint",
        "value": "array<float>",
        "time": "nanoseconds",
    }


def test_the_first_files_are_read_together(tmp_path: Path) -> None:
    for i, ids in enumerate(("1,2", "ann,3", "4,5")):
        path = write(tmp_path, f"in/{9 - i}.csv", f"src,dst\n{ids}\n")
        os.utime(path, (1000 + i,) * 2)
    write(tmp_path, "in/.hidden", "{}")
    write(tmp_path, "in/_SUCCESS", "")
    assert look(tmp_path / "in").files.columns == {"src": "string", "dst": "string"}


@pytest.mark.parametrize(
    ("text", "width"),
    [
        (EVENTS, 2),
        ("src,value\n1,0.5\n", 1),
        ("src,value\n1,\n2,1;2;3\n", 3),
        ("src,dst,value\n1,2,5\n", 0),
        ("element,src,dst,feature,value\nfeature,1,,other,1;2\n", 0),
    ],
)
def test_width_of_values(tmp_path: Path, text: str, width: int) -> None:
    assert look(write(tmp_path, "a.csv", text)).width == width


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({}, {}, "has no files yet"),
        ({"a.csv": "src,dst\n1,2\n", "b.json": "{}"}, {}, "several formats (a.csv, b.json)"),
        ({"a.csv.bz2": "x"}, {}, "compressed as bz2; use gzip"),
        ({"a.csv": "payer,payee\n1,2\n"}, {}, "has the columns payer, payee: none is 'src'"),
        (
            {"a.csv": "src,dst\n1,2\n"},
            {"names": {"time": "when"}},
            "no column 'when' for time; its columns are",
        ),
        ({"a.csv": "a,b\n1,2\n"}, {"names": {"src": "a"}}, "name both ends"),
        ({"a.csv": "src,dst,time\n1,2,noon\n"}, {}, "times that cannot be read, as 'noon'"),
        ({"a.csv": "src,dst\n1.5,2\n"}, {}, "ids with fractions in the column src"),
        ({"a.csv": "src,dst\n2026-01-01,2\n"}, {}, "has date in the column src; ids are"),
        ({"a.json": '[{"src": 1}]\n'}, {}, "no JSON object on line 1"),
        ({"a.json": '{"src": 1}\nsrc\n'}, {}, "no JSON object on line 2"),
        ({"a.json": "\n"}, {}, "is empty"),
        (
            {"a.csv": "src,dst\n1,2\n", "b.csv": "src,to\n1,2\n"},
            {},
            "b.csv has the columns src, to, but a.csv",
        ),
        ({"a.parquet": "no"}, {}, "cannot be read as Parquet"),
        ({"a.csv": "src,dst,dst\n1,2,3\n"}, {}, "a name of its own"),
    ],
)
def test_mistakes(tmp_path: Path, files: dict[str, str], options: dict[str, Any], message: str) -> None:
    (tmp_path / "in").mkdir()
    for i, (name, text) in enumerate(files.items()):
        os.utime(write(tmp_path, f"in/{name}", text), (1000 + i,) * 2)
    with pytest.raises(EdgeListError) as caught:
        look(tmp_path / "in", **options)
    assert message in str(caught.value)


def test_parquet_of_several_types(tmp_path: Path) -> None:
    for i, ids in enumerate(([1], ["ann"])):
        pq.write_table(pa.table({"src": ids, "dst": [2]}), tmp_path / f"{i}.parquet")
        os.utime(tmp_path / f"{i}.parquet", (1000 + i,) * 2)
    with pytest.raises(
        EdgeListError, match=r"1\.parquet has string in the column src, but 0\.parquet has bigint"
    ):
        look(tmp_path)


def test_no_such_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist; give a file or a folder"):
        look(tmp_path / "nothing")
