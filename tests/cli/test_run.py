"""`d3gnn run` and the demo on Spark: files in, a table out, and errors of one line."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import torch
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from d3gnn import __version__
from d3gnn.cli import app
from d3gnn.cli.spark import first_words, known_problem
from d3gnn.events import Event, EventBatch, GraphSchema, edge, feature
from d3gnn.kernel.operators import Partition
from d3gnn.kernel.partitioners import HDRF
from d3gnn.nn import GNN, GraphSAGE, Regressor, SAGEConv
from d3gnn.oracle import Oracle, embeddings, relative_error
from d3gnn.runtime.plan import default_arrays
from d3gnn.runtime.store_settings import store_settings
from d3gnn.sources.files import TimeUnit, look
from d3gnn.sources.stream import stream_events
from d3gnn.spark.frames import event_columns
from d3gnn.store.entry import EntryMeta
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.store import Store

PNG = b"\x89PNG\r\n\x1a\n"
SCHEMA = GraphSchema(features={"x": 2})


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for checkpoint in tmp_path.rglob("graph"):  # arrays are elsewhere
        for name in ("pipeline", "demo"):
            shutil.rmtree(default_arrays(name, str(checkpoint)), ignore_errors=True)


def run(*arguments: str | float | Path, code: int = 0) -> tuple[str, str]:
    """Standard output and standard error of a command that ends with `code`."""
    result = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


def write(path: Path, text: str, number: int = 0) -> Path:
    """A file that is older than those with higher numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    os.utime(path, (1_700_000_000 + number,) * 2)
    return path


def places(folder: Path) -> list[Any]:
    return ["--output", folder / "out", "--checkpoint", folder / "checkpoint"]


def table(folder: Path) -> dict[Any, list[float]]:
    """The newest row of each id, as any reader sees it."""
    rows = ds.dataset(folder / "out").to_table().to_pylist()
    newest = {row["id"]: row for row in sorted(rows, key=lambda row: row["batch_id"])}
    return {id: row["embedding"] for id, row in newest.items() if not row["deleted"]}


def check(folder: Path, oracle: Oracle, model: Any) -> None:
    expected, got = embeddings(model, oracle), table(folder)
    assert set(got) == set(expected)
    have = np.array([got[id] for id in expected], np.float32)
    assert relative_error(have, np.stack(list(expected.values()))) < 1e-5


# ---------------------------------------------------------------------- reading

