"""Write a report of results into a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from d3gnn.bench.report.fields import Result
from d3gnn.bench.report.generic import generic
from d3gnn.bench.report.growth import growth
from d3gnn.bench.report.html_page import to_html
from d3gnn.bench.report.latency import latency
from d3gnn.bench.report.markdown import to_markdown
from d3gnn.bench.report.models import models
from d3gnn.bench.report.partitioners import partitioners
from d3gnn.bench.report.peers import peers
from d3gnn.bench.report.section import Section
from d3gnn.bench.report.slower import slower
from d3gnn.bench.report.stages import stages
from d3gnn.bench.report.summary import summary
from d3gnn.bench.report.throughput import throughput
from d3gnn.bench.report.windows import windows

TITLE = "d3gnn benchmarks"
_PLOTS = "plots"
#: Sections by kind of result, in the order of the report.
_KINDS: dict[str, Callable[[Sequence[Result]], list[Section]]] = {
    "throughput": throughput,
    "growth": growth,
    "latency": latency,
    "windows": windows,
    "models": models,
    "stages": stages,
    "partitioners": partitioners,
}


def write_report(results: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    """Write report.md, report.html, plots/*.svg and results.json; the path of report.html."""
    if not results:
        raise ValueError(
            "results: empty; a report needs at least one result, "
            "for example the output of `d3gnn bench throughput --json`"
        )
    sections = _sections(results)
    plots = folder / _PLOTS
    plots.mkdir(parents=True, exist_ok=True)
    for section in sections:
        for picture in section.pictures:
            (plots / f"{picture.name}.svg").write_text(picture.svg, encoding="utf-8")
    (folder / "results.json").write_text(json.dumps(list(results), indent=2) + "\n", encoding="utf-8")
    (folder / "report.md").write_text(to_markdown(TITLE, sections, _PLOTS), encoding="utf-8")
    page = folder / "report.html"
    page.write_text(to_html(TITLE, sections), encoding="utf-8")
    return page


def _sections(results: Sequence[Result]) -> list[Section]:
    """All sections of the report."""
    compared = [result for result in results if result.get("bench") == "peers"]
    others = [result for result in results if result.get("bench") != "peers"]
    sections = summary(results)
    if compared:
        sections += peers(compared)
    sections += slower(compared, others)
    for kind, section in _KINDS.items():
        found = [result for result in others if result.get("bench") == kind]
        if found:
            sections += section(found)
    return sections + generic([result for result in others if result.get("bench") not in _KINDS])
