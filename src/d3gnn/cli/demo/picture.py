"""The picture of the demo: the embeddings, and the throughput and latency over the stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from d3gnn.bench.check import Comparison
from d3gnn.cli.demo.job import Job, Run
from d3gnn.types import Array, Doubles, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The most points to draw; more would cover each other.
_MOST_POINTS = 6000
#: Colours that most people can distinguish (Okabe and Ito).
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#777777")
_DARK = "#222222"
#: A first batch this many times slower than the others is left out: it mostly starts workers.
_SLOW_START = 4


def draw(job: Job, run: Run, compared: Comparison, path: Path) -> None:
    """Write the picture as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 11), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(3, 1, height_ratios=[3.2, 1, 1])
    points = figure.add_subplot(grid[0])
    speed = figure.add_subplot(grid[1])
    latency = figure.add_subplot(grid[2], sharex=speed)
    for axes in (points, speed, latency):
        axes.spines[["top", "right"]].set_visible(False)
    _draw_points(points, job, run)
    _draw_times(speed, latency, run)
    figure.suptitle(
        f"{run.totals.events:,} events, {compared.vertices:,} vertices: "
        f"embeddings within {compared.max_relative_error:.0e} of recomputation",
        x=0.01,
        ha="left",
        fontsize=13,
        fontweight="bold",
    )
    figure.savefig(path, dpi=130)


def project(embeddings: Floats) -> tuple[Doubles, Any, Any]:
    """The two directions in which embeddings vary most (PCA): centre, directions, shares of the variance."""
    centre = embeddings.mean(axis=0, dtype=np.float64)
    _, strength, directions = np.linalg.svd(embeddings - centre, full_matrices=False)
    share = strength**2 / max(float((strength**2).sum()), 1e-30)
    return centre, directions[:2].T, share[:2]


def _draw_points(axes: Axes, job: Job, run: Run) -> None:
    axes.set_title(
        "Embeddings at the end of the stream, numbered by community",
        loc="left",
        fontsize=11,
        fontweight="bold",
    )
    if len(run.after) < 3:
        axes.text(0.5, 0.5, "too few vertices to draw", ha="center", transform=axes.transAxes)
        return
    centre, directions, share = project(run.after)
    if directions.shape[1] < 2:
        return
    now, then = (run.after - centre) @ directions, (run.before - centre) @ directions
    group = job.stream.community(run.ids)
    shown = np.arange(len(now))
    if len(now) > _MOST_POINTS:
        shown = np.random.default_rng(0).choice(len(now), _MOST_POINTS, replace=False)
    for g in np.unique(group).tolist():
        here = shown[group[shown] == g]
        colour = _COLOURS[g % len(_COLOURS)]
        axes.scatter(now[here, 0], now[here, 1], s=7, color=colour, alpha=0.35, linewidths=0, rasterized=True)
        if len(here):
            _label(axes, np.median(now[here], axis=0), str(g), colour)
    _draw_movers(axes, run, now, then)
    _frame(axes, now)
    axes.set_xlabel(f"first principal component ({share[0]:.0%} of the variance)")
    axes.set_ylabel(f"second ({share[1]:.0%})")
    if run.movers:
        axes.legend(frameon=False, loc="lower right")


def _draw_movers(axes: Axes, run: Run, now: Array, then: Array) -> None:
    place = {int(id): i for i, id in enumerate(run.ids)}
    for mover in run.movers:
        i = place[mover.id]
        axes.annotate(
            "", xy=tuple(now[i]), xytext=tuple(then[i]),
            arrowprops={"arrowstyle": "-|>", "color": _DARK, "lw": 1.2, "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip
        axes.scatter(
            then[i, 0], then[i, 1], s=14, facecolors="white", edgecolors=_DARK, linewidths=1, zorder=3
        )
    if run.movers:
        axes.plot(
            [], [], color=_DARK, lw=1.2, marker=">", markersize=5,
            label=f"the {len(run.movers)} vertices that moved most over the last tenth of the stream",
        )  # fmt: skip


def _label(axes: Axes, at: Array, text: str, colour: str) -> None:
    """A name on top of its points, readable on any of them."""
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=4, foreground="white")]
    axes.text(
        at[0], at[1], text, color=colour, fontsize=16, fontweight="bold", ha="center", va="center",
        path_effects=halo, zorder=4,
    )  # fmt: skip


def _frame(axes: Axes, points: Array) -> None:
    """Leave the outermost few points in a thousand outside, so that the rest can be seen."""
    low, high = np.percentile(points, [0.1, 99.9], axis=0)
    room = 0.08 * (high - low) + 1e-9
    axes.set_xlim(low[0] - room[0], high[0] + room[0])
    axes.set_ylim(low[1] - room[1], high[1] + room[1])


def _draw_times(speed: Axes, latency: Axes, run: Run) -> None:
    ms, events = np.array(run.batch_ms), np.array(run.batch_events)
    done = np.cumsum(events)
    left_out = ""
    if len(ms) > 1:  # the last batch is what is left over
        ms, events, done = ms[:-1], events[:-1], done[:-1]
    if len(ms) > 2 and ms[0] > _SLOW_START * np.median(ms):
        left_out = f"; the first took {ms[0] / 1e3:.1f} s to start and is left out"
        ms, events, done = ms[1:], events[1:], done[1:]
    window = max(1, len(ms) // 60)
    rate = _moving(events, window) / np.maximum(_moving(ms, window), 1e-9)  # thousands per second
    speed.set_title("Throughput", loc="left", fontsize=11, fontweight="bold")
    speed.plot(done, rate, color=_COLOURS[0], lw=1.6)
    speed.set_ylabel("thousand events/s")
    speed.set_ylim(bottom=0)
    speed.tick_params(labelbottom=False)
    latency.set_title("Time per batch", loc="left", fontsize=11, fontweight="bold")
    latency.scatter(done, ms, s=8, color="#999999", linewidths=0, label="each batch")
    latency.plot(done, _moving(ms, window), color=_COLOURS[5], lw=1.6, label="mean of neighbours")
    latency.set_ylabel("milliseconds")
    latency.set_ylim(0, 1.3 * float(np.percentile(ms, 99)))  # the legend stands above the line
    latency.set_xlabel(f"events so far (batches of {int(events.max()):,}{left_out})")
    latency.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    latency.legend(frameon=False, loc="upper left", ncols=2)
    for axes in (speed, latency):
        axes.grid(axis="y", color="#dddddd", lw=0.6)
        axes.set_xlim(0, float(done[-1]))


def _moving(values: Array, window: int) -> Doubles:
    """The mean of each value and its neighbours, fewer of them at the ends."""
    ones = np.ones(window)
    smooth: Doubles = np.convolve(values, ones, "same") / np.convolve(np.ones(len(values)), ones, "same")
    return smooth