BEGIN = 1_767_225_600_000_000  # of 2026
EVENTS = [
    ("create", "edge", "1", "2", 5, None),
    ("delete", "edge", "1", "2", 6, None),
    ("create", "feature", "1", None, 7, [0.5, -2.0]),
]
EDGES = [("create", "edge", "1", "2", 10**9, None), ("create", "edge", "3", "x", 10**9 + 1, None)]
#: Files, and the events that they hold.
WRITTEN: dict[str, tuple[str, list[Any]]] = {
    "brackets/a.csv": (
        "op,element,src,dst,value,time\ncreate,edge,1,2,,5\ndelete,edge,1,2,,6\n"
        'create,feature,1,,"[0.5, -2]",7\n',
        EVENTS,
    ),
    "gaps/a.csv.gz": (
        "src, dst,op,element,value,time\n1, 2,,,,5\n1, 2,delete,,,6\n1,,,feature,0.5;-2 , 7\n",
        EVENTS,
    ),
    "objects/a.json": (
        '{"src": 1, "dst": 2, "time": 5}\n{"op": "delete", "src": 1, "dst": 2, "time": 6}\n'
        '{"element": "feature", "src": 1, "value": [0.5, -2], "time": 7}\n',
        EVENTS,
    ),
    "blanks.txt": ("# a comment\n1  2 1000000000\n\n 3\tx 1000000001 \n", EDGES),
    "odd [1]*.txt.gz": ("src dst ts\n1 2 1000000000\n3 x 1000000001\n", EDGES),
    "signs.csv": ("# op\n1000000000,+,1,2\n1000000001,+,3,x\n", EDGES),
    "zones.json": (
        '{"src": "a", "time": "2026-01-01 00:00:01"}\n{"src": "a", "time": "2026-01-01T02:00:02+02:00"}\n',
        [("create", "vertex", "a", None, BEGIN + seconds * 10**6, None) for seconds in (1, 2)],
    ),
    "seconds.csv": (
        f"src,dst,time\n7,8.0,{BEGIN // 10**6}.5\n",
        [("create", "edge", "7", "8", BEGIN + 500_000, None)],
    ),
    "times in s.csv": (
        f"src,dst,time\n1,2,{2**62}\n7,8,-1\n7,9,1767225600\n",
        [
            ("create", "edge", "1", "2", None, None),  # which is beyond all times
            ("create", "edge", "7", "8", -1_000_000, None),
            ("create", "edge", "7", "9", BEGIN, None),
        ],
    ),
    "times in ms.json": (
        '{"src": 7, "dst": 8, "time": 1767225600001}\n',
        [("create", "edge", "7", "8", BEGIN + 1000, None)],
    ),
    "times in ns.txt": ("7 8 1767225600000001999\n", [("create", "edge", "7", "8", BEGIN + 1, None)]),
    "words.csv": ("src,dst,time\n7,8,1\n7,8,2\n7,nine,3\n", [("create", "edge", "7", "nine", 3, None)]),
}
UNITS: dict[str, TimeUnit] = {"times in s.csv": "s", "times in ms.json": "ms", "times in ns.txt": "ns"}


def _as_pandas_writes(path: Path) -> Path:
    """Nanoseconds, and integers that became floating point because some are missing."""
    columns = {
        "op": ["create", "delete", "create"],
        "element": ["edge", "edge", "feature"],
        "src": [1, 1, 1],
        "dst": pa.array([2, 2, None], pa.float64()),
        "value": [None, None, [0.5, -2.0]],
        "time": pa.array([5000, 6000, 7000], pa.timestamp("ns")),
    }
    pq.write_table(pa.table(columns), path)
    return path


def test_each_way_of_writing_events(spark: SparkSession, tmp_path: Path) -> None:
    """One stream of all of them, which is faster than one for each."""
    paths = {name: write(tmp_path / name, text) for name, (text, _) in WRITTEN.items()}
    paths["pandas.parquet"] = _as_pandas_writes(tmp_path / "pandas.parquet")
    expected = {name: events for name, (_, events) in WRITTEN.items()} | {"pandas.parquet": EVENTS}
    expected["words.csv"] = [("create", "edge", "7", "8", time, None) for time in (1, 2)] + expected[
        "words.csv"
    ]
    streams = [
        event_columns(stream_events(spark, look(path, time_unit=UNITS.get(name)).files))
        .withColumns({"src": F.col("src").cast("string"), "dst": F.col("dst").cast("string")})
        .withColumn("name", F.lit(name))
        for name, path in paths.items()
    ]
    query = reduce(DataFrame.union, streams).writeStream.format("memory").queryName("written")
    query.trigger(availableNow=True).start().awaitTermination()
    found = defaultdict(list)
    for row in spark.table("written").orderBy("time").collect():
        found[row.name].append((row.op, row.element, row.src, row.dst, row.time, row.value))
        assert row.arrival > 0
    assert dict(found) == expected


# ---------------------------------------------------------------------- running


