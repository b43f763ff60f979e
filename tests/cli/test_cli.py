"""The command line: output, files and exit codes of each command."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from d3gnn import LocalEngine, StreamingGNN, __version__
from d3gnn.bench import file_workload
from d3gnn.cli import app
from d3gnn.events import Element, EventBatch
from d3gnn.nn import GraphSAGE
from d3gnn.testing import OracleChecker

DOCS = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
PNG = b"\x89PNG\r\n\x1a\n"
THROUGHPUT_FIELDS = {
    "edges_per_second", "batch_ms_p50", "batch_ms_p99", "batch_ms_by_tenth", "kernel_share",
    "messages_per_edge", "bytes_moved", "replication_factor", "max_relative_error", "events", "vertices",
}  # fmt: skip
MORE_FIELDS = {
    "bench", "version", "measured_at", "machine", "settings", "imbalance", "engine", "batch", "parts",
    "partitioner", "threads", "seconds",
    "events_per_second", "batches", "stored_edges", "bytes_per_edge", "bytes_per_vertex", "recomputed",
}  # fmt: skip


def run(*arguments: str | Path, code: int = 0) -> tuple[str, str]:
    """Standard output and standard error of a command that ends with `code`."""
    result = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


def run_json(*arguments: str | Path) -> dict[str, Any]:
    out, _ = run(*arguments, "--json")
    assert out.count("\n") == 1, "one JSON object and nothing else"
    read: dict[str, Any] = json.loads(out)
    assert read["version"] == __version__
    return read


def test_version() -> None:
    assert run("--version")[0] == f"d3gnn {__version__}\n"


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("demo",),
        ("run",),
        ("generate",),
        ("verify",),
        ("forget",),
        ("fork",),
        ("repartition",),
        ("compact",),
        ("repair",),
        ("models",),
        ("compact-output",),
        *(("bench", b) for b in ("throughput", "growth", "partitioners")),
    ],
)
def test_help_says_how(command: tuple[str, ...]) -> None:
    out, _ = run(*command, "--help")
    assert ("Example" in out) or not command
    assert f"Usage: d3gnn {' '.join(command)}".strip() in out


@pytest.mark.parametrize(
    "command",
    [
        "run", "verify", "repair", "clean", "models", "train", "compact-output", "fork", "forget", "demo",
        "generate",
    ],
)  # fmt: skip
def test_the_documentation_has_all_options_and_no_others(command: str) -> None:
    text = DOCS.read_text(encoding="utf-8")
    section = re.split(r"^## ", text.split(f"## `d3gnn {command}`\n")[1], flags=re.MULTILINE)[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    documented = set(re.findall(r"`(--[a-z-]+)", " ".join(rows)))
    shown = set(re.findall(r"(?<!\S)--[a-z-]+", _options(run(command, "--help")[0])))
    assert documented == shown - {"--help"}


def _options(text: str) -> str:
    """The left column of the panels of a help text."""
    rows = re.findall(r"^│ [ *]? *(--[a-z-]+)", text, re.MULTILINE)
    return " ".join(rows)


# ---------------------------------------------------------------------- models


def test_models_lists_versions_and_switches(tmp_path: Path) -> None:
    first, second = (GraphSAGE(3, 8, 2, 4, seed=seed) for seed in (1, 2))
    second.save(tmp_path / "june.safetensors")
    StreamingGNN(first, store=tmp_path / "checkpoint" / "graph").plan({"src": "bigint"})
    command = ("models", "--store", tmp_path / "checkpoint")

    def listed(*arguments: str | Path) -> list[tuple[int, str, bool]]:
        out, _ = run(*command, *arguments, "--json")
        return [(row["version"], row["name"], row["current"]) for row in json.loads(out)["models"]]

    assert listed() == [(1, "v1", True)]
    switched = ("--use", tmp_path / "june.safetensors", "--name", "june")
    assert listed(*switched) == [(1, "v1", False), (2, "june", True)]
    assert listed("--use", "1") == [(1, "v1", True), (2, "june", False)]
    _, err = run(*command, "--use", "june")
    assert re.search(rf"2 .*june .*{second.digest} .*current: used from the next batch on", err)
    for arguments, message in [
        (("--use", "july"), "no model 'july' in models of the store"),
        (("--name", "july"), "--name is for a new model"),
        (("--use", "none.safetensors"), "no model at none.safetensors"),
    ]:
        assert message in run(*command, *arguments, code=2)[1]


# ---------------------------------------------------------------------- generate


def test_generate_read_back_and_run(tmp_path: Path) -> None:
    path = tmp_path / "stream.parquet"
    options = (
        "--deletes",
        0.2,
        "--vertex-deletes",
        0.02,
        "--feature-updates",
        0.1,
        "--bad",
        0.02,
        "--bursts",
    )
    out, err = run(
        "generate", path, "--edges", "400", "--vertices", "60", "--shape", "communities", "--features",
        "--feature-width", "3", *map(str, options),
    )  # fmt: skip
    assert out == ""
    assert "596 events (400 edges over 60 vertices)" in err
    table = pq.read_table(path)
    assert len(table) == 596
    workload = file_workload(path)
    engine = LocalEngine(GraphSAGE(3, 4, 2, 2, seed=0), parts=2, schema=workload.schema)
    checker = OracleChecker(engine)
    for batch in workload.batches(50):
        checker.apply(batch)
    assert len(engine) > 0


def test_generate_is_repeatable(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.parquet" for i in range(3)]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        run("generate", path, "--edges", "300", "--deletes", "0.1", "--seed", str(seed))
    first, same, other = (pq.read_table(path) for path in paths)
    assert first.equals(same)
    assert not first.equals(other)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.parquet", "1.parquet", "2.parquet"]


def test_generate_streams_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["d3gnn.cli.generate"], "_ROW_GROUP", 100)
    run("generate", tmp_path / "s.parquet", "--edges", "250", "--shape", "capped", "--bad", "0.1")
    assert pq.read_metadata(tmp_path / "s.parquet").num_row_groups == 3


# ---------------------------------------------------------------------- bench


def test_throughput_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("".join(f"{i % 11} {i % 7} {i}\n" for i in range(100)))
    result = run_json(
        "bench", "throughput", "--edges", path, "--batch", "30", "--parts", "2", "--engine", "local",
        "--width", "4", "--limit", "80",
    )  # fmt: skip
    assert set(result) == THROUGHPUT_FIELDS | MORE_FIELDS
    assert (result["events"], result["vertices"], result["batches"]) == (80, 11, 3)
    assert (result["engine"], result["parts"], result["partitioner"]) == ("local", 2, "hdrf")
    assert result["max_relative_error"] <= 1e-5


def test_throughput_of_a_synthetic_stream_as_a_table() -> None:
    out, err = run(
        "bench", "throughput", "--synthetic", "200", "--width", "4", "--batch", "50", "--deletes", "0.1",
        "--partitioner", "random", "--aggregator", "sum", "--layers", "1", "--undirected", "--no-check",
    )  # fmt: skip
    assert "edges per second" in out
    assert "not checked" in out
    assert "220/220" in err


def test_throughput_of_a_generated_file(tmp_path: Path) -> None:
    path = tmp_path / "stream.parquet"
    run(
        "generate", path, "--edges", "200", "--feature-updates", "0.5", "--feature-width", "3", "--bad", "0.1"
    )
    result = run_json("bench", "throughput", "--edges", path, "--width", "4", "--batch", "50")
    assert result["settings"]["model"].startswith("GNN(3 ->")
    assert (result["events"], result["max_relative_error"] <= 1e-5) == (320, True)


def test_growth() -> None:
    arguments = ("bench", "growth", "--stored", "300,900", "--batch", "100", "--timed", "2", "--width", "4")
    result = run_json(*arguments)
    about = {"bench", "version", "measured_at", "machine", "settings"}
    assert set(result) == about | {"sizes", "ratio", "growth", "ratio_by_round"}
    assert [row["stored_edges"] for row in result["sizes"]] == [300, 900]
    assert "messages per edge" in run(*arguments)[0]


def test_partitioners() -> None:
    arguments = ("bench", "partitioners", "--edges-count", "2000", "--parts", "4", "--partitioner", "hdrf")
    result = run_json(*arguments)
    assert result["edges"] == 2000
    assert {"edges_per_second", "choice_edges_per_second", "replication_factor", "balance"} <= set(result)
    assert "replicas per vertex" in run(*arguments)[0]


# ---------------------------------------------------------------------- demo


def test_demo(tmp_path: Path) -> None:
    command = ("demo", "--engine", "local", "--edges", "2000", "--batch", "200")
    out, err = run(*command, "--out", tmp_path / "new" / "out")
    assert out == ""
    assert "dead letters" in err
    assert "Moved most" in err
    assert "exact: " in err
    assert (tmp_path / "new" / "out" / "demo.png").read_bytes().startswith(PNG)


def test_a_demo_without_matplotlib_prints_how_to_get_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        sys.modules["d3gnn.cli.demo"], "find_spec", lambda name: None if name == "matplotlib" else found(name)
    )
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # importing it fails
    _, err = run("demo", "--engine", "local", "--edges", "300", "--out", tmp_path)
    assert "exact: " in err
    assert "matplotlib is not installed (pip install 'd3gnn[plot]')" in err
    assert not (tmp_path / "demo.png").exists()


@pytest.mark.parametrize("edges", ["1", "30"])
def test_a_tiny_demo(tmp_path: Path, edges: str) -> None:
    run("demo", "--engine", "local", "--edges", edges, "--parts", "1", "--out", tmp_path)
    assert (tmp_path / "demo.png").stat().st_size > 0


def test_a_wrong_demo_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: LocalEngine, events: EventBatch) -> Any:
        """Ignore all features."""
        return apply(self, events.take(events.element != Element.FEATURE))

    apply = LocalEngine.apply
    monkeypatch.setattr(LocalEngine, "apply", forgetful)
    _, err = run("demo", "--engine", "local", "--edges", "500", "--out", tmp_path, code=1)
    assert "wrong: " in err


def test_a_report_of_results(tmp_path: Path) -> None:
    arguments = (
        "bench",
        "peers",
        "--synthetic",
        "2000",
        "--width",
        "4",
        "--systems",
        "ripple,local",
        "--json",
    )
    out, _ = run(*arguments, "--batch", "10", "--batch", "100", "--timed", "2")
    assert [json.loads(line)["batch"] for line in out.splitlines()] == [10, 100]
    (tmp_path / "results.json").write_text(out)
    out, _ = run("bench", "report", "--results", tmp_path / "results.json", "--out", tmp_path / "report")
    assert out == f"{tmp_path / 'report' / 'report.html'}\n"
    assert "RIPPLE" in (tmp_path / "report" / "report.md").read_text()
    run("bench", "report", "--results", tmp_path / "report" / "results.json", "--out", tmp_path)
    assert (tmp_path / "report.md").read_text() == (tmp_path / "report" / "report.md").read_text()
    (tmp_path / "bad.json").write_text("{")
    _, err = run("bench", "report", "--results", tmp_path / "bad.json", "--out", tmp_path, code=2)
    assert "is not a file of results from d3gnn bench --json" in err


# ---------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bench", "throughput"), "give either --edges FILE or --synthetic EDGES"),
        (("bench", "throughput", "--edges", "nothing.csv"), "edge list nothing.csv does not exist"),
        (("bench", "throughput", "--edges", "x", "--synthetic", "9"), "give either"),
        (("bench", "throughput", "--synthetic", "0"), "edges=0: must be at least 1"),
        (("bench", "throughput", "--synthetic", "9", "--parts", "0"), "parts=0: must be at least 1"),
        (("bench", "throughput", "--synthetic", "9", "--limit", "0"), "limit=0: must be at least 1"),
        (("bench", "growth", "--stored", "many"), "--stored many: must be integers separated by commas"),
        (("bench", "growth", "--stored", "1000,900"), "900 comes after 1000"),
        (("bench", "partitioners", "--parts", "0"), "give whole numbers from 1 on"),
        (("bench", "peers", "--synthetic", "100", "--systems", "abacus"), "choose some of dgl_full"),
        (("bench", "peers", "--synthetic", "100", "--batch", "0"), "batch=0: must be at least 1"),
        (("bench", "peers", "--synthetic", "100", "--systems", "local"), "take a longer stream"),
        (("bench", "latency", "--rate", "0"), "rate=0.0: must be above 0"),
        (("bench", "latency", "--synthetic", "10", "--seconds", "2"), "but the stream has 10"),
        (("bench", "stages"), "give either --edges FILE or --synthetic EDGES"),
        (("bench", "report", "--results", "nothing.json"), "nothing.json: No such file"),
        (("generate", "no/such/folder/x.parquet"), "the folder no/such/folder does not exist"),
        (("generate", "."), "is a folder"),
        (("generate", "x.parquet", "--deletes", "2"), "deletes=2.0: must be a share of the edges"),
        (("fork", "nothing", "new"), "nothing is neither a checkpoint of a d3gnn pipeline nor the store"),
        (("demo", "--batch", "0"), "batch=0: must be at least 1"),
        (("demo", "--parts", "0"), "parts=0: must be at least 1"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out, err = run(*arguments, code=2)
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not list(tmp_path.glob("*.parquet"))


def test_unknown_choices_name_the_known_ones() -> None:
    _, err = run("bench", "throughput", "--synthetic", "9", "--partitioner", "dice", code=2)
    assert "hdrf" in err
    assert "random" in err


def test_out_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    _, err = run("demo", "--edges", "10", "--out", tmp_path / "out", code=2)
    assert err == f"error: {tmp_path / 'out'}: File exists\n"


def test_a_real_process_keeps_the_streams_apart(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "d3gnn",
        "bench",
        "throughput",
        "--synthetic",
        "100",
        "--width",
        "4",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert set(json.loads(done.stdout)) >= THROUGHPUT_FIELDS
    assert "100/100" in done.stderr
