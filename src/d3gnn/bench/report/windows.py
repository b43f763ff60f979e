"""Traffic, run time and latency of window policies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from d3gnn.bench.report.chart_style import (
    COLOURS,
    DARK,
    MARKERS,
    PALE,
    add_legend,
    label_text,
    new_figure,
    set_log_scale,
    style_axes,
    to_svg,
)
from d3gnn.bench.report.fields import (
    Result,
    commands,
    distinguishing_settings,
    finite_number,
    join_parts,
    mapping,
    notes,
    positive_number,
    rows,
    setting,
    workload,
)
from d3gnn.bench.report.formatting import DASH, error, number, one_line
from d3gnn.bench.report.section import Picture, Section, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLES = [
    "workload", "window", "max delay, s", "run time, s", "speed-up", "last layer, MB", "reduction",
    "messages", "forwards", "p50, s", "p99, s", "max, s", "imbalance", "edges/s", "bookkeeping",
    "error",
]  # fmt: skip


def windows(results: Sequence[Result]) -> list[Section]:
    """A table of all windows, and a chart of traffic over latency for each stream."""
    results = sorted(results, key=workload)
    suffixes = distinguishing_settings(results, workload)
    named = [
        (join_parts(workload(r), suffix) or DASH, r) for r, suffix in zip(results, suffixes, strict=True)
    ]
    text = [
        "The same stream without a window, and with a window of each kind. A window delays the changes of a "
        "vertex in each operator, in order to merge them with later ones; max delay is the longest delay in "
        "one operator. Batches arrive at a fixed interval of a simulated clock. Latency is measured from "
        "the arrival of the oldest event behind an output row to its emission. Last layer: bytes of the "
        "values sent to the Edge operator and of the partial aggregates sent to the Vertex operator. "
        "Bookkeeping: fraction of the run time spent in windows.",
        *notes(results),
    ]
    cells = [
        _row(name, policy, found, result)
        for name, result in named
        for policy, found in mapping(result.get("policies")).items()
        if isinstance(found, Mapping)
    ]
    table = Table(_TITLES, cells, names=2) if cells else None
    by_stream: dict[str, list[Result]] = {}
    for result in results:
        if _points(result):
            by_stream.setdefault(workload(result), []).append(result)
    pictures = [
        Picture(f"windows-{place}", draw_windows(found, name), f"Traffic over latency of windows, {name}")
        for place, (name, found) in enumerate(by_stream.items(), 1)
    ]
    return [Section("Windows", text, table, pictures, commands(results))]


def _row(name: str, policy: str, found: Mapping[str, Any], result: Result) -> list[str]:
    layers = rows(found.get("layers"))
    get = found.get
    return [
        name, one_line(get("window") or policy), number(get("max_delay_s")), number(get("seconds")),
        number(mapping(result.get("speedup")).get(policy)), number(_megabytes(found)),
        number(mapping(result.get("traffic_reduction")).get(policy)),
        number(sum(finite_number(layer.get("messages")) or 0 for layer in layers)), number(get("forwards")),
        *(number(_seconds(get(field))) for field in ("p50_ms", "p99_ms", "max_ms")), number(get("imbalance")),
        number(get("edges_per_second")), number(get("bookkeeping_share")), error(get("max_relative_error")),
    ]  # fmt: skip


def _megabytes(found: Mapping[str, Any]) -> float | None:
    """Megabytes sent in the last layer."""
    layers = rows(found.get("layers"))
    if not layers:
        return None
    return sum(finite_number(layers[-1].get(to)) or 0 for to in ("bytes_to_edge", "bytes_to_vertex")) / 1e6


def _seconds(milliseconds: Any) -> float | None:
    found = finite_number(milliseconds)
    return None if found is None else found / 1e3


def _points(result: Result) -> list[tuple[str, float, float, float]]:
    """For each policy: p50 and p99 latency in seconds, and megabytes sent in the last layer."""
    found = []
    for policy, of in mapping(result.get("policies")).items():
        if isinstance(of, Mapping):
            p50, p99 = positive_number(of.get("p50_ms")), positive_number(of.get("p99_ms"))
            moved = positive_number(_megabytes(of))
            if p50 and p99 and moved:
                found.append((policy, p50 / 1e3, p99 / 1e3, moved))
    return found


def draw_windows(results: Sequence[Result], name: str) -> str:
    """Traffic of the last layer over latency: medians with whiskers to p99.

    A line connects the windows of one kind with different lengths.
    """
    lines: dict[str, list[tuple[float, float, float, str]]] = {}
    for result in results:
        batches = number(setting(result, "window"))
        for policy, p50, p99, moved in _points(result):
            lines.setdefault(policy, []).append((p50, p99, moved, batches))
    figure = new_figure(9.5, 4.6)
    axes = figure.add_subplot()
    style_axes(axes, join_parts("Windows: traffic over latency", name))
    for place, (policy, points) in enumerate(lines.items()):
        colour = COLOURS[place % len(COLOURS)]
        points.sort()
        if policy == "none":
            points = points[:1]  # there is only one point: no window has no length
        for p50, p99, moved, _ in points:
            axes.plot([p50, p99], [moved, moved], color=colour, lw=1.0)
        axes.plot(
            [p50 for p50, *_ in points], [moved for *_, moved, _ in points], color=colour, lw=1.4,
            marker=MARKERS[place % len(MARKERS)], markersize=7, label=label_text(policy),
        )  # fmt: skip
    every = [point for points in lines.values() for point in points]
    set_log_scale(axes, "x", [x for p50, p99, *_ in every for x in (p50, p99)])
    set_log_scale(axes, "y", [moved for *_, moved, _ in every])
    _name_lengths(axes, [point for policy, points in lines.items() if policy != "none" for point in points])
    axes.set_xlabel(
        "latency from the oldest event behind an output, seconds (p50, whisker to p99)", fontsize=10
    )
    axes.set_ylabel("megabytes sent in the last layer", fontsize=10)
    axes.grid(color=PALE, linewidth=0.6)
    add_legend(figure, axes)
    return to_svg(figure)


def _name_lengths(axes: Axes, points: Sequence[tuple[float, float, float, str]]) -> None:
    """Label groups of windows with equal length: above the points, for the last group below."""
    by_length: dict[str, list[tuple[float, float]]] = {}
    for p50, _, moved, batches in sorted(points):
        by_length.setdefault(batches, []).append((p50, moved))
    for place, (batches, where) in enumerate(by_length.items(), 1):
        is_last = place == len(by_length) > 1
        x = math.prod(p50 for p50, _ in where) ** (1 / len(where))
        y = min(moved for _, moved in where) if is_last else max(moved for _, moved in where)
        axes.annotate(
            f"{batches} batches", (x, y), xytext=(0, -12 if is_last else 12), textcoords="offset points",
            ha="center", va="top" if is_last else "bottom", fontsize=9, color=DARK,
        )  # fmt: skip