def test_all_kinds_of_events_over_several_starts(spark: SparkSession, folder: Path) -> None:
    oracle, model = Oracle(SCHEMA), GraphSAGE(2, 8, 2, 4, seed=3)
    model.save(folder / "model.safetensors")
    head = "op,element,src,dst,feature,value,time\n"
    write(
        folder / "in" / "a.csv",
        head + 'create,edge,ann,bob,,,1\ncreate,feature,ann,,x,"[0.1, 0.2]",2\ncreate,edge,bob,cho,,,3\n',
    )
    write(
        folder / "in" / "b.csv",
        head + "delete,edge,bob,cho,,,4\nupdate,feature,bob,,,0.3;0.4,5\ndelete,edge,zoe,ann,,,6\n"
        "create,edge,ann,,,,7\ndelete,vertex,cho,,,,8\n",
        1,
    )
    oracle.apply(
        [
            Event("create", "edge", "ann", "bob", time=1),
            Event("create", "feature", "ann", value=[0.1, 0.2], time=2),
            Event("create", "edge", "bob", "cho", time=3),
            Event("delete", "edge", "bob", "cho", time=4),
            Event("update", "feature", "bob", value=[0.3, 0.4], time=5),
            Event("delete", "vertex", "cho", time=8),
        ]
    )
    command: list[Any] = ["run", folder / "in", *places(folder), "--model", folder / "model.safetensors"]
    out, err = run(*command, "--batch-files", 1, "--json")
    assert out.count("\n") == 1, "one JSON object and nothing else"
    result = json.loads(out)
    assert (result["version"], result["finished"], result["restarted"]) == (__version__, True, 0)
    assert (result["events"], result["batches"], result["dead_letters"]) == (8, 2, 2)
    assert result["dead_letter_reasons"]["the edge does not exist"] == 1
    assert result["rows"] == ds.dataset(folder / "out").count_rows()
    assert result["tombstones"] == 1
    assert "found: events in CSV: op = op (string)" in err
    assert "first batch" in err
    check(folder, oracle, model)
    letters = pq.read_table(folder / "checkpoint" / "graph" / "dead_letters")
    assert set(letters["reason"].to_pylist()) == set(result["dead_letter_reasons"])

    _, err = run(*command)
    assert "0 events in 0 batches" in err
    assert "no new input: each file is read once" in err

    write(folder / "in" / "c.csv", head + "create,edge,cho,ann,,,9\n", 2)
    oracle.apply([Event("create", "edge", "cho", "ann", time=9)])
    _, err = run(*command)
    assert "done after" in err
    assert "1 events in 1 batches" in err
    assert f"next: d3gnn verify --checkpoint {folder / 'checkpoint'}" in err
    check(folder, oracle, model)
    assert "exact" in run("verify", "--checkpoint", folder / "checkpoint")[1]

    def refused(message: str, *arguments: str | Path) -> None:
        _, err = run(*arguments, code=2)
        assert message in err.splitlines()[-1]

    refused("parts is 2 in the store, and 4 here", *command, "--parts", "4")
    refused("was started with ids not given, not integer", *command, "--ids", "integer")
    refused("was started with input", "run", folder / "model.safetensors", *places(folder))
    refused("was started with output", *command, "--output", folder / "other")
    refused("has files already", *command, "--checkpoint", folder / "other")


def test_a_file_is_cut_and_a_bad_event_stops(spark: SparkSession, folder: Path) -> None:
    lines = [f"{i % 7} {i % 5} {i}\n" for i in range(1000, 1040)]
    path = write(folder / "edges.txt.gz", "".join(lines))
    options = ["--edges-mode", "multi", "--undirected", "--widths", "3,4", "--aggregator", "sum"]
    out, _ = run("run", path, *places(folder), *options, "--batch", 15, "--json")
    assert [json.loads(out)[name] for name in ("events", "batches", "last_batch")] == [40, 3, 2]
    oracle = Oracle(GraphSchema(edges="multi", directed=False, features={"x": 3}, missing="hash"))
    oracle.apply([Event("create", "edge", int(s), int(d), time=int(t)) for s, d, t in map(str.split, lines)])
    check(folder, oracle, GraphSAGE(3, 4, 1, aggr="sum", seed=0))

    bad = write(folder / "bad.csv", "op,src,dst,time\ncreate,1,2,1\ndelete,3,4,2\n")
    _, err = run("run", bad, *places(folder / "bad"), "--on-dead-letter", "stop", code=2)
    assert err.splitlines()[-1] == "error: batch 0: delete edge 3 -> 4 at 2: the edge does not exist"


