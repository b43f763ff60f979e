"""Batch time by the size of the stored graph."""

from __future__ import annotations

from collections.abc import Sequence

from d3gnn.bench.report.fields import (
    Result,
    commands,
    distinguishing_settings,
    engine,
    join_parts,
    mapping,
    messages,
    notes,
    positive_number,
    rows,
    setting,
)
from d3gnn.bench.report.formatting import DASH, number, one_line
from d3gnn.bench.report.line_chart import Line, draw_lines
from d3gnn.bench.report.section import Picture, Section, Table

_FIELDS = {
    "stored edges": "stored_edges",
    "vertices": "vertices",
    "batch p50, ms": "batch_ms_p50",
    "messages per edge": "messages_per_edge",
    "rows per edge": "rows_per_edge",
    "us per message": "us_per_message",
    "us per row": "us_per_row",
}


def growth(results: Sequence[Result]) -> list[Section]:
    """Batch time by graph size, and by operator."""
    results = sorted(results, key=lambda r: (engine(r), shape(r)))
    suffixes = distinguishing_settings(results, lambda r: (engine(r), shape(r)))
    named = [(join_parts(shape(r), suffix) or DASH, r) for r, suffix in zip(results, suffixes, strict=True)]
    text = [
        "The same batches on graphs of several sizes. The time of a batch should depend on the vertices and "
        "edges that it touches, not on the size of the graph.",
        *filter(None, (_sentence(result, suffix) for result, suffix in zip(results, suffixes, strict=True))),
        *messages((name, row.get("messages_per_edge")) for name, r in named for row in rows(r.get("sizes"))),
        *notes(results),
    ]
    cells = [
        [engine(result), name, *(number(row.get(field)) for field in _FIELDS.values())]
        for name, result in named
        for row in rows(result.get("sizes"))
    ]
    table = Table(["engine", "shape", *_FIELDS], cells, names=2) if cells else None
    whole = Section("Growth", text, table, _picture(named), commands(results))
    return [whole, *_operators(named)]


def shape(result: Result) -> str:
    return one_line(setting(result, "shape"))


def _sentence(result: Result, suffix: str) -> str | None:
    """The result in one sentence, if it has a ratio."""
    ratio, larger = positive_number(result.get("ratio")), positive_number(result.get("growth"))
    if ratio is None or larger is None:
        return None
    name = join_parts(engine(result), shape(result), suffix)
    before = f"{name}: " if name else ""
    return f"{before}a batch takes {number(ratio)} times as long on a graph {number(larger)} times as large."


def _picture(named: Sequence[tuple[str, Result]]) -> list[Picture]:
    lines = []
    for name, result in named:
        found = (
            (positive_number(row.get("stored_edges")), positive_number(row.get("batch_ms_p50")))
            for row in rows(result.get("sizes"))
        )
        points = sorted((stored, spent) for stored, spent in found if stored and spent)
        if points:
            lines.append(Line(name, engine(result), join_parts(engine(result), name) or "batch p50", points))
    if not lines:
        return []
    svg = draw_lines(lines, "Time per batch by graph size", "stored edges", "milliseconds per batch (median)")
    return [Picture("growth", svg, "Median time per batch by stored edges, one line per engine and shape")]


def _operators(named: Sequence[tuple[str, Result]]) -> list[Section]:
    sizes = [(name, result, row) for name, result in named for row in rows(result.get("sizes"))]
    operators = list(dict.fromkeys(name for *_, row in sizes for name in mapping(row.get("operator_ms"))))
    if not operators:
        return []
    cells = [
        [
            engine(result), name, number(row.get("stored_edges")),
            *(number(mapping(row.get("operator_ms")).get(operator)) for operator in operators),
        ]
        for name, result, row in sizes
    ]  # fmt: skip
    table = Table(["engine", "shape", "stored edges", *operators], cells, names=2)
    return [
        Section("Growth by operator", ["Median milliseconds per batch in each operator."], table, level=3)
    ]
