"""`d3gnn run` with several inputs: edges, features, labels and events, from files and folders."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from d3gnn.cli import app
from d3gnn.cli.run.display import Backlog
from d3gnn.events import Event, GraphSchema, delete_edge, edge, feature, label
from d3gnn.nn import GraphSAGE
from d3gnn.oracle import Oracle, embeddings, relative_error
from d3gnn.runtime.plan import default_arrays
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.store import Store

WIDTHS = ("--widths", "2,8,4", "--aggregator", "sum", "--seed", 5)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for checkpoint in tmp_path.rglob("graph"):  # arrays are elsewhere
        shutil.rmtree(default_arrays("pipeline", str(checkpoint)), ignore_errors=True)


def run(*arguments: Any, code: int = 0) -> tuple[str, str]:
    """Standard output and standard error of `d3gnn run` with one output and checkpoint."""
    options = ["--output", "out", "--checkpoint", "checkpoint"]
    command = [str(a) for a in (*arguments, *(options if arguments[0] == "run" else []))]
    result = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, command)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


def write(path: Path, text: str, number: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    os.utime(path, (1_700_000_000 + number,) * 2)
    return path


def write_table(path: Path, columns: dict[str, Any], number: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    os.utime(path, (1_700_000_000 + number,) * 2)
    return path


def check(folder: Path, oracle: Oracle, model: Any) -> None:
    """The table and the graph log against recomputation."""
    rows = ds.dataset(folder / "out").to_table().to_pylist()
    newest = {row["id"]: row for row in sorted(rows, key=lambda row: row["batch_id"])}
    got = {id: row["embedding"] for id, row in newest.items() if not row["deleted"]}
    expected = embeddings(model, oracle)
    assert set(got) == set(expected)
    have = np.array([got[id] for id in expected], np.float32)
    assert relative_error(have, np.stack(list(expected.values()))) < 1e-5
    logged = Oracle(oracle.schema)
    for entry in GraphLog(Store(str(folder / "checkpoint" / "graph"))).entries():
        logged.apply(entry.events)
    assert (logged.labels, logged.parked_labels) == (oracle.labels, oracle.parked_labels)
    assert sorted(logged.edges()) == sorted(oracle.edges())
    _, err = run("verify", "--checkpoint", "checkpoint")
    assert f"exact: {len(expected)} vertices" in err


def test_edges_features_and_labels_from_three_files(spark: SparkSession, folder: Path) -> None:
    rng = np.random.default_rng(7)
    ends = rng.integers(0, 40, (300, 2)).tolist()
    signs = ["-" if i > 100 and i % 9 == 0 else "+" for i in range(300)]
    for i, sign in enumerate(signs):
        if sign == "-":  # each deletes an edge that was created before
            ends[i] = ends[i - 50] if signs[i - 50] == "+" else ends[i - 51]
    lines = [f"{u},{v},{1000 + i},{signs[i]}\n" for i, (u, v) in enumerate(ends)]
    write(folder / "edges.csv.gz", "".join(["payer,payee,at,sign\n", *lines]))
    values = np.round(rng.normal(size=(60, 2)), 3).astype(np.float32)
    ids = [i % 45 for i in range(60)]  # fifteen of them twice: the newer one wins
    write_table(
        folder / "features.parquet",
        {"account": ids, "age": values[:, 0], "balance": values[:, 1], "at": range(60)},
    )
    labelled = range(0, 50, 5)
    write(folder / "labels.csv", "".join(["id,class,split\n", *(f"{i},{i % 3},train\n" for i in labelled)]))

    oracle = Oracle(GraphSchema(edges="multi", features={"x": 2}))
    events: list[Event] = [
        delete_edge(u, v, time=1000 + i) if signs[i] == "-" else edge(u, v, time=1000 + i)
        for i, (u, v) in enumerate(ends)
    ]
    events += [feature(ids[i], values[i].tolist(), time=i) for i in range(60)]
    events += [label(i, i % 3) for i in labelled]
    dead = sum(reason.is_dead for reason in oracle.apply(events))

    command: list[Any] = [
        "run", "--edges", "edges.csv.gz", "--features", "features.parquet", "--labels", "labels.csv",
        "--src", "payer", "--dst", "payee", "--ts", "at", "--op", "sign", "--edges-mode", "multi",
        "--feature-id", "account", "--batch", 70, *WIDTHS,
    ]  # fmt: skip
    out, err = run(*command, "--json")
    result = json.loads(out)
    assert (result["finished"], result["events"], result["dead_letters"]) == (True, 370, dead)
    assert result["batches"] == 5, "edges in pieces of 70; the other files in the first batches"
    assert (
        "found in features: features in Parquet: src = account (bigint), time = at (bigint), "
        "value = age + balance" in err
    )
    assert "found in labels: labels in CSV: src = id (bigint), value = class (double); not used: split" in err
    model = GraphSAGE(2, 8, 2, 4, aggr="sum", seed=5)
    check(folder, oracle, model)

    _, err = run(*command)
    assert "as before in edges: edges in CSV: op = sign (string)" in err
    assert "no new input" in err
    check(folder, oracle, model)
    write(folder / "other.csv", "id,class\n1,2\n")
    _, err = run(*command, "--labels", "other.csv", code=2)
    assert "was started with labels" in err
    _, err = run(*command, "--batch", 80, code=2)
    assert "was started with batch 70 for edges" in err
    _, err = run(*command, "--feature-value", "age", code=2)
    assert "was started with feature-value not given, not age" in err


def test_folders_are_followed_beside_a_file(spark: SparkSession, folder: Path) -> None:
    """New edges and new features are read as they come; ids are strings, as they are in one of the inputs."""
    write(folder / "edges" / "a.csv", "src,dst\n1,2\n2,3\n")
    write_table(folder / "features" / "a.parquet", {"id": [1, 2], "vector": [[0.5, 1.0], [2.0, -1.0]]})
    write(folder / "labels.jsonl", '{"id": "ann", "y": [1, 0]}\n{"id": "1", "y": [0, 1]}\n')
    command: list[Any] = [
        "run", "--edges", "edges", "--features", "features", "--labels", "labels.jsonl", *WIDTHS,
    ]  # fmt: skip
    model, oracle = (
        GraphSAGE(2, 8, 2, 4, aggr="sum", seed=5),
        Oracle(GraphSchema(features={"x": 2}, label_width=2)),
    )
    oracle.apply([edge("1", "2"), edge("2", "3"), label("ann", [1.0, 0.0]), label("1", [0.0, 1.0])])
    oracle.apply([feature("1", [0.5, 1.0]), feature("2", [2.0, -1.0])])
    _, err = run(*command)
    assert "src = src (string), dst = dst (string)" in err
    assert "6 events in 1 batches" in err
    check(folder, oracle, model)

    def interrupt() -> None:
        def commits(number: int) -> None:
            for _ in range(600):
                if (folder / "checkpoint" / "commits" / str(number)).exists():
                    return
                time.sleep(0.1)

        write(folder / "b.csv", "src,dst\n3,ann\n", 1).rename(folder / "edges" / "b.csv")
        commits(1)
        write_table(folder / "b.parquet", {"id": [3], "vector": [[0.25, 4.0]]}, 1).rename(
            folder / "features" / "b.parquet"
        )
        commits(2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    _, err = run(*command, "--follow", "--every", 0.1)
    thread.join()
    assert "as before in labels: labels in JSON: src = id (string), value = y (array<double>)" in err
    assert "2 events in 2 batches" in err
    oracle.apply([edge("3", "ann"), feature("3", [0.25, 4.0])])
    check(folder, oracle, model)
    inputs = [folder / name for name in ("edges", "features", "labels.jsonl")]
    backlog = Backlog(inputs, folder / "checkpoint")
    write(folder / "edges" / "c.csv", "src,dst\n3,9\n", 2)
    backlog.update()
    assert (backlog.total, backlog.read, backlog.pending) == (6, 5, 1)


def test_events_beside_features(spark: SparkSession, folder: Path) -> None:
    """Parquet files that leave out columns of the event format, with a key, and with null columns."""
    write_table(folder / "events.parquet", {"src": [1, 2], "dst": [2, 3], "key": ["a", "b"], "time": [5, 6]})
    values = {"node": [2, 9], "value": [[1.0, 2.0], None], "op": ["create", "delete"]}
    write_table(folder / "features.parquet", values)
    out, _ = run("run", "events.parquet", "--features", "features.parquet", *WIDTHS, "--json")
    assert json.loads(out)["dead_letter_reasons"] == {"the vertex does not exist": 1}
    oracle = Oracle(GraphSchema(edges="keyed", features={"x": 2}))
    oracle.apply([edge(1, 2, key="a", time=5), edge(2, 3, key="b", time=6), feature(2, [1.0, 2.0])])
    check(folder, oracle, GraphSAGE(2, 8, 2, 4, aggr="sum", seed=5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "there is no input; give INPUT, --edges, --features or --labels"),
        (("--edges", "no.csv"), "--edges: no.csv does not exist"),
        (("--edges", "e.csv", "--src", "x"), "--edges: e.csv has no column 'x' for src"),
        (("e.csv", "--features", "n.csv"), "--features: n.csv has string in the column name, as 'bob'"),
        (("e.csv", "--features", "e.csv"), "--features: e.csv has the columns src, dst, w"),
        (("e.csv", "--labels", "l.csv", "--label-value", "z"), "--labels: l.csv has no column 'z' for value"),
        (("e.csv", "--label-id", "id"), "--label-id names a column of --labels, but that is not given"),
        (("e.csv", "--feature-value", "a"), "--feature-value names a column of --features, but"),
        (("--labels", "l.csv", "--src", "id"), "--src names a column of INPUT or --edges, but neither"),
        (("--edges", "e.csv", "--features", "f.csv", "--widths", "5,4"), "value of a vertex has 2 numbers"),
        (("--edges", "e.csv", "--features", "f.csv", "--ts-unit", "s"), "no input has a column of integer"),
        (("--edges", "e.csv", "--labels", "l.csv", "--follow"), "in a folder, but e.csv, l.csv are files"),
        (("--edges", "e.csv", "--features", "."), "--output out is inside the input folder ."),
        (("e.csv", "--max-ahead", "soon"), "max_ahead='soon': must be a number with a unit (us, ms"),
        (("e.csv", "--max-abs", "-1"), "max_abs=-1.0: must be a number above 0"),
    ],
)  # fmt: skip
def test_mistakes_name_the_option_and_the_file(
    arguments: tuple[str, ...], message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("d3gnn.spark.session.session", None)
    write(folder / "e.csv", "src,dst,w\n1,2,3\n")
    write(folder / "f.csv", "id,a,b\n1,2,3\n")
    write(folder / "l.csv", "id,label\n1,2\n")
    write(folder / "n.csv", "id,name\n1,bob\n")
    _, err = run("run", *arguments, code=2)
    assert err.splitlines()[:-1] == ["loading ..."]
    assert err.splitlines()[-1].startswith("error: ")
    assert message in err.splitlines()[-1]