def test_alerts_of_a_model_with_a_head(spark: SparkSession, folder: Path) -> None:
    torch.manual_seed(0)
    GNN([SAGEConv(3, 4)], Regressor()).save(folder / "model.safetensors")
    path = write(folder / "edges.csv", "".join(["src,dst\n", *(f"{i},{(i * 7) % 30}\n" for i in range(30))]))
    command: list[str | Path] = ["run", path, "--model", folder / "model.safetensors"]
    _, err = run(*command, *places(folder / "all"))
    assert "warning: 30 of 30 vertices lack a feature. The model sees random numbers instead" in err
    scores = sorted(ds.dataset(folder / "all" / "out").to_table()["score"].to_pylist())
    run(*command, *places(folder / "few"), "--threshold", scores[-5])
    assert sorted(ds.dataset(folder / "few" / "out").to_table()["score"].to_pylist()) == scores[-5:]


def test_a_run_on_a_fork(spark: SparkSession, folder: Path) -> None:
    """Wider features, whose mean is the input of vertices without; the run takes both from the store."""
    old, events = (
        GraphSchema(features={"x": 1}),
        EventBatch.of(
            [edge("ann", "bob", time=1), feature("ann", [1.0], time=2), feature("bob", [4.0], time=3)]
        ),
    )
    store = Store(folder / "old" / "graph")
    store.fix(store_settings("pipeline", 2, HDRF(), old, "string", "int"))
    result = Partition(old, 2).process(events, clock=1)
    GraphLog(store).create(0, result.entry, EntryMeta.of(0, events, result.status))
    options: list[Any] = ["--parts", 3, "--partitioner", "random"]
    fork: list[Any] = [
        "fork",
        folder / "old",
        folder / "checkpoint",
        "--vertex-features",
        "x=2",
        "--fill",
        "x=0.5",
    ]
    out, _ = run(*fork, *options, "--missing", "mean", "--json")
    made = json.loads(out)
    assert [made[name] for name in ("batch", "entries", "events", "vertices", "lacking")] == [0, 1, 3, 2, 0]
    assert "is not empty" in run(*fork, code=2)[1]

    oracle = Oracle(GraphSchema(features={"x": 2}, missing={"x": [2.5, 0.5]}))
    oracle.apply(
        [edge("ann", "bob"), feature("ann", [1.0, 0.5]), feature("bob", [4.0, 0.5]), edge("cho", "ann")]
    )
    model = GraphSAGE(2, 8, 2, 4, seed=3)
    model.save(folder / "model.safetensors")
    path = write(folder / "more.csv", "src,dst,time\ncho,ann,4\n")
    out, err = run("run", path, *places(folder), *options, "--model", folder / "model.safetensors", "--json")
    assert [json.loads(out)[name] for name in ("events", "vertices", "lacking")] == [1, 3, 1]
    assert "warning" not in err
    check(folder, oracle, model)
    assert "exact" in run("verify", "--checkpoint", folder / "checkpoint")[1]


@contextmanager
def interrupted(folder: Path, batches: int, more: str | None = None) -> Iterator[None]:
    """Ctrl-C after this number of commits; after the first one, a file with `more` is added if given."""

    def commits(wanted: int) -> None:
        for _ in range(600):
            if len(list((folder / "checkpoint" / "commits").glob("[0-9]*"))) >= wanted:
                return
            time.sleep(0.1)

    def interrupt() -> None:
        if more is not None:
            commits(1)
            write(folder / "b.csv", more, 1).rename(folder / "in" / "b.csv")
        commits(batches)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    yield
    thread.join()


