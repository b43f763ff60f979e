"""The look into the first files: format, columns, and errors."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from d3gnn.sources import EdgeListError
from d3gnn.sources.files import Files, look
from d3gnn.sources.roles import Kind


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
        ("a.csv", "source,target,note,at\nann,bob,x,2026-01-01 10:00:00+02:00\n",
         "edges in CSV: src = source (string), dst = target (string); not used: note, at"),
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
    with pytest.raises(EdgeListError, match="date in the column time; --ts-unit is for integer times only"):
        look(write(tmp_path, "b.csv", "src,dst,time\n1,2,2026-01-01\n"), time_unit="s")
    with pytest.raises(EdgeListError, match="no column of times for --ts-unit; name one with --ts"):
        look(write(tmp_path, "c.csv", "src,dst\n1,2\n"), time_unit="ms")


@pytest.mark.parametrize(
    "row", ["ann,bob,2026-01-01 10:00:00", "ann,bob,2026-01-01T10:00:00.5Z", "ann,bob,x"]
)
def test_a_first_line_with_the_named_columns_is_a_header(tmp_path: Path, row: str) -> None:
    path = write(tmp_path, "a.csv", f"payer,payee,paid_at\n{row}\n")
    found = look(path, names={"src": "payer", "dst": "payee"}).files
    assert found.header
    assert (found.roles["src"], found.roles["dst"]) == ("payer", "payee")


def test_times_are_no_header(tmp_path: Path) -> None:
    found = look(write(tmp_path, "a.csv", "ann,bob,2026-01-01 10:00:00\n"))
    assert not found.files.header


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
    assert (files.roles, files.ids, files.element) == (names, "string", "edge")


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
    ("kind", "text", "options", "expected", "width"),
    [
        ("edges", "src,dst,element\n1,2,x\n", {},
         "edges in CSV: src = src (bigint), dst = dst (bigint); not used: element", 0),
        ("edges", "payer,payee,amount\n1,2,3\n",
         {"names": {"src": "payer", "dst": "payee", "value": "amount"}},
         "edges in CSV: src = payer (bigint), dst = payee (bigint), value = amount (double)", 0),
        ("features", "id,a,b,name\n1,2,3.5,x\n", {},
         "features in CSV: src = id (bigint), value = a + b; not used: name", 2),
        ("features", "1 0.5 2 7\n2 1 1 1\n", {},
         "features in text between white space: src = c1 (bigint), value = c2 + c3 + c4", 3),
        ("features", "user_id,ts,x,year\nann,5,0.5,1999\n", {},
         "features in CSV: src = user_id (string), time = ts (bigint), value = x + year", 2),
        ("features", "who,vector\n7,0.5;1\n", {"names": {"src": "who"}},
         "features in CSV: src = who (bigint), value = vector (string)", 2),
        ("features", "id,op,feature,value,time\n1,update,risk,0.5,3\n2,,x,1 2,3\n", {},
         "features in CSV: op = op (string), src = id (bigint), feature = feature (string), "
         "value = value (string), time = time (bigint)", 2),
        ("features", "id,feature\n1,2\n", {},
         "features in CSV: src = id (bigint), value = feature (double)", 1),
        ("features", "id,a,b,c\n1,2,3,4\n", {"values": ["c", "a"]},
         "features in CSV: src = id (bigint), value = c + a; not used: b", 2),
        ("labels", "node,fraud\n1,0\n", {}, "labels in CSV: src = node (bigint), value = fraud (double)", 1),
        ("labels", "id,split,class\n1,train,3\n", {},
         "labels in CSV: src = id (bigint), value = class (double); not used: split", 1),
        ("labels", "id,a,b\n1,2,3\n", {"values": ["a", "b"], "ids": "string"},
         "labels in CSV: src = id (string), value = a + b", 2),
    ],
)  # fmt: skip
def test_what_files_of_one_kind_hold(
    tmp_path: Path, kind: Kind, text: str, options: dict[str, Any], expected: str, width: int
) -> None:
    found = look(write(tmp_path, "a.csv", text), kind=kind, **options)
    assert str(found.files) == expected
    assert found.width == width
    assert Files(**json.loads(json.dumps(asdict(found.files)))) == found.files


def test_features_in_parquet_and_json(tmp_path: Path) -> None:
    vectors = {"id": [1, 2], "vector": [[0.5, 1.0], None], "score": pa.array([1, 2], pa.int8())}
    pq.write_table(pa.table(vectors), tmp_path / "a.parquet")
    with pytest.raises(EdgeListError, match="with --feature-value"):
        look(tmp_path / "a.parquet", kind="features")
    found = look(tmp_path / "a.parquet", kind="features", values=["vector"])
    assert found.files.columns == {"id": "bigint", "vector": "array<double>"}
    assert found.width == 2
    found = look(write(tmp_path, "a.json", '{"id": "ann", "a": 1, "b": 2}\n'), kind="features")
    assert (found.files.values, found.files.columns) == (
        ["a", "b"],
        {"id": "string", "a": "double", "b": "double"},
    )


@pytest.mark.parametrize(
    ("kind", "text", "options", "message"),
    [
        ("edges", "src,w\n1,2\n", {}, "none is 'dst'; name the ends of an edge with --src and --dst"),
        ("features", "person,a\n1,2\n", {},
         "none is 'id'; name the one with the ids of the vertices with --feature-id"),
        ("labels", "person,a\n1,2\n", {}, "with --label-id"),
        ("features", "id,name,town\n1,ann,york\n", {}, "all columns with its numbers, with --feature-value"),
        ("features", "id,name\n1,ann\n", {},
         "string in the column name, as 'ann'; a feature is a number or a list"),
        ("features", "id,a,b\n1,2,x\n", {"values": ["a", "b"]},
         "string in the column b, as 'x'; a feature is a number"),
        ("features", "id,a\n1,2\n", {"values": ["z"]}, "no column 'z' for value; its columns are id, a"),
        ("labels", "id,a,b\n1,2,3\n", {}, "none is 'label'; name the one with the labels with --label-value"),
        ("labels", "id,label\n1,fraud\n", {}, "string in the column label, as 'fraud'; a label is a number"),
        ("labels", "id,label\n1.5,2\n", {}, "ids with fractions in the column id"),
    ],
)  # fmt: skip
def test_mistakes_in_files_of_one_kind(
    tmp_path: Path, kind: Kind, text: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(EdgeListError) as caught:
        look(write(tmp_path, "a.csv", text), kind=kind, **options)
    assert message in str(caught.value)


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
        ({"a.csv": "a,b\n1,2\n"}, {"names": {"src": "a"}}, "give both --src and --dst"),
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
