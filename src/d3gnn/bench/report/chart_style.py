"""Colours, axes and legends of all charts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

AxisName = Literal["x", "y"]
#: Colours that most colour-blind people can distinguish: the palette of Okabe and Ito without yellow, then
#: some of Tol's.
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#777777",
    "#882255", "#332288", "#999933",
)  # fmt: skip
#: Colours that need white text on them.
DEEP = {"#0072B2", "#009E73", "#D55E00", "#777777", "#882255", "#332288"}
DARK, GREY, PALE = "#222222", "#9a9a9a", "#dddddd"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")
#: Values that span a larger ratio are drawn on a log axis.
_WIDE = 12
_LONGEST_NAME, _LONGEST_TITLE = 44, 62


def new_figure(width: float, height: float) -> Figure:
    """A white figure without pyplot, so that no global state changes."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("the charts of a report need matplotlib: pip install matplotlib") from error

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def to_svg(figure: Figure) -> str:
    """The figure as SVG text; deterministic."""
    from matplotlib import rc_context

    file = StringIO()
    with rc_context({"svg.hashsalt": "d3gnn", "svg.fonttype": "path"}), warnings.catch_warnings():
        # A name in a script that the font lacks is label_text as boxes; that is no reason to go without a
        # picture.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def style_axes(axes: Axes, title: str = "") -> None:
    """Apply the common style, with an optional title."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9)
    if title:
        axes.set_title(
            label_text(title, _LONGEST_TITLE), loc="left", fontsize=11, fontweight="bold", color=DARK
        )


def label_text(name: str, longest: int = _LONGEST_NAME) -> str:
    """Shorten a name for a chart, and escape matplotlib's math syntax."""
    short = name if len(name) <= longest else f"{name[: longest - 3]}..."
    return short.replace("$", r"\$")


def set_scale(axes: Axes, which: AxisName, values: Sequence[float]) -> None:
    """Use a log axis if the values span more than a decade, else a linear axis from zero."""
    if values and min(values) > 0 and max(values) / min(values) > _WIDE:
        set_log_scale(axes, which, values)
        return
    top = max([*values, 0])
    _axis(axes, which).set_major_formatter(lambda x, _: _tick(x))
    axes.set(**{f"{which}lim": (0, 1.08 * top if top else 1)})


def set_log_scale(
    axes: Axes, which: AxisName, values: Sequence[float], room: tuple[float, float] = (1.6, 1.6)
) -> None:
    """Set a log axis for positive values; `room` is the margin factor below and above."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = min(values) / room[0], max(values) * room[1]
    axes.set(**{f"{which}scale": "log", f"{which}lim": (low, high)})
    short = math.log10(high / low) < 2.5
    axis = _axis(axes, which)
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if short else (1.0,), numticks=20))
    axis.set_minor_locator(LogLocator(subs=range(2, 10), numticks=99))
    axis.set_major_formatter(lambda x, _: _tick(x))
    axis.set_minor_formatter(NullFormatter())


def _axis(axes: Axes, which: AxisName) -> Axis:
    return axes.xaxis if which == "x" else axes.yaxis


def _tick(x: float) -> str:
    """
    >>> [_tick(x) for x in (0.001, 0.5, 20.0, 1000.0, 50_000.0, 2e6)]
    ['0.001', '0.5', '20', '1,000', '50,000', '2 M']
    """
    if abs(x) >= 1e6:
        return f"{x / 1e6:g} M"
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:g}"


def add_legend(figure: Figure, axes: Axes) -> None:
    """Add a legend outside of the axes."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=9, labelcolor=DARK)