def test_follow_until_a_signal(spark: SparkSession, folder: Path) -> None:
    write(folder / "in" / "a.csv", "src,dst\n1,2\n")
    with interrupted(folder, 2, "src,dst\n2,3\n"):
        _, err = run("run", folder / "in", *places(folder), "--follow", "--every", 0.1)
    assert "stopped after" in err
    assert "2 events in 2 batches" in err
    assert set(table(folder)) == {1, 2, 3}


def test_follow_waits_for_the_first_file_of_an_empty_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("d3gnn.spark.session.session", None)
    (folder / "in").mkdir()
    command = ("run", folder / "in", *places(folder), "--follow", "--ts", "when")

    def later(act: Callable[[], Any], *, code: int) -> str:
        timer = threading.Timer(0.3, act)
        timer.start()
        _, err = run(*command, code=code)
        timer.join()
        assert f"waiting for files in {folder / 'in'} (Ctrl-C to stop)" in err
        return err

    later(lambda: os.kill(os.getpid(), signal.SIGTERM), code=0)
    found = later(lambda: write(folder / "in" / "a.csv", "src,dst\n1,2\n"), code=2)
    assert "a.csv has no column 'when' for time" in found, "it does not look at the new file"


def test_pending_changes_are_flushed_when_a_run_is_stopped(spark: SparkSession, folder: Path) -> None:
    write(folder / "in" / "a.csv", "src,dst,ts\n1,2,10\n3,2,11\n")
    options = ("--follow", "--every", 0.1, "--window", "tumbling:3600", "--clock", "event")
    with interrupted(folder, 2, "src,dst,ts\n4,2,12\n"):
        _, err = run("run", folder / "in", *places(folder), *options)
    assert "windows: Tumbling(interval=3600.0), by event time; integers in ts are microseconds" in err
    assert "stopped after" in err
    assert "pending in windows" not in err
    assert "exact: 4 vertices" in run("verify", "--checkpoint", folder / "checkpoint")[1]


def test_event_time_can_be_in_seconds(spark: SparkSession, folder: Path) -> None:
    """A change pending since 10 s is due at 15 s, with an event of that time, together with one of 11 s."""
    write(folder / "in" / "a.csv", "src,dst,ts\n1,2,10\n")
    write(folder / "in" / "b.csv", "src,dst,ts\n3,2,11\n", 1)
    write(folder / "in" / "c.csv", "src,dst,ts\n4,5,15\n", 2)
    write(folder / "in" / "d.csv", "src,dst,ts\n6,7,16\n", 3)
    options = ("--batch-files", 1, "--window", "tumbling:5", "--window", "none", "--clock", "event")
    command = ("run", folder / "in", *places(folder), *options)
    _, err = run(*command, "--ts-unit", "s")
    assert "time = ts (bigint in s)" in err
    assert "by event time\n" in err
    rows = ds.dataset(folder / "out").to_table().to_pylist()
    of_two = {row["batch_id"]: row["time"].timestamp() for row in rows if row["id"] == 2}
    assert of_two == {0: 10, 2: 11}, "its first value, which is never delayed, and both edges"
    _, err = run(*command, "--ts-unit", "ms", code=2)
    assert "was started with ts-unit s, not ms" in err


def test_pending_changes_are_reported(spark: SparkSession, folder: Path) -> None:
    for number in range(40):
        write(folder / "in" / f"{number}.csv", f"src,dst,ts\n{number % 7},{number % 5},{number}\n", number)
    command = ("run", folder / "in", *places(folder), "--batch-files", 1, "--window", "tumbling:3600")
    with interrupted(folder, 3):
        _, err = run(*command, code=130)
    assert "changes are pending in windows; the next run flushes them" in err
    _, err = run("verify", "--checkpoint", folder / "checkpoint", code=1)
    assert "pending: " in err
    assert "windows hold changes back; flush them with `d3gnn run` without --follow" in err
    _, err = run(*command)
    assert "pending in windows" not in err
    assert "exact: 7 vertices" in run("verify", "--checkpoint", folder / "checkpoint")[1]


