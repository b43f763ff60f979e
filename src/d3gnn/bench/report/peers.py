"""Comparison of d3gnn with other systems that keep the same embeddings up to date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from d3gnn.bench.report.chart_style import (
    DARK,
    GREY,
    PALE,
    label_text,
    new_figure,
    set_log_scale,
    style_axes,
    to_svg,
)
from d3gnn.bench.report.fields import (
    Result,
    batch,
    commands,
    distinguishing_settings,
    finite_number,
    join_parts,
    mapping,
    messages,
    notes,
    positive_number,
    setting,
    workload,
)
from d3gnn.bench.report.formatting import DASH, duration, error, number, slug, times
from d3gnn.bench.report.section import Cell, Picture, Section, Table

#: Display names of systems, in display order.
SYSTEMS = {
    "dgl_full": "DGL, whole graph",
    "dgl_influenced": "DGL, influenced vertices",
    "pyg_full": "PyG, whole graph",
    "pyg_influenced": "PyG, influenced vertices",
    "tuned_full": "DGL kernels, hand-optimised, whole graph",
    "tuned_influenced": "DGL kernels, hand-optimised, influenced vertices",
    "ripple": "delta propagation (RIPPLE)",
    "local": "d3gnn LocalEngine",
    "spark": "d3gnn on Spark",
}
OURS = {"local": "#0072B2", "spark": "#56B4E9"}


@dataclass(frozen=True)
class Ratio:
    """The speed-up of a d3gnn engine over another system in one result."""

    result: Result
    engine: str
    peer: str
    value: float


def ratios(results: Sequence[Result]) -> Iterator[Ratio]:
    """All speed-ups of the results; computed from batch times where a result has none."""
    for result in results:
        given, seconds = mapping(result.get("speedup")), seconds_per_batch(result)
        for engine in OURS:
            over = dict(mapping(given.get(f"{engine}_over")))
            for peer, spent in seconds.items():
                if peer not in OURS and peer not in over and engine in seconds:
                    over[peer] = spent / seconds[engine]
            for peer, value in over.items():
                if (ratio := positive_number(value)) is not None:
                    yield Ratio(result, engine, peer, ratio)


def seconds_per_batch(result: Result) -> dict[str, float]:
    """Seconds per batch by system; systems without a time are left out."""
    found = {
        name: positive_number(system.get("seconds_per_batch")) for name, system in _systems(result).items()
    }
    return {name: spent for name, spent in found.items() if spent is not None}


def title(name: str) -> str:
    return SYSTEMS.get(name, name)


def peers(results: Sequence[Result]) -> list[Section]:
    """A chart for each stream, and a table for each stream and batch size."""
    results = sorted(results, key=lambda r: (workload(r), batch(r)))
    suffixes = distinguishing_settings(results, lambda r: (workload(r), batch(r)))
    text = [
        "Each system starts with the same graph, processes the same batches with the same weights, and has "
        "exact embeddings after each batch. Whole-graph systems recompute all embeddings; systems on "
        "influenced vertices recompute those that the batch can have changed; delta propagation is a "
        "re-implementation of the idea of RIPPLE. LocalEngine uses one thread. The time to map ids to "
        "matrix rows counts for d3gnn only.",
        *messages((workload(r), r.get("messages_per_edge")) for r in results),
        "A speed-up is the other system's time divided by that of d3gnn; speed-ups below 1 are marked as "
        "slower.",
    ]
    return [
        Section("Comparison with other systems", text, pictures=_pictures(results, suffixes)),
        *(_table(result, suffix) for result, suffix in zip(results, suffixes, strict=True)),
    ]


def _systems(result: Result) -> dict[str, Mapping[str, Any]]:
    """In the order of `SYSTEMS`, then unknown systems."""
    given = mapping(result.get("systems"))
    names = [name for name in SYSTEMS if name in given] + [name for name in given if name not in SYSTEMS]
    return {name: mapping(given[name]) for name in names}


def _table(result: Result, suffix: str) -> Section:
    over = {(ratio.engine, ratio.peer): ratio.value for ratio in ratios([result])}
    rows: list[list[Cell]] = [
        [
            title(name),
            number(finite_number(system.get("seconds_per_batch"))),
            number(finite_number(system.get("edges_per_second"))),
            number(finite_number(system.get("batches"))),
            error(system.get("max_relative_error")),
            times(over.get(("local", name))),
            times(over.get(("spark", name))),
        ]
        for name, system in _systems(result).items()
    ]
    columns = [
        "system",
        "s/batch",
        "edges/s",
        "batches timed",
        "error",
        "speed-up of LocalEngine",
        "speed-up of Spark",
    ]
    counts = [
        f"{name} {number(setting(result, field))}"
        for name, field in (
            ("stored edges", "stored_edges"), ("vertices", "vertices"), ("timed batches", "timed_batches"),
            ("threads", "threads"), ("parts", "parts"), ("messages per edge", "messages_per_edge"),
        )
        if setting(result, field) is not None
    ]  # fmt: skip
    return Section(
        join_parts(workload(result), f"batches of {number(setting(result, 'batch'))}", suffix),
        [*([f"Configuration: {', '.join(counts)}."] if counts else []), *notes([result])],
        Table(columns, rows) if rows else None,
        commands=commands([result]),
        level=3,
    )


def _pictures(results: Sequence[Result], suffixes: Sequence[str]) -> list[Picture]:
    panels: dict[str, list[tuple[str, dict[str, float]]]] = {}
    for result, suffix in zip(results, suffixes, strict=True):
        if seconds := seconds_per_batch(result):
            name = join_parts(f"batches of {number(setting(result, 'batch'))}", suffix)
            panels.setdefault(workload(result), []).append((name, seconds))
    return [
        Picture(
            _file_name(f"peers-{place}", name),
            _bars(name, shown),
            f"Seconds per batch of each system, by batch size, {name}",
        )
        for place, (name, shown) in enumerate(panels.items(), 1)
    ]


def _file_name(*parts: str) -> str:
    return "-".join(filter(None, map(slug, parts)))


def _bars(name: str, panels: Sequence[tuple[str, dict[str, float]]]) -> str:
    """Horizontal bars labelled with their times, one group for each batch size."""
    counts = [len(seconds) for _, seconds in panels]
    figure = new_figure(9.5, 0.9 + sum(0.27 * count + 0.45 for count in counts))
    grid = figure.subplots(
        len(panels),
        1,
        sharex=True,
        squeeze=False,
        gridspec_kw={"height_ratios": [count + 0.6 for count in counts]},
    )
    everything = [spent for _, seconds in panels for spent in seconds.values()]
    for axes, (group, seconds) in zip(grid[:, 0], panels, strict=True):
        style_axes(axes, group)
        places = range(len(seconds))
        axes.barh(places, list(seconds.values()), height=0.72, color=[OURS.get(s, GREY) for s in seconds])
        axes.set_yticks(places, [label_text(title(system)) for system in seconds])
        axes.set_ylim(len(seconds) - 0.45, -0.55)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color=PALE, linewidth=0.6)
        set_log_scale(axes, "x", everything, room=(2.5, 3.0))
        axes.label_outer()
        for place, spent in zip(places, seconds.values(), strict=True):
            axes.annotate(
                duration(spent), (spent, place), xytext=(4, 0), textcoords="offset points", va="center",
                fontsize=8.5, color=DARK,
            )  # fmt: skip
    grid[-1, 0].set_xlabel("seconds per batch (log scale; shorter is better)", fontsize=10)
    heading = f"Time per batch{'' if name == DASH else f': {label_text(name)}'}"
    figure.suptitle(heading, x=0.01, ha="left", fontsize=12.5, fontweight="bold", color=DARK)
    return to_svg(figure)
