"""The report contains the numbers of its results, in Markdown and in HTML."""

from __future__ import annotations

import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from d3gnn.bench.report import write_report

EVIL = "<script>alert('x')</script> | $y_1$ `z`"
MACHINE = {"cpu": "Abacus 9000", "cores": 4, "memory_gb": 15.6, "python": "3.11.9", "torch": "2.6.0"}


def result(bench: str, settings: dict[str, Any] | None = None, **measured: Any) -> dict[str, Any]:
    return {
        "bench": bench,
        "version": "7.8.9",
        "settings": settings or {},
        "machine": MACHINE,
        "measured_at": "2026-02-03T10:20:30+00:00",
        "command": f"d3gnn bench {bench} --json",
        **measured,
    }


def throughput(engine: str, batch: int, speed: float, **more: Any) -> dict[str, Any]:
    settings = {"workload": "web", "engine": engine, "batch": batch, "parts": 2}
    measured = {
        "edges_per_second": speed, "batch_ms_p50": 12.34, "batch_ms_p99": 56.78, "kernel_share": 0.87,
        "messages_per_edge": 9.41, "bytes_moved": 4_000_000, "replication_factor": 1.37, "seconds": 2.0,
        "max_relative_error": 2.3e-6, "events": 1000, "engine": engine, "batch": batch, "parts": 2,
        "bytes_per_edge": {"partition": 20.0, "edge-1": 31.0}, "bytes_per_vertex": {"partition": 777.0},
    }  # fmt: skip
    return result("throughput", settings, **measured | more)


def peers(batch: int, seconds: dict[str, float], name: str = "web") -> dict[str, Any]:
    systems = {
        system: {
            "seconds_per_batch": s,
            "edges_per_second": batch / s,
            "max_relative_error": 1e-6,
            "batches": 9,
        }
        for system, s in seconds.items()
    }
    speedup = {
        f"{engine}_over": {p: s / seconds[engine] for p, s in seconds.items() if p not in ("local", "spark")}
        for engine in ("local", "spark")
        if engine in seconds
    }
    return result(
        "peers", {"workload": name}, batch=batch, timed_batches=9, stored_edges=123_456, vertices=10_000,
        threads=1, parts=2, messages_per_edge=9.41, systems=systems, speedup=speedup,
    )  # fmt: skip


FULL = [
    throughput("local", 1, 1234.5),
    throughput("local", 2000, 98_765.4),
    throughput("spark", 2000, 43_210.9, imbalance=1.29),
    peers(1, {"dgl_full": 2.0, "ripple": 0.002, "local": 0.005, "spark": 0.4}),
    peers(2000, {"dgl_full": 3.0, "pyg_influenced": 0.5, "local": 0.1, "spark": 0.25}),
    result(
        "growth",
        {"engine": "local", "shape": "capped"},
        sizes=[
            {"stored_edges": n, "vertices": n // 8, "batch_ms_p50": ms, "messages_per_edge": 6.5,
             "operator_ms": {"partition": 1.5, "edge-1": 3.25}, "us_per_message": 0.75}
            for n, ms in ((100_000, 14.1), (1_000_000, 14.7))
        ],
        ratio=1.04,
        growth=10.0,
    ),
    result(
        "latency",
        {"workload": "web", "engine": "spark"},
        rate=5000, seconds=3, events=15_000, p50_ms=402.0, p95_ms=691.0, p99_ms=811.0, max_ms=1320.0,
        empty_batch_ms=188.0, backlog_growth=0.02, max_relative_error=1e-6, messages_per_edge=9.41,
        timeline=[{"second": float(s), "p50_ms": 400.0, "max_ms": 900.0, "backlog": 70} for s in range(3)],
        note="The first second warms up.",
    ),
    result(
        "stages", engine="spark", batch=2000, milliseconds={"planning": 44.0, "tasks": 117.0}, batch_ms=161.0,
        cold_start_s=9.3, recovery_s=6.1,
    ),
    *(
        result(
            "partitioners", {"partitioner": "hdrf", "edges": "append", "workload": "web"},
            edges_per_second=2_100_000.0, choice_edges_per_second=6_300_000.0, replication_factor=2.31,
            balance=1.02, vertex_balance=1.13, bytes_per_edge=765.0, batch_ms=6.78, edges=2_000_000,
            parts=parts,
        )
        for parts in (8, 32)
    ),
]  # fmt: skip