def test_demo_on_spark(spark: SparkSession, folder: Path) -> None:
    _, err = run("demo", "--edges", "2000", "--batch", "800", "--out", folder)
    assert "dead letters" in err
    assert "Moved most" in err
    assert "exact: 100 vertices" in err
    assert (folder / "demo.png").read_bytes().startswith(PNG)
    assert "exact" in run("verify", "--checkpoint", folder / "demo" / "checkpoint")[1]


# ---------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "nothing does not exist; give a file or a folder"),
        (("empty",), "empty has no files yet"),
        (("a.csv", "--ts", "when"), "a.csv has no column 'when' for time; its columns are src, dst, x"),
        (("a.csv", "--widths", "8"), "the width of the input and of at least one layer is needed"),
        (("a.csv", "--widths", "8,many"), "--widths 8,many: must be integers separated by commas"),
        (("a.csv", "--vertex-features", "x=3", "--widths", "8,4"), "the model takes 8 inputs"),
        (("a.csv", "--vertex-features", "x"), "--vertex-features x: must be names and widths"),
        (("v.csv", "--widths", "8,4"), "takes 8 inputs, but the first value of a vertex has 3 numbers"),
        (("a.csv", "--model", "nothing"), "no model at nothing"),
        (("a.csv", "--model", "a.csv"), "a.csv is not a safetensors file"),
        (("a.csv", "--model", "a.csv", "--widths", "8,4"), "leave out the other options"),
        (("a.csv", "--classes", "a"), "--classes a: must be class numbers"),
        (("a.csv", "--threshold", "0.5"), "alerts need a model with a head"),
        (("a.csv", "--parts", "0"), "parts=0: must be an integer of at least 1"),
        (("a.csv", "--batch", "0"), "--batch 0: must be at least 1"),
        (("a.csv", "--follow"), "--follow waits for new files in a folder"),
        (("a.csv", "--follow", "--every", "-1"), "--every -1.0: must be 0 seconds or more"),
        ((".", "--batch", "5"), "--batch cuts single files"),
        ((".", "--batch-files", "0"), "--batch-files 0: must be at least 1"),
        ((".",), "--output out is inside the input folder ."),
        (("a.csv", "--output", "a.csv"), "--output a.csv is a file"),
        (("a.csv", "--checkpoint", "out"), "are the same folder"),
        (("a.csv", "--checkpoint", "other"), "other belongs to a query that `d3gnn run` did not start"),
        (("a.csv", "--output", "full"), "full has files already"),
        (("mixed",), "mixed has files of several formats"),
    ],
)
def test_mistakes_are_one_line_before_spark_is_there(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("d3gnn.spark.session.session", None)
    write(tmp_path / "a.csv", "src,dst,x\n1,2,3\n")
    write(tmp_path / "v.csv", "src,value\n1,1;2;3\n")
    for name in ("other/graph/settings.json", "full/x", "mixed/a.csv", "mixed/b.json"):
        write(tmp_path / name, "{}")
    (tmp_path / "empty").mkdir()
    _, err = run("run", arguments[0], "--output", "out", "--checkpoint", "checkpoint", *arguments[1:], code=2)
    *before, last = err.splitlines()
    assert last.startswith("error: ")
    assert message in last
    assert before == ["loading ..."]


def test_files_that_differ_from_the_first(spark: SparkSession, tmp_path: Path) -> None:
    for i in range(3):
        write(tmp_path / "csv" / f"{i}.csv", "src,dst\n1,2\n", i)
        (tmp_path / "parquet").mkdir(exist_ok=True)
        pq.write_table(pa.table({"src": [1], "dst": [2]}), tmp_path / "parquet" / f"{i}.parquet")
        os.utime(tmp_path / "parquet" / f"{i}.parquet", (1000 + i,) * 2)
    write(tmp_path / "csv" / "3.csv", "src,to\n1,2\n", 3)
    pq.write_table(pa.table({"src": ["ann"], "dst": [2]}), tmp_path / "parquet" / "3.parquet")

    def problem(path: Path) -> str | None:
        query = stream_events(spark, look(path).files).writeStream.format("noop")
        with pytest.raises(StreamingQueryException) as caught:
            query.trigger(availableNow=True).start().awaitTermination()
        return known_problem(caught.value)

    assert "3.csv has the columns src, to, but the files before it have src, dst" in str(
        problem(tmp_path / "csv")
    )
    assert "3.parquet has BINARY in the column src, but the files before it have bigint" in str(
        problem(tmp_path / "parquet")
    )


def test_other_errors_lose_their_stack() -> None:
    text = "\n".join(
        [
            "[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_EXCEPTION] An exception was",
            "thrown from the Python worker: Traceback (most recent call last):",
            '  File "host.py", line 87, in task',
            "    oops",
            "KeyError: 'oops'",
            " SQLSTATE: 38000",
            "\tat org.apache.spark.api.python.BasePythonRunner",
        ]
    )
    assert known_problem(RuntimeError(text)) is None
    assert first_words(RuntimeError(text)) == "KeyError: 'oops'"
    assert first_words(RuntimeError("Job aborted\n\tat x\nCaused by: y: broken\n\tat z")) == "y: broken"


def test_lifetimes_and_the_graph_of_another_run(folder: Path) -> None:
    """Edges and tombstones expire as the options say; a run with another source takes over the graph."""
    first = write(
        folder / "first.csv", "op,element,src,dst,time\ncreate,edge,1,2,0\ncreate,edge,2,3,5000000\n"
    )
    options: list[Any] = ["--ttl", "10s", "--vertex-ttl", "1h", "--tombstones", "1d", "--max-abs", 5]
    options += ["--widths", "2,4,4"]
    run("run", first, *places(folder), *options)
    stored = Store(folder / "checkpoint" / "graph").settings["schema"]
    seconds = {"ttl": 10, "vertex_ttl": 3600, "tombstones": 86400}
    assert {name: stored[name] for name in seconds} == {name: s * 10**6 for name, s in seconds.items()}
    assert "idle" not in stored
    assert "d3gnn fork" in run("run", first, *places(folder), "--ttl", "11s", code=2)[1]

    second = write(folder / "second.csv", "from,to,when\n3,4,12\n")
    taken = ["--adopt", folder / "checkpoint", "--ts", "when", "--ts-unit", "s", *options]
    new: list[Any] = ["--output", folder / "output2", "--checkpoint", folder / "checkpoint2"]
    _, err = run("run", second, *new, *taken)
    assert f"next: d3gnn verify --checkpoint {folder / 'checkpoint' / 'graph'}" in err
    schema = GraphSchema(**stored)
    oracle = Oracle(schema.for_model(2))
    oracle.apply([edge(1, 2, time=0), edge(2, 3, time=5_000_000)])
    oracle.apply([edge(3, 4, time=12_000_000)])
    assert oracle.edges() == [(2, 3), (3, 4)]
    log = GraphLog(Store(folder / "checkpoint" / "graph"))
    assert log.last() == 2  # 1 separates the queries
    graph = log.graph().select(["element", "src", "dst"]).to_pylist()
    assert [(row["src"], row["dst"]) for row in graph if row["element"] == "edge"] == oracle.edges()
    assert "exact" in run("verify", "--checkpoint", folder / "checkpoint")[1]
    assert "repeat the options" in run("run", second, *new, *taken[2:], code=2)[1]
    assert "no new input" in run("run", second, *new, *taken)[1]
    assert (
        "give another checkpoint"
        in run("run", first, *places(folder), "--adopt", folder / "checkpoint", code=2)[1]
    )
    assert "neither a checkpoint" in run("run", first, *new, "--adopt", folder / "none", code=2)[1]
