"""Line charts: one number over another, one line for each name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from d3gnn.bench.report.chart_style import (
    COLOURS,
    MARKERS,
    PALE,
    add_legend,
    label_text,
    new_figure,
    set_log_scale,
    set_scale,
    style_axes,
    to_svg,
)


@dataclass(frozen=True)
class Line:
    """A line through positive points; `family` sets the colour, `style` the dashes."""

    family: str
    style: str
    name: str
    points: Sequence[tuple[float, float]]


def draw_lines(lines: Sequence[Line], title: str, x: str, y: str, *, log_y: bool = False) -> str:
    """A line chart as SVG with a logarithmic x axis; the legend is ordered by the last y values."""
    figure = new_figure(9.5, max(4.6, 0.5 + 0.2 * len(lines)))  # room for the legend
    axes = figure.add_subplot()
    style_axes(axes, title)
    colours = _indexes(line.family for line in lines)
    styles = _indexes(line.style for line in lines)
    for line in sorted(lines, key=lambda line: -line.points[-1][1]):
        colour, style = colours[line.family], styles[line.style]
        axes.plot(
            [px for px, _ in line.points],
            [py for _, py in line.points],
            color=COLOURS[colour % len(COLOURS)],
            marker=MARKERS[colour % len(MARKERS)],
            linestyle=("-", "--", ":", "-.")[style % 4],
            markerfacecolor="white" if style % 2 else COLOURS[colour % len(COLOURS)],
            markersize=5.5,
            linewidth=1.7,
            label=label_text(line.name),
        )
    across = [px for line in lines for px, _ in line.points]
    up = [py for line in lines for _, py in line.points]
    set_log_scale(axes, "x", across)
    if log_y:
        set_log_scale(axes, "y", up)
    else:
        set_scale(axes, "y", up)
    axes.set_xlabel(x, fontsize=10)
    axes.set_ylabel(y, fontsize=10)
    axes.grid(color=PALE, linewidth=0.6)
    add_legend(figure, axes)
    return to_svg(figure)


def _indexes(names: Iterable[str]) -> dict[str, int]:
    """The index of each distinct name, in order of appearance."""
    return {name: place for place, name in enumerate(dict.fromkeys(names))}
