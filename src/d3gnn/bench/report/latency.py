"""Latency of outputs while events arrive at a constant rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from d3gnn.bench.report.chart_style import (
    COLOURS,
    DARK,
    PALE,
    add_legend,
    new_figure,
    set_scale,
    style_axes,
    to_svg,
)
from d3gnn.bench.report.fields import (
    Result,
    commands,
    distinguishing_settings,
    engine,
    finite_number,
    join_parts,
    messages,
    notes,
    rows,
    setting,
    workload,
)
from d3gnn.bench.report.formatting import DASH, error, number
from d3gnn.bench.report.section import Picture, Section, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FIELDS = {
    "events/s": "rate",
    "seconds": "seconds",
    "events": "events",
    "p50, ms": "p50_ms",
    "p95, ms": "p95_ms",
    "p99, ms": "p99_ms",
    "max, ms": "max_ms",
    "empty batch, ms": "empty_batch_ms",
    "batch p50, ms": "batch_ms_p50",
    "batches": "batches",
    "backlog growth, fraction of rate": "backlog_growth",
    "messages per edge": "messages_per_edge",
}


def latency(results: Sequence[Result]) -> list[Section]:
    """A table of all rates, and a chart over time for each."""
    results = sorted(results, key=lambda r: (workload(r), engine(r), finite_number(setting(r, "rate")) or 0))
    suffixes = distinguishing_settings(results, lambda r: (workload(r), engine(r), str(setting(r, "rate"))))
    names = [join_parts(workload(r), suffix) for r, suffix in zip(results, suffixes, strict=True)]
    text = [
        "Latency is measured from the arrival of the oldest event behind an output row to the end of its "
        "batch, including the commit, while events arrive at a constant rate. An empty batch has no events. "
        "If the backlog grows by more than a small fraction of the rate, the engine does not keep up.",
        *messages((workload(r), r.get("messages_per_edge")) for r in results),
        *notes(results),
    ]
    cells = [
        [
            name or DASH, engine(result), *(number(setting(result, field)) for field in _FIELDS.values()),
            error(result.get("max_relative_error")),
        ]
        for name, result in zip(names, results, strict=True)
    ]  # fmt: skip
    pictures = [
        Picture(
            f"latency-{place}",
            _over_time(result, name),
            f"Latency at {number(setting(result, 'rate'))} events/s, {join_parts(engine(result), name)}",
        )
        for place, (name, result) in enumerate(zip(names, results, strict=True), 1)
        if _series(result, "p50_ms") or _series(result, "max_ms")
    ]
    table = Table(["workload", "engine", *_FIELDS, "error"], cells, names=2)
    return [Section("Latency", text, table, pictures, commands(results))]


def _series(result: Result, name: str) -> list[tuple[float, float]]:
    """The values of a field over time."""
    found = (
        (finite_number(row.get("second")), finite_number(row.get(name)))
        for row in rows(result.get("timeline"))
    )
    return sorted((second, value) for second, value in found if second is not None and value is not None)


def _over_time(result: Result, name: str) -> str:
    backlog = _series(result, "backlog")
    figure = new_figure(9.5, 5.4 if backlog else 4.0)
    panels = figure.subplots(
        2 if backlog else 1,
        1,
        sharex=True,
        squeeze=False,
        gridspec_kw={"height_ratios": [2.6, 1][: 1 + bool(backlog)]},
    )[:, 0]
    rate = number(setting(result, "rate"))
    style_axes(panels[0], join_parts(f"Latency at {rate} events/s", engine(result), name))
    _draw_latency(panels[0], result)
    if backlog:
        style_axes(panels[1], "Backlog")
        panels[1].fill_between(
            [x for x, _ in backlog], [y for _, y in backlog], color="#777777", alpha=0.35, lw=0
        )
        panels[1].plot([x for x, _ in backlog], [y for _, y in backlog], color="#777777", lw=1.3)
        panels[1].set_ylabel("pending events", fontsize=10)
        set_scale(panels[1], "y", [y for _, y in backlog])
    for axes in panels:
        axes.grid(color=PALE, linewidth=0.6)
        axes.label_outer()
        axes.margins(x=0.01)
    panels[-1].set_xlabel("seconds since the start", fontsize=10)
    add_legend(figure, panels[0])
    return to_svg(figure)


def _draw_latency(axes: Axes, result: Result) -> None:
    values = []
    for field, label, colour in (("max_ms", "max", COLOURS[5]), ("p50_ms", "p50", COLOURS[0])):
        if points := _series(result, field):
            axes.plot(
                [x for x, _ in points], [y for _, y in points], color=colour, lw=1.7, label=label,
                marker="o" if len(points) < 25 else "", markersize=4,
            )  # fmt: skip
            values += [y for _, y in points]
    empty = finite_number(result.get("empty_batch_ms"))
    if empty is not None:
        axes.axhline(empty, color=DARK, lw=1.2, ls="--", label=f"empty batch, {number(empty, 'ms')}")
        values.append(empty)
    set_scale(axes, "y", values)
    axes.set_ylabel("milliseconds", fontsize=10)