def render(results: list[dict[str, Any]], folder: Path) -> tuple[str, str]:
    """Both reports, as text."""
    page = write_report(results, folder)
    return (folder / "report.md").read_text(encoding="utf-8"), page.read_text(encoding="utf-8")


def part(markdown: str, title: str) -> str:
    """One section of a Markdown report."""
    return markdown.split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "not" / "yet"
    write_report(FULL, folder)
    return folder


def test_all_files_are_written(folder: Path) -> None:
    assert json.loads((folder / "results.json").read_text()) == FULL
    assert {path.name for path in (folder / "plots").iterdir()} == {
        "throughput.svg", "peers-1-web.svg", "growth.svg", "latency-1.svg", "stages.svg",
        "partitioners-replication-factor.svg", "partitioners-bytes-per-edge.svg",
    }  # fmt: skip
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    for path in (folder / "plots").iterdir():
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
        assert f"(plots/{path.name})" in markdown


@pytest.mark.parametrize("name", ["report.md", "report.html"])
@pytest.mark.parametrize(
    "text",
    [
        "Abacus 9000", "7.8.9", "2026-02-03 10:20",  # where and when
        "98,765 edges/s", "43,211 edges/s", "400 x", "30.0 x", "402 / 811 ms", "1.04 x",  # the summary
        "1,234", "12.3", "56.8", "87 %", "9.41", "1.37", "1.29", "2.3e-06",  # throughput
        "1,620", "51.0", "777",
        "DGL, whole graph", "0.00500", "stored edges 123,456",  # peers
        "1.04 times as long on a graph 10.0 times as large", "14.7", "0.750", "3.25",  # growth
        "188", "1,320", "15,000", "The first second warms up.",  # latency
        "44.0", "161", "9.30", "6.10",  # stages
        "hdrf", "2,100,000", "6,300,000", "2.31", "1.02", "1.13", "765", "6.78",  # partitioners
        *sorted({r["command"] for r in FULL}),
    ],
)  # fmt: skip
def test_the_report_contains_the_results(folder: Path, name: str, text: str) -> None:
    assert text in (folder / name).read_text(encoding="utf-8")


def test_losses_are_highlighted(folder: Path) -> None:
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    lost = part(markdown, "Where d3gnn is slower")
    assert "slower in 2 of the 8 comparisons" in lost
    # Worst first: Spark against Ripple takes 200 times as long, local 2.5 times.
    worst, other = (line for line in lost.splitlines() if "**" in line)
    assert "d3gnn on Spark | delta propagation (RIPPLE) | 1 | **slower: 0.005 x** | 200 " in worst
    assert "d3gnn LocalEngine | delta propagation (RIPPLE) | 1 | **slower: 0.4 x** | 2.50 " in other
    assert "**slower: 0.4 x**" in part(markdown, "Comparison with other systems")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count('<td class="n loss">slower: 0.4 x</td>') == 2


def test_a_report_without_losses(tmp_path: Path) -> None:
    markdown, _ = render([peers(1, {"dgl_full": 2.0, "local": 1.0})], tmp_path / "one")
    assert "slower in none of the 1 comparisons" in part(markdown, "Where d3gnn is slower")
    markdown, _ = render([result("partitioners")], tmp_path / "two")
    assert "No result compares" in part(markdown, "Where d3gnn is slower")


def test_speed_ups_are_computed_from_times_if_missing(tmp_path: Path) -> None:
    bare = peers(1, {"ripple": 0.9999, "local": 1.0})
    del bare["speedup"]
    markdown, _ = render([bare], tmp_path)
    assert "slower: 0.9999 x" in part(markdown, "Where d3gnn is slower")


