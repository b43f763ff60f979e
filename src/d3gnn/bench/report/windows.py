"""What windows save, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from d3gnn.bench.report.canvas import (
    COLOURS,
    DARK,
    MARKERS,
    PALE,
    drawn,
    dress,
    legend,
    log_axis,
    new_figure,
    to_svg,
)
from d3gnn.bench.report.fields import (
    Result,
    above_zero,
    commands,
    differences,
    joined,
    mapping,
    quantity,
    remarks,
    rows,
    setting,
    workload,
)
from d3gnn.bench.report.section import Picture, Section, Table
from d3gnn.bench.report.words import DASH, error, number, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLES = [
    "workload", "window", "waits at most, s", "run time, s", "times less", "last layer, MB", "times less",
    "messages", "forwards", "p50, s", "p99, s", "max, s", "imbalance", "edges/s", "bookkeeping, share",
    "error",
]  # fmt: skip


def windows(results: Sequence[Result]) -> list[Section]:
    """One table of all windows, and a picture of traffic against latency for each stream."""
    results = sorted(results, key=workload)
    apart = differences(results, workload)
    named = [(joined(workload(r), said) or DASH, r) for r, said in zip(results, apart, strict=True)]
    text = [
        "The same stream without a window, and with one of each kind. What changes at a vertex waits for "
        "more to change, in each operator on its own; the delay is the most that anything waits there. "
        "Latency is from the arrival of the oldest event behind an output until it is out. Batches come at a "
        "fixed pace on a clock that is set by hand. The last layer's bytes are values on their way to its "
        "edges and partial aggregates on their way back.",
        *remarks(results),
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
        Picture(f"windows-{place}", draw_windows(found, name), f"Traffic against latency of windows, {name}")
        for place, (name, found) in enumerate(by_stream.items(), 1)
    ]
    return [Section("Windows", text, table, pictures, commands(results))]


def _row(name: str, policy: str, found: Mapping[str, Any], result: Result) -> list[str]:
    layers = rows(found.get("layers"))
    get = found.get
    return [
        name, words(get("window") or policy), number(get("delay_s")), number(get("seconds")),
        number(mapping(result.get("less_time")).get(policy)), number(_megabytes(found)),
        number(mapping(result.get("fewer_bytes")).get(policy)),
        number(sum(quantity(layer.get("messages")) or 0 for layer in layers)), number(get("forwards")),
        *(number(_seconds(get(field))) for field in ("p50_ms", "p99_ms", "max_ms")), number(get("imbalance")),
        number(get("edges_per_second")), number(get("bookkeeping_share")), error(get("max_relative_error")),
    ]  # fmt: skip


def _megabytes(found: Mapping[str, Any]) -> float | None:
    """What the last layer moved."""
    layers = rows(found.get("layers"))
    if not layers:
        return None
    return sum(quantity(layers[-1].get(to)) or 0 for to in ("bytes_to_edge", "bytes_to_vertex")) / 1e6


def _seconds(milliseconds: Any) -> float | None:
    found = quantity(milliseconds)
    return None if found is None else found / 1e3


def _points(result: Result) -> list[tuple[str, float, float, float]]:
    """Of each policy: median and 99th percentile of latency in seconds, and megabytes of the last layer."""
    found = []
    for policy, of in mapping(result.get("policies")).items():
        if isinstance(of, Mapping):
            p50, p99 = above_zero(of.get("p50_ms")), above_zero(of.get("p99_ms"))
            moved = above_zero(_megabytes(of))
            if p50 and p99 and moved:
                found.append((policy, p50 / 1e3, p99 / 1e3, moved))
    return found


def draw_windows(results: Sequence[Result], name: str) -> str:
    """Traffic of the last layer against latency: medians, with a whisker to the 99th percentile, and a line
    for each kind of window through those of several lengths.
    """
    lines: dict[str, list[tuple[float, float, float, str]]] = {}
    for result in results:
        batches = number(setting(result, "window"))
        for policy, p50, p99, moved in _points(result):
            lines.setdefault(policy, []).append((p50, p99, moved, batches))
    figure = new_figure(9.5, 4.6)
    axes = figure.add_subplot()
    dress(axes, joined("Windows: traffic against latency", name))
    for place, (policy, points) in enumerate(lines.items()):
        colour = COLOURS[place % len(COLOURS)]
        points.sort()
        if policy == "none":
            points = points[:1]  # it has no length
        for p50, p99, moved, _ in points:
            axes.plot([p50, p99], [moved, moved], color=colour, lw=1.0)
        axes.plot(
            [p50 for p50, *_ in points], [moved for *_, moved, _ in points], color=colour, lw=1.4,
            marker=MARKERS[place % len(MARKERS)], markersize=7, label=drawn(policy),
        )  # fmt: skip
    every = [point for points in lines.values() for point in points]
    log_axis(axes, "x", [x for p50, p99, *_ in every for x in (p50, p99)])
    log_axis(axes, "y", [moved for *_, moved, _ in every])
    _name_lengths(axes, [point for policy, points in lines.items() if policy != "none" for point in points])
    axes.set_xlabel(
        "latency of the oldest event behind an output, seconds: p50, and a whisker to p99", fontsize=10
    )
    axes.set_ylabel("megabytes moved in the last layer", fontsize=10)
    axes.grid(color=PALE, linewidth=0.6)
    legend(figure, axes)
    return to_svg(figure)


def _name_lengths(axes: Axes, points: Sequence[tuple[float, float, float, str]]) -> None:
    """Say once how long the windows are that lie together: above them, or below where the lines end."""
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
