"""How fast each engine takes in each stream, by batch size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from d3gnn.bench.report.fields import (
    Result,
    above_zero,
    batch,
    commands,
    differences,
    engine,
    joined,
    mapping,
    messages,
    quantity,
    remarks,
    setting,
    workload,
)
from d3gnn.bench.report.lines import Line, draw_lines
from d3gnn.bench.report.section import Picture, Section, Table
from d3gnn.bench.report.words import DASH, error, number, percent, words

_TITLES = [
    "workload", "engine", "batch", "parts", "edges/s", "batch p50, ms", "batch p99, ms", "kernel share",
    "messages per edge", "replication factor", "imbalance", "bytes moved per edge", "memory per edge, bytes",
    "memory per vertex, bytes", "error",
]  # fmt: skip


def throughput(results: Sequence[Result]) -> list[Section]:
    """One table of all runs, one picture of their speeds."""
    results = sorted(results, key=lambda r: (workload(r), engine(r), batch(r)))
    apart = differences(results, lambda r: (workload(r), engine(r)))
    rows = [_row(r, joined(workload(r), said) or DASH) for r, said in zip(results, apart, strict=True)]
    text = [
        "Edges created and deleted per second, batches one after another, as fast as they go. The kernel "
        "share is the time inside operators; imbalance is the busiest part's time over the mean; the error "
        "is the largest relative one against recomputation from scratch.",
        *messages((workload(r), r.get("messages_per_edge")) for r in results),
        *remarks(results),
    ]
    return [
        Section(
            "Throughput", text, Table(_TITLES, rows, names=2), _picture(results, apart), commands(results)
        )
    ]


def _row(result: Result, name: str) -> list[str]:
    get = result.get
    return [
        name, engine(result), number(setting(result, "batch")), number(setting(result, "parts")),
        number(_rounded(get("edges_per_second"))), number(get("batch_ms_p50")), number(get("batch_ms_p99")),
        percent(quantity(get("kernel_share"))), number(get("messages_per_edge")),
        number(get("replication_factor")), number(get("imbalance")), number(_moved_per_edge(result)),
        number(_total(get("bytes_per_edge"))), number(_total(get("bytes_per_vertex"))),
        error(get("max_relative_error")),
    ]  # fmt: skip


def _rounded(value: Any) -> Any:
    return round(value) if (quantity(value) or 0) >= 1000 else value


def _moved_per_edge(result: Result) -> float | None:
    """Bytes that operators handed on, by the edges that were created and deleted."""
    moved = quantity(result.get("bytes_moved"))
    edges = (quantity(result.get("edges_per_second")) or 0) * (quantity(result.get("seconds")) or 0)
    edges = edges or quantity(result.get("events")) or 0
    return None if moved is None or not edges else moved / edges


def _total(value: Any) -> float | None:
    """Bytes of all operators."""
    found = [q for q in map(quantity, mapping(value).values()) if q is not None]
    return sum(found) if found else quantity(value)


def _picture(results: Sequence[Result], apart: Sequence[str]) -> list[Picture]:
    speeds: dict[tuple[str, str, str], dict[float, list[float]]] = {}
    for result, said in zip(results, apart, strict=True):
        at, speed = above_zero(batch(result)), above_zero(result.get("edges_per_second"))
        if at and speed:
            line = speeds.setdefault((workload(result), engine(result), said), {})
            line.setdefault(at, []).append(speed)
    if not speeds:
        return []
    lines = [
        Line(
            family=joined(name, said),
            style=words(which),
            name=joined(which, name, said),
            points=[(at, float(np.median(found))) for at, found in sorted(line.items())],
        )
        for (name, which, said), line in speeds.items()
    ]
    svg = draw_lines(lines, "Throughput by batch size", "events in a batch", "edges per second", log_y=True)
    return [
        Picture("throughput", svg, "Edges per second by batch size, one line for each engine and workload")
    ]
