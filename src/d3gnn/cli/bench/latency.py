"""`d3gnn bench latency`: how old outputs are when they come out."""

from __future__ import annotations

from typing import Annotated

import typer

from d3gnn.cli.bench.show import show
from d3gnn.cli.bench.stream import (
    Deletes,
    EdgeFile,
    FeatureUpdates,
    Mode,
    Shape,
    Synthetic,
    Undirected,
    Vertices,
    stream_of,
)
from d3gnn.cli.console import print_json, steps, user_mistakes
from d3gnn.cli.options import Json, Layers, Partitioner, PartitionerName, Parts, Seed, ShapeName, Width


def latency(
    rate: Annotated[float, typer.Option(help="Events that arrive in a second.", metavar="N")] = 10_000,
    seconds: Annotated[float, typer.Option(help="How long they arrive.", metavar="S")] = 60,
    edges: EdgeFile = None,
    synthetic: Synthetic = None,
    parts: Parts = 2,
    partitioner: Partitioner = PartitionerName.hdrf,
    layers: Layers = 2,
    width: Width = 64,
    warm_up: Annotated[
        float, typer.Option(help="Seconds that another pipeline takes in first, until Java is warm.")
    ] = 30,
    edges_mode: Mode = None,
    undirected: Undirected = False,
    shape: Shape = ShapeName.power_law,
    vertices: Vertices = 0,
    deletes: Deletes = 0.0,
    feature_updates: FeatureUpdates = 0.0,
    seed: Seed = 0,
    check: Annotated[bool, typer.Option(help="Compare the end with recomputation from scratch.")] = True,
    as_json: Json = False,
) -> None:
    """Offer a stream to the pipeline on Spark at a fixed rate, ready or not.

    Each event becomes available at its time. Latency is from the arrival of the oldest event behind an output
    to the end of its batch, commit and all. Without --edges and --synthetic it is a synthetic stream, as
    long as it takes.

    [bold]Example[/bold]

      d3gnn bench latency --rate 10000 --seconds 300 --json
    """
    with user_mistakes():
        from d3gnn.bench.latency import LatencySettings, measure_latency

        settings = LatencySettings(
            rate, seconds, parts, partitioner.value, layers, width, seed, warm_up=warm_up
        )
        if edges is None and synthetic is None:
            synthetic = settings.events
        workload = stream_of(
            edges,
            synthetic,
            shape=shape,
            vertices=vertices,
            deletes=deletes,
            feature_updates=feature_updates,
            width=width,
            edges_mode=edges_mode,
            undirected=undirected,
            seed=seed,
        )
        if workload.events < settings.events:
            raise ValueError(
                f"{rate:g} events/s for {seconds:g} s are {settings.events:,} events, but the stream has "
                f"{workload.events:,}: give a longer one, or fewer --seconds"
            )
    with steps() as bars:
        result = measure_latency(
            workload, settings, check=check, on_events=bars.step("offer", settings.events)
        )
    if as_json:
        print_json(result.to_dict())
        return
    error = result.max_relative_error
    show(
        f"{rate:,.0f} events/s for {seconds:g} s through Spark, {parts} part(s)",
        ["", ""],
        [
            ("latency, median", f"{result.p50_ms:,.0f} ms"),
            ("latency, 95th percentile", f"{result.p95_ms:,.0f} ms"),
            ("latency, 99th percentile", f"{result.p99_ms:,.0f} ms"),
            ("latency, largest", f"{result.max_ms:,.0f} ms"),
            ("a batch, median", f"{result.batch_ms_p50:,.0f} ms"),
            ("an empty batch, median", f"{result.empty_batch_ms:,.0f} ms"),
            ("growth of the backlog", f"{result.backlog_growth:+.2%} of the rate"),
            ("messages per edge", f"{result.messages_per_edge:,.1f}"),
            ("largest relative error", "not checked" if error is None else f"{error:.1e}"),
        ],
    )
