"""Breakdown of the time of a batch on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from d3gnn.bench.report.chart_style import (
    COLOURS,
    DARK,
    DEEP,
    PALE,
    add_legend,
    label_text,
    new_figure,
    set_scale,
    style_axes,
    to_svg,
)
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
    setting,
    workload,
)
from d3gnn.bench.report.formatting import DASH, number
from d3gnn.bench.report.section import Picture, Section, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Batch times that span a larger ratio are shown as percentages.
_WIDE = 8
#: Width of one digit, as a fraction of the axis.
_DIGIT = 0.014


def stages(results: Sequence[Result]) -> list[Section]:
    """A table, and one stacked bar for each batch size."""
    results = sorted(results, key=lambda r: (workload(r), engine(r), batch(r)))
    suffixes = distinguishing_settings(results, lambda r: (workload(r), engine(r), batch(r)))
    names = [join_parts(workload(r), suffix) for r, suffix in zip(results, suffixes, strict=True)]
    found = [_milliseconds(result) for result in results]
    columns = list(dict.fromkeys(stage for spent in found for stage in spent))
    text = [
        "Median milliseconds of each stage of a batch; time of a cold start, and of a rebuild of all state.",
        *messages((workload(r), r.get("messages_per_edge")) for r in results),
        *notes(results),
    ]
    cells = [
        [
            name or DASH, engine(result), number(setting(result, "batch")), number(result.get("batch_ms")),
            *(number(spent.get(stage)) for stage in columns),
            number(result.get("cold_start_s")), number(result.get("recovery_s")),
        ]
        for name, result, spent in zip(names, results, found, strict=True)
    ]  # fmt: skip
    titles = [
        "workload", "engine", "batch", "batch, ms", *(f"{stage}, ms" for stage in columns), "cold start, s",
        "rebuild, s",
    ]  # fmt: skip
    bars = [
        (join_parts(f"batch {number(setting(result, 'batch'))}", name), spent)
        for name, result, spent in zip(names, results, found, strict=True)
        if sum(spent.values()) > 0
    ]
    description = "Time of a batch by stage, one bar for each batch size"
    pictures = [Picture("stages", _stacked(bars, columns), description)] if bars else []
    return [
        Section("Time of a batch on Spark", text, Table(titles, cells, names=2), pictures, commands(results))
    ]


def _milliseconds(result: Result) -> dict[str, float]:
    given = mapping(result.get("milliseconds")).items()
    return {
        stage: spent for stage, value in given if (spent := finite_number(value)) is not None and spent >= 0
    }


def _stacked(bars: Sequence[tuple[str, dict[str, float]]], columns: Sequence[str]) -> str:
    totals = [sum(spent.values()) for _, spent in bars]
    shares = max(totals) > _WIDE * min(totals)
    figure = new_figure(9.5, max(2.6, 1.3 + 0.5 * len(bars)))
    axes = figure.add_subplot()
    style_axes(axes, "Time of a batch by stage" + (", percent" if shares else ""))
    longest = 100.0 if shares else max(totals)
    set_scale(axes, "x", [longest])
    axes.set_xlim(0, 1.14 * longest)  # room for the totals
    for place, ((_, spent), total) in enumerate(zip(bars, totals, strict=True)):
        unit = 100 / total if shares else 1.0
        _bar(
            axes, place, {stage: unit * spent.get(stage, 0.0) for stage in columns}, longest, label=place == 0
        )
        axes.annotate(
            number(total, "ms"), (unit * total, place), xytext=(5, 0), textcoords="offset points",
            va="center", fontsize=9, fontweight="bold", color=DARK,
        )  # fmt: skip
    axes.set_yticks(range(len(bars)), [label_text(name) for name, _ in bars])
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("percent of the batch" if shares else "milliseconds per batch", fontsize=10)
    axes.grid(axis="x", color=PALE, linewidth=0.6)
    add_legend(figure, axes)
    return to_svg(figure)


def _bar(axes: Axes, place: int, pieces: dict[str, float], longest: float, *, label: bool) -> None:
    left = 0.0
    for at, (stage, width) in enumerate(pieces.items()):
        colour = COLOURS[at % len(COLOURS)]
        axes.barh(
            place, width, left=left, height=0.62, color=colour, edgecolor="white", linewidth=0.8,
            label=label_text(stage) if label else None,
        )  # fmt: skip
        text = f"{width:,.0f}"
        if width > _DIGIT * (len(text) + 1) * longest:
            ink = "white" if colour in DEEP else DARK
            axes.text(left + width / 2, place, text, ha="center", va="center", fontsize=8.5, color=ink)
        left += width
