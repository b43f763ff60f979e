"""All formats of an edge list become the same arrays."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from d3gnn.sources import EdgeListError, read_edge_list


def write(folder: Path, text: str, name: str = "edges.txt") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def listed(ids: Any) -> list[Any]:
    return list(ids.tolist())


THREE = ([1, 2, 3], [2, 3, 1], [10, 20, 30])

SAME_EDGES = {
    "blanks": "1 2 10\n2 3 20\n3 1 30\n",
    "no newline at the end": "1 2 10\n2 3 20\n3 1 30",
    "many blanks": "  1   2 10\n2 \t 3  20  \n3 1 30\n",
    "blanks on the last line": "1 2 10\n2 3 20\n3 1 30 ",
    "comma": "1,2,10\n2,3,20\n3,1,30\n",
    "comma and blank": "1, 2, 10\n2, 3, 20\n3, 1, 30\n",
    "tab": "1\t2\t10\n2\t3\t20\n3\t1\t30\n",
    "semicolon": "1;2;10\n2;3;20\n3;1;30\n",
    "carriage returns": "1 2 10\r\n2 3 20\r\n3 1 30\r\n",
    "comments": "# made by hand\n% src dst time\n1 2 10\n2 3 20\n# half way\n3 1 30\n",
    "blank lines": "\n1 2 10\n\n2 3 20\n3 1 30\n\n",
    "byte order mark": "\ufeff1 2 10\n2 3 20\n3 1 30\n",
    "unordered": "3 1 30\n1 2 10\n2 3 20\n",
    "header": "src,dst,time\n1,2,10\n2,3,20\n3,1,30\n",
    "header, blanks": "u v t\n1 2 10\n2 3 20\n3 1 30\n",
    "header after a comment": "# edges\nu v t\n1 2 10\n2 3 20\n3 1 30\n",
    "header, other order": "timestamp,weight,target,source\n10,7,2,1\n20,7,3,2\n30,7,1,3\n",
    "header, quoted": '"FromNodeId";"ToNodeId";"Year"\n1;2;10\n2;3;20\n3;1;30\n',
    "header, user and item": "u,i,ts,label\n1,2,10,0\n2,3,20,0\n3,1,30,1\n",
    "header, i and j": "j,i,t\n2,1,10\n3,2,20\n1,3,30\n",
    "header, unknown names": "left,right,score\n1,2,10\n2,3,20\n3,1,30\n",
    "words after the time": "1 2 10 RT\n2 3 20 MT\n3 1 30 RE\n",
}


@pytest.mark.parametrize("text", SAME_EDGES.values(), ids=SAME_EDGES.keys())
def test_text_in_any_form(tmp_path: Path, text: str) -> None:
    edges = read_edge_list(write(tmp_path, text))
    assert (listed(edges.src), listed(edges.dst), listed(edges.time)) == THREE
    assert edges.src.dtype == edges.dst.dtype == edges.time.dtype == np.int64
    assert edges.op.dtype == np.int8
    assert listed(edges.op) == [1, 1, 1]
    assert len(edges) == 3


def test_gzip_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_bytes(gzip.compress(SAME_EDGES["blanks"].encode()))
    edges = read_edge_list(str(path))
    assert (listed(edges.src), listed(edges.dst), listed(edges.time)) == THREE


@pytest.mark.parametrize("kind", [pa.int32(), pa.uint64(), pa.float64(), None], ids=str)
def test_parquet_with_any_kind_of_integers(tmp_path: Path, kind: Any) -> None:
    ends = [pa.array(values, kind) if kind else pa.array(values).dictionary_encode() for values in THREE[:2]]
    table = pa.table(
        {"x": [[0.5]] * 3, "time": pa.array(THREE[2], pa.int16()), "target": ends[1], "source": ends[0]}
    )
    pq.write_table(table, tmp_path / "edges")
    edges = read_edge_list(tmp_path / "edges")
    assert (listed(edges.src), listed(edges.dst), listed(edges.time)) == THREE


def test_parquet_with_strings_dates_and_signs(tmp_path: Path) -> None:
    table = pa.table(
        {
            "u": pa.array(["a", "b"]).dictionary_encode(),
            "v": pa.array(["b", "a"], pa.large_string()),
            "change": ["+", "-"],
            "when": pa.array([1_000, 2_000], pa.timestamp("ms")),
        }
    )
    pq.write_table(table, tmp_path / "edges.parquet")
    edges = read_edge_list(tmp_path / "edges.parquet")
    assert (edges.src.to_pylist(), edges.dst.to_pylist()) == (["a", "b"], ["b", "a"])
    assert (listed(edges.time), listed(edges.op)) == ([1_000_000, 2_000_000], [1, -1])


STRING_IDS = {
    "words": ("ann bob 1\nbob cid 2\n", ["ann", "bob"], ["bob", "cid"]),
    "one word among integers": ("1,2,1\n2,x,2\n", ["1", "2"], ["2", "x"]),
    "zeros in front": ("007 a 1\n7 b 2\n", ["007", "7"], ["a", "b"]),
    "names that mean something to a parser": ("NA true 1\nnull nan 2\n", ["NA", "null"], ["true", "nan"]),
    "beyond 64 bits": ("1 99999999999999999999 1\n2 3 2\n", ["1", "2"], ["99999999999999999999", "3"]),
    "fractions": ("1.5 2 1\n2 3 2\n", ["1.5", "2"], ["2", "3"]),
    "blanks inside": ("ann a\tbob b\t1\ncid c\tann a\t2\n", ["ann a", "cid c"], ["bob b", "ann a"]),
    "known names that come back": ("u v\nv w\n", ["u", "v"], ["v", "w"]),
    "a header over words": ("source,target\nann,bob\nbob,cid\n", ["ann", "bob"], ["bob", "cid"]),
}


@pytest.mark.parametrize(("text", "src", "dst"), STRING_IDS.values(), ids=STRING_IDS.keys())
def test_ids_that_are_not_all_integers_are_strings(
    tmp_path: Path, text: str, src: list[str], dst: list[str]
) -> None:
    edges = read_edge_list(write(tmp_path, text))
    assert pa.types.is_string(edges.src.type)
    assert (edges.src.to_pylist(), edges.dst.to_pylist()) == (src, dst)


def test_strings_follow_the_order_of_time(tmp_path: Path) -> None:
    edges = read_edge_list(write(tmp_path, "ann bob 3\nbob cid 1\ncid dan 2\n"), limit=2)
    assert (edges.src.to_pylist(), edges.dst.to_pylist()) == (["bob", "cid"], ["cid", "dan"])


TIMES = {
    "none: the position": ("1 2\n3 4\n", [0, 1]),
    "a word: the position": ("1 2 a\n3 4 b\n", [0, 1]),
    "a weight: the position": ("1 2 0.5\n3 4 0.25\n", [0, 1]),
    "seconds stay as they are": ("1 2 1254192988\n3 4 1254194656\n", [1254192988, 1254194656]),
    "fractions of seconds": (
        "6,2,4,1289241911.72836\n6,5,2,1289241941.5\n",
        [1289241911728360, 1289241941500000],
    ),
    "a clock after an integer": ("1 2 -5 1300000000\n3 4 7 1300000001\n", [1300000000, 1300000001]),
    "dates": ("1,2,1970-01-02\n3,4,1970-01-03\n", [86_400_000_000, 172_800_000_000]),
    "moments": ("1,2,1970-01-01 00:00:01\n3,4,1970-01-01 00:00:02\n", [1_000_000, 2_000_000]),
    "moments in a zone": ("1,2,1970-01-01T00:00:01Z\n3,4,1970-01-01T00:00:02.5Z\n", [1_000_000, 2_500_000]),
    "named and fractional": ("u,v,t\n1,2,0.5\n3,4,1.5\n", [500_000, 1_500_000]),
    "first by name": ("year,u,v\n1990,1,2\n1991,3,4\n", [1990, 1991]),
}


@pytest.mark.parametrize(("text", "times"), TIMES.values(), ids=TIMES.keys())
def test_time(tmp_path: Path, text: str, times: list[int]) -> None:
    edges = read_edge_list(write(tmp_path, text))
    assert listed(edges.time) == times


SIGNED = {
    "date and sign in front": "# date,op,u,v\n19971108,+,1,2\n19971109,-,1,2\n",
    "ISO date and sign in front": "1997-11-08,+,1,2\n1997-11-09,-,1,2\n",
    "sign first": "+ 1 2 5\n- 1 2 6\n",
    "sign in the middle": "1 2 + 5\n1 2 - 6\n",
    "sign and no time": "1 2 +\n1 2 -\n",
    "sign first and no time": "+ 1 2\n- 1 2\n",
    "named": "op,u,v\n1,1,2\n-1,1,2\n",
}


@pytest.mark.parametrize("text", SIGNED.values(), ids=SIGNED.keys())
def test_signs_create_and_delete(tmp_path: Path, text: str) -> None:
    edges = read_edge_list(write(tmp_path, text))
    assert (listed(edges.src), listed(edges.dst), listed(edges.op)) == ([1, 1], [2, 2], [1, -1])
    assert edges.time[0] < edges.time[1]


def test_same_time_keeps_the_order_of_the_file(tmp_path: Path) -> None:
    edges = read_edge_list(write(tmp_path, "5 1 2\n4 1 1\n3 1 2\n2 1 1\n1 1 2\n"))
    assert listed(edges.src) == [4, 2, 5, 3, 1]


@pytest.mark.parametrize(("limit", "src"), [(0, []), (2, [1, 2]), (9, [1, 2, 3])])
@pytest.mark.parametrize("form", ["blanks", "unordered"])
def test_limit_keeps_the_earliest(tmp_path: Path, form: str, limit: int, src: list[int]) -> None:
    assert listed(read_edge_list(write(tmp_path, SAME_EDGES[form]), limit=limit).src) == src


REFUSED = {
    "empty": ("", "has no rows.*empty"),
    "only comments": ("# nothing\n", "has no rows"),
    "only a header": ("src,dst\n", "only a header"),
    "one column": ("1\n2\n", "fewer than two columns.*'1'"),
    "one column of ids": ("1 +\n2 -\n", "fewer than two columns of ids"),
    "a short line": (
        "1,2,3\n" * 30 + "4,5\n",
        "Expected 3 columns, got 2.*give every line the same number of columns",
    ),
    "no source": ("1,2\n,3\n", "no source id in edge 2"),
    "no target": ("a,b\na,\n", "no target id in edge 2"),
    "no time": ("u,v,t\n1,2,3\n1,2,\n", "no time in edge 2"),
    "time without an end": ("u,v,t\n1,2,0.5\n1,2,inf\n", "time inf in edge 2"),
    "time in words": ("u,v,t\n1,2,noon\n", "'noon'.*give integers, seconds or dates"),
    "unknown operation": ("op,u,v\nadd,1,2\n", "operation 'add' in edge 1; give [+] or -"),
    "binary": ("1 2\n\0\0", "neither text"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_unreadable_files_are_refused_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(EdgeListError, match=message) as caught:
        read_edge_list(write(tmp_path, text))
    assert "edges.txt" in str(caught.value)


def test_missing_files_folders_and_damage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv does not exist"):
        read_edge_list(tmp_path / "nowhere.csv")
    with pytest.raises(FileNotFoundError, match="is a folder"):
        read_edge_list(tmp_path)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"1 2\n" * 1000)[:-9])
    with pytest.raises(EdgeListError, match="damaged gzip"):
        read_edge_list(tmp_path / "cut.gz")
    with pytest.raises(EdgeListError, match="write the file again"):
        read_edge_list(_bytes(tmp_path, b"PAR1 and no more"))
    with pytest.raises(EdgeListError, match="save it as UTF-8"):
        read_edge_list(_bytes(tmp_path, b"a\xff b\nc d\n"))
    with pytest.raises(ValueError, match="limit=-1: must be 0 or more"):
        read_edge_list(tmp_path, limit=-1)


def _bytes(folder: Path, data: bytes) -> Path:
    path = folder / "raw"
    path.write_bytes(data)
    return path


def test_an_empty_parquet_table_is_refused(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"src": pa.array([], pa.int64()), "dst": pa.array([], pa.int64())}), tmp_path / "e"
    )
    with pytest.raises(EdgeListError, match="has no edges"):
        read_edge_list(tmp_path / "e")


# file: edges, vertices, deletes, first time, last time
REAL = {
    "sx-mathoverflow.txt.gz": (506_550, 24_818, 0, 1_254_192_988, 1_457_262_355),
    "ogbn-arxiv/edges_by_year.csv.gz": (1_166_243, 169_343, 0, 1990, 2020),
    "higgs-activity_time.txt.gz": (563_069, 304_691, 0, 1_341_100_972, 1_341_705_593),
    "as-733/as-733-events.csv.gz": (267_043, 7_716, 126_574, 19971108, 20000102),
    "wikipedia_edges.csv.gz": (157_474, 9_227, 0, 0, 2_678_373),
    "soc-sign-bitcoinotc.csv.gz": (35_592, 5_881, 0, 1_289_241_911_728_360, 1_453_684_323_757_280),
    "CollegeMsg.txt.gz": (59_835, 1_899, 0, 1_082_040_961, 1_098_777_142),
    "pubmed-temporal/edges.csv.gz": (44_324, 19_717, 0, 0, 42),
}


@pytest.mark.parametrize("name", REAL)
def test_real_streams(shared_data: Path, name: str) -> None:
    path = shared_data / name
    if not path.is_file():
        pytest.skip(f"{path} does not exist")
    edges = read_edge_list(path)
    vertices = len(np.union1d(edges.src, edges.dst))
    found = (len(edges), vertices, int((edges.op < 0).sum()), int(edges.time[0]), int(edges.time[-1]))
    assert found == REAL[name]
    assert (np.diff(edges.time) >= 0).all()
