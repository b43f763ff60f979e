"""d3gnn beside other systems that keep the same embeddings up to date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from d3gnn.bench.report.canvas import DARK, GREY, PALE, drawn, dress, log_axis, new_figure, to_svg
from d3gnn.bench.report.fields import (
    Result,
    above_zero,
    batch,
    commands,
    differences,
    joined,
    mapping,
    messages,
    quantity,
    remarks,
    setting,
    workload,
)
from d3gnn.bench.report.section import Cell, Picture, Section, Table
from d3gnn.bench.report.words import DASH, duration, error, number, slug, times

#: What systems are called, in the order in which they stand.
SYSTEMS = {
    "dgl_full": "DGL, whole graph",
    "dgl_influenced": "DGL, influenced vertices",
    "pyg_full": "PyG, whole graph",
    "pyg_influenced": "PyG, influenced vertices",
    "tuned_full": "DGL's kernels by hand, whole graph",
    "tuned_influenced": "DGL's kernels by hand, influenced vertices",
    "ripple": "Ripple",
    "local": "d3gnn local",
    "spark": "d3gnn on Spark",
}
OURS = {"local": "#0072B2", "spark": "#56B4E9"}


@dataclass(frozen=True)
class Ratio:
    """How many times as fast one of our engines is as another system, in one result."""

    result: Result
    engine: str
    peer: str
    value: float


def ratios(results: Sequence[Result]) -> Iterator[Ratio]:
    """All that results say, or that follows from their times."""
    for result in results:
        said, seconds = mapping(result.get("speedup")), seconds_per_batch(result)
        for engine in OURS:
            over = dict(mapping(said.get(f"{engine}_over")))
            for peer, spent in seconds.items():
                if peer not in OURS and peer not in over and engine in seconds:
                    over[peer] = spent / seconds[engine]
            for peer, value in over.items():
                if (ratio := above_zero(value)) is not None:
                    yield Ratio(result, engine, peer, ratio)


def seconds_per_batch(result: Result) -> dict[str, float]:
    """By system; those without a time are left out."""
    found = {name: above_zero(system.get("seconds_per_batch")) for name, system in _systems(result).items()}
    return {name: spent for name, spent in found.items() if spent is not None}


def title(name: str) -> str:
    return SYSTEMS.get(name, name)


def peers(results: Sequence[Result]) -> list[Section]:
    """A picture for each stream, then a table for each stream and batch size."""
    results = sorted(results, key=lambda r: (workload(r), batch(r)))
    apart = differences(results, lambda r: (workload(r), batch(r)))
    text = [
        "Each system has the same graph before, takes in the same batches with the same weights and threads, "
        "and has all embeddings right after each. A whole-graph system computes all of them again; one of "
        "influenced vertices only those that the batch can have changed; Ripple is a re-implementation of "
        "that paper's idea. The bookkeeping that turns ids into rows of a matrix counts for d3gnn only.",
        *messages((workload(r), r.get("messages_per_edge")) for r in results),
        "A ratio above one says how many times as fast d3gnn is; one below is marked as slower.",
    ]
    return [
        Section("Against other systems", text, pictures=_pictures(results, apart)),
        *(_table(result, said) for result, said in zip(results, apart, strict=True)),
    ]


def _systems(result: Result) -> dict[str, Mapping[str, Any]]:
    """In the order of `SYSTEMS`, then those that nobody here has heard of."""
    given = mapping(result.get("systems"))
    names = [name for name in SYSTEMS if name in given] + [name for name in given if name not in SYSTEMS]
    return {name: mapping(given[name]) for name in names}


def _table(result: Result, said: str) -> Section:
    over = {(ratio.engine, ratio.peer): ratio.value for ratio in ratios([result])}
    rows: list[list[Cell]] = [
        [
            title(name),
            number(quantity(system.get("seconds_per_batch"))),
            number(quantity(system.get("edges_per_second"))),
            number(quantity(system.get("batches"))),
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
        "local, times as fast",
        "spark, times as fast",
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
        joined(workload(result), f"batches of {number(setting(result, 'batch'))}", said),
        [*([f"Measured with: {', '.join(counts)}."] if counts else []), *remarks([result])],
        Table(columns, rows) if rows else None,
        commands=commands([result]),
        level=3,
    )


def _pictures(results: Sequence[Result], apart: Sequence[str]) -> list[Picture]:
    panels: dict[str, list[tuple[str, dict[str, float]]]] = {}
    for result, said in zip(results, apart, strict=True):
        if seconds := seconds_per_batch(result):
            name = joined(f"batches of {number(setting(result, 'batch'))}", said)
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
    """Bars under one another, a group for each batch size, each with its time at its end."""
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
        dress(axes, group)
        places = range(len(seconds))
        axes.barh(places, list(seconds.values()), height=0.72, color=[OURS.get(s, GREY) for s in seconds])
        axes.set_yticks(places, [drawn(title(system)) for system in seconds])
        axes.set_ylim(len(seconds) - 0.45, -0.55)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color=PALE, linewidth=0.6)
        log_axis(axes, "x", everything, room=(2.5, 3.0))
        axes.label_outer()
        for place, spent in zip(places, seconds.values(), strict=True):
            axes.annotate(
                duration(spent), (spent, place), xytext=(4, 0), textcoords="offset points", va="center",
                fontsize=8.5, color=DARK,
            )  # fmt: skip
    grid[-1, 0].set_xlabel("seconds per batch (log scale; shorter is better)", fontsize=10)
    heading = f"Time per batch{'' if name == DASH else f': {drawn(name)}'}"
    figure.suptitle(heading, x=0.01, ha="left", fontsize=12.5, fontweight="bold", color=DARK)
    return to_svg(figure)
