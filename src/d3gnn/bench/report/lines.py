"""A picture of lines: how one number depends on another, for each of several names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from d3gnn.bench.report.canvas import (
    COLOURS,
    MARKERS,
    PALE,
    drawn,
    dress,
    legend,
    log_axis,
    new_figure,
    scale,
    to_svg,
)


@dataclass(frozen=True)
class Line:
    """Points, all above zero; lines of one family share a colour, lines of one style their dashes."""

    family: str
    style: str
    name: str
    points: Sequence[tuple[float, float]]


def draw_lines(lines: Sequence[Line], title: str, x: str, y: str, *, log_y: bool = False) -> str:
    """The picture as SVG, with a log axis for x; names stand in the order in which lines end."""
    figure = new_figure(9.5, max(4.6, 0.5 + 0.2 * len(lines)))  # as high as the list of names
    axes = figure.add_subplot()
    dress(axes, title)
    colours = _places(line.family for line in lines)
    styles = _places(line.style for line in lines)
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
            label=drawn(line.name),
        )
    across = [px for line in lines for px, _ in line.points]
    up = [py for line in lines for _, py in line.points]
    log_axis(axes, "x", across)
    if log_y:
        log_axis(axes, "y", up)
    else:
        scale(axes, "y", up)
    axes.set_xlabel(x, fontsize=10)
    axes.set_ylabel(y, fontsize=10)
    axes.grid(color=PALE, linewidth=0.6)
    legend(figure, axes)
    return to_svg(figure)


def _places(names: Iterable[str]) -> dict[str, int]:
    """Each name's place among those that differ from it."""
    return {name: place for place, name in enumerate(dict.fromkeys(names))}
