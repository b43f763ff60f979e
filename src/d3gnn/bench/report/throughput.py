"""Throughput of each engine on each stream, by batch size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from d3gnn.bench.report.fields import (
    Result,
    batch,
    commands,
    distinguishing_settings,
    engine,
    finite_number,
    join_parts,
    mapping,
    messages,
    notes,
    positive_number,
    setting,
    workload,
)
from d3gnn.bench.report.formatting import DASH, error, number, one_line, percent
from d3gnn.bench.report.line_chart import Line, draw_lines
from d3gnn.bench.report.section import Picture, Section, Table

_TITLES = [
    "workload", "engine", "batch", "parts", "edges/s", "batch p50, ms", "batch p99, ms", "kernel share",
    "messages per edge", "replication factor", "imbalance", "bytes moved per edge", "memory per edge, bytes",
    "memory per vertex, bytes", "error",
]  # fmt: skip


def throughput(results: Sequence[Result]) -> list[Section]:
    """A table of all runs, and a chart of edges per second."""
    results = sorted(results, key=lambda r: (workload(r), engine(r), batch(r)))
    suffixes = distinguishing_settings(results, lambda r: (workload(r), engine(r)))
    rows = [
        _row(r, join_parts(workload(r), suffix) or DASH) for r, suffix in zip(results, suffixes, strict=True)
    ]
    text = [
        "Edges created and deleted per second; batches are processed back to back at full speed. Kernel "
        "share: fraction of the time inside operators. Imbalance: time of the busiest part divided by the "
        "mean. Error: largest relative error against recomputation from scratch.",
        *messages((workload(r), r.get("messages_per_edge")) for r in results),
        *notes(results),
    ]
    return [
        Section(
            "Throughput", text, Table(_TITLES, rows, names=2), _picture(results, suffixes), commands(results)
        )
    ]


def _row(result: Result, name: str) -> list[str]:
    get = result.get
    return [
        name, engine(result), number(setting(result, "batch")), number(setting(result, "parts")),
        number(_rounded(get("edges_per_second"))), number(get("batch_ms_p50")), number(get("batch_ms_p99")),
        percent(finite_number(get("kernel_share"))), number(get("messages_per_edge")),
        number(get("replication_factor")), number(get("imbalance")), number(_moved_per_edge(result)),
        number(_total(get("bytes_per_edge"))), number(_total(get("bytes_per_vertex"))),
        error(get("max_relative_error")),
    ]  # fmt: skip


def _rounded(value: Any) -> Any:
    return round(value) if (finite_number(value) or 0) >= 1000 else value


def _moved_per_edge(result: Result) -> float | None:
    """Bytes sent between operators, per edge created or deleted."""
    moved = finite_number(result.get("bytes_moved"))
    edges = (finite_number(result.get("edges_per_second")) or 0) * (finite_number(result.get("seconds")) or 0)
    edges = edges or finite_number(result.get("events")) or 0
    return None if moved is None or not edges else moved / edges


def _total(value: Any) -> float | None:
    """The sum over all operators."""
    found = [q for q in map(finite_number, mapping(value).values()) if q is not None]
    return sum(found) if found else finite_number(value)


def _picture(results: Sequence[Result], suffixes: Sequence[str]) -> list[Picture]:
    speeds: dict[tuple[str, str, str], dict[float, list[float]]] = {}
    for result, suffix in zip(results, suffixes, strict=True):
        size, speed = positive_number(batch(result)), positive_number(result.get("edges_per_second"))
        if size and speed:
            line = speeds.setdefault((workload(result), engine(result), suffix), {})
            line.setdefault(size, []).append(speed)
    if not speeds:
        return []
    lines = [
        Line(
            family=join_parts(name, suffix),
            style=one_line(which),
            name=join_parts(which, name, suffix),
            points=[(size, float(np.median(found))) for size, found in sorted(line.items())],
        )
        for (name, which, suffix), line in speeds.items()
    ]
    svg = draw_lines(lines, "Throughput by batch size", "events per batch", "edges per second", log_y=True)
    return [Picture("throughput", svg, "Edges per second by batch size, one line per engine and workload")]