class Page(HTMLParser):
    """Collects the tags of a page and their links."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_self_contained(folder: Path) -> None:
    page = Page()
    page.feed((folder / "report.html").read_text(encoding="utf-8"))
    assert page.open == []
    assert page.tags.count("img") == 7
    assert all(links.startswith(("#", "data:image/svg+xml;base64,")) for links in page.links)


def test_text_is_escaped(tmp_path: Path) -> None:
    results = [
        {**r, "settings": {**r["settings"], "workload": EVIL}, "note": EVIL, "command": EVIL} for r in FULL
    ]
    results.append({**result(EVIL), EVIL: EVIL})
    markdown, html = render(results, tmp_path)
    page = Page()
    page.feed(html)
    assert page.open == []
    assert "script" not in page.tags
    assert "&lt;script&gt;" in html
    outside_of_code = "".join(markdown.split("```")[::2])
    assert "<script>" not in outside_of_code
    assert r"\<script\>" in outside_of_code
    for line in markdown.splitlines():
        if line.startswith("| web"):
            assert r"\|" in line
    assert all("<" not in path.name for path in (tmp_path / "plots").iterdir())


def test_an_unknown_kind_becomes_a_plain_table(tmp_path: Path) -> None:
    strange = result("warp", {"workload": "stars"}, speed=9.91, inner={"a": 12_345}, many=list(range(20)))
    for text in render([strange], tmp_path):
        for expected in ("warp, stars", "9.91", "inner a", "12,345", "and 8 more", "d3gnn bench warp --json"):
            assert expected in text


@pytest.mark.parametrize(
    "bench", ["throughput", "peers", "growth", "latency", "stages", "partitioners", "warp", None]
)
def test_missing_values_become_a_dash(tmp_path: Path, bench: str | None) -> None:
    odd = {
        "settings": 3, "machine": "m", "batch": "many", "systems": {"local": None}, "speedup": [],
        "sizes": [{}], "timeline": [{}], "milliseconds": {"a": None}, "edges_per_second": None, "rate": None,
    }  # fmt: skip
    markdown, html = render([{"bench": bench}, {"bench": bench, **odd}], tmp_path)
    assert "—" in markdown
    assert "—" in html
    assert not list((tmp_path / "plots").iterdir())


def test_settings_that_differ_are_shown(tmp_path: Path) -> None:
    markdown, _ = render([throughput("local", 10, 5.0), throughput("local", 10, 6.0, parts=8)], tmp_path)
    assert "| web, parts 2 |" in markdown
    assert "| web, parts 8 |" in markdown


def test_machines_that_differ_have_their_own_columns(tmp_path: Path) -> None:
    less = {**FULL[0], "machine": {"cpu": "Abacus 9000"}}
    other = {**FULL[0], "machine": {"cpu": "Sand"}}
    markdown, _ = render([FULL[0], less, other], tmp_path)
    assert "| CPU | Abacus 9000 | Sand |" in markdown


def test_an_empty_list_of_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="d3gnn bench throughput --json"):
        write_report([], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def settings() -> dict[str, Any]:
    """The settings of matplotlib, except `backend`: reading it imports pyplot."""
    return {name: mpl.rcParams[name] for name in mpl.rcParams if name != "backend"}


def test_charts_change_no_global_state(tmp_path: Path) -> None:
    before, pyplot = settings(), sys.modules.get("matplotlib.pyplot")
    figures = pyplot.get_fignums() if pyplot else []
    write_report([{**FULL[0], "settings": {"workload": "\u65e5\u672c"}}], tmp_path / "one")
    write_report([{**FULL[0], "settings": {"workload": "\u65e5\u672c"}}], tmp_path / "two")
    assert settings() == before
    assert sys.modules.get("matplotlib.pyplot") is pyplot
    assert (pyplot.get_fignums() if pyplot else []) == figures
    one, two = (tmp_path / name / "plots" / "throughput.svg" for name in ("one", "two"))
    assert one.read_text() == two.read_text()
