"""Quality and speed of partitioners."""

from __future__ import annotations

from collections.abc import Sequence

from d3gnn.bench.report.fields import Result, commands, mapping, notes, positive_number, setting, workload
from d3gnn.bench.report.formatting import number, one_line
from d3gnn.bench.report.line_chart import Line, draw_lines
from d3gnn.bench.report.section import Picture, Section, Table

_FIELDS = {
    "replication factor": "replication_factor",
    "edge balance": "balance",
    "vertex balance": "vertex_balance",
    "edges/s": "edges_per_second",
    "edges/s, choice of part only": "choice_edges_per_second",
    "bytes per edge": "bytes_per_edge",
    "batch, ms": "batch_ms",
    "edges": "edges",
}
_PICTURES = {"replication_factor": "Replicas per vertex", "bytes_per_edge": "Bytes sent per edge"}


def partitioners(results: Sequence[Result]) -> list[Section]:
    """A table of all runs, and what depends on the number of parts as pictures."""
    results = sorted(results, key=lambda r: (workload(r), _name(r), _parts(r)))
    cells = [
        [workload(result), _name(result), one_line(_mode(result)), number(setting(result, "parts"))]
        + [number(result.get(field)) for field in _FIELDS.values()]
        for result in results
    ]
    text = [
        "Replication factor: mean number of parts of a vertex. Balance: edges, or masters, of the fullest "
        "part divided by the mean. Edges per second go through the whole Partition operator, or the choice "
        "of a part alone. Bytes and batches are those of a model of two layers.",
        *notes(results),
    ]
    table = Table(["stream", "partitioner", "edge mode", "parts", *_FIELDS], cells, names=3)
    drawn = [(title, _picture(results, field, title)) for field, title in _PICTURES.items()]
    pictures = [Section(title, pictures=[picture], level=3) for title, picture in drawn if picture]
    return [Section("Partitioners", text, table, commands=commands(results)), *pictures]


def _name(result: Result) -> str:
    return one_line(setting(result, "partitioner"))


def _mode(result: Result) -> object:
    return mapping(result.get("settings")).get("edges")


def _parts(result: Result) -> float:
    return positive_number(setting(result, "parts")) or 0.0


def _picture(results: Sequence[Result], field: str, title: str) -> Picture | None:
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for result in results:
        value = positive_number(result.get(field))
        if value is not None and _parts(result):
            points.setdefault((_name(result), workload(result)), []).append((_parts(result), value))
    lines = [
        Line(name, stream, f"{name}, {stream}", found)
        for (name, stream), found in points.items()
        if len(found) > 1
    ]
    if not lines:
        return None
    file = f"partitioners-{field.replace('_', '-')}"
    return Picture(file, draw_lines(lines, title, "parts", title.lower()), f"{title}, by parts")
