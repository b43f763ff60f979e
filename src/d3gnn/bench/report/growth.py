"""Whether a batch costs what it touches, however large the graph is."""

from __future__ import annotations

from collections.abc import Sequence

from d3gnn.bench.report.fields import (
    Result,
    above_zero,
    commands,
    differences,
    engine,
    joined,
    mapping,
    messages,
    remarks,
    rows,
    setting,
)
from d3gnn.bench.report.lines import Line, draw_lines
from d3gnn.bench.report.section import Picture, Section, Table
from d3gnn.bench.report.words import DASH, number, words

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
    """Batch time by graph size, then by operator."""
    results = sorted(results, key=lambda r: (engine(r), shape(r)))
    apart = differences(results, lambda r: (engine(r), shape(r)))
    named = [(joined(shape(r), said) or DASH, r) for r, said in zip(results, apart, strict=True)]
    text = [
        "The same batches on graphs of several sizes: what a batch costs should depend on what it touches, "
        "not on what is stored.",
        *filter(None, (_says(result, said) for result, said in zip(results, apart, strict=True))),
        *messages((name, row.get("messages_per_edge")) for name, r in named for row in rows(r.get("sizes"))),
        *remarks(results),
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
    return words(setting(result, "shape"))


def _says(result: Result, apart: str) -> str | None:
    """The result in a sentence, if it has one."""
    ratio, larger = above_zero(result.get("ratio")), above_zero(result.get("growth"))
    if ratio is None or larger is None:
        return None
    name = joined(engine(result), shape(result), apart)
    before = f"{name}: " if name else ""
    return f"{before}a batch takes {number(ratio)} times as long on a graph {number(larger)} times as large."


def _picture(named: Sequence[tuple[str, Result]]) -> list[Picture]:
    lines = []
    for name, result in named:
        found = (
            (above_zero(row.get("stored_edges")), above_zero(row.get("batch_ms_p50")))
            for row in rows(result.get("sizes"))
        )
        points = sorted((stored, spent) for stored, spent in found if stored and spent)
        if points:
            lines.append(Line(name, engine(result), joined(engine(result), name) or "batch p50", points))
    if not lines:
        return []
    svg = draw_lines(lines, "Time per batch by graph size", "stored edges", "milliseconds per batch (median)")
    return [Picture("growth", svg, "Median time per batch by stored edges, a line for each engine and shape")]


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
        Section("Growth by operator", ["Median milliseconds of each operator in a batch."], table, level=3)
    ]
