"""`d3gnn bench latency`: latency of outputs on Spark at a fixed event rate."""

from __future__ import annotations

from typing import Annotated

import typer

from d3gnn.cli import options as opt
from d3gnn.cli.bench import stream
from d3gnn.cli.bench.show import show
from d3gnn.cli.console import print_json, steps, user_mistakes


def latency(
    rate: Annotated[float, typer.Option(help="Arrival rate, events per second.", metavar="N")] = 10_000,
    seconds: Annotated[float, typer.Option(help="Duration of the stream, seconds.", metavar="S")] = 60,
    edges: stream.EdgeFile = None,
    synthetic: stream.Synthetic = None,
    parts: opt.Parts = 2,
    partitioner: opt.Partitioner = opt.PartitionerName.hdrf,
    layers: opt.Layers = 2,
    width: opt.Width = 64,
    warm_up: Annotated[
        float, typer.Option(help="Seconds of a separate warm-up pipeline (JVM).", metavar="S")
    ] = 30,
    edges_mode: stream.Mode = None,
    undirected: stream.Undirected = False,
    shape: stream.Shape = opt.ShapeName.power_law,
    vertices: stream.Vertices = 0,
    deletes: stream.Deletes = 0.0,
    feature_updates: stream.FeatureUpdates = 0.0,
    seed: opt.Seed = 0,
    check: stream.Check = True,
    as_json: opt.Json = False,
) -> None:
    """Measure the latency of outputs on Spark while events arrive at a fixed rate (open loop).

    Latency, in milliseconds, is measured from the arrival of the oldest event behind an output row to the end
    of its batch, including the commit. Also reported: the time of an empty batch, and the growth of the
    backlog as a fraction of the rate (at most 0 if the pipeline keeps up). Without --edges and --synthetic, a
    synthetic stream of the required length is used.

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
        workload = stream.load_workload(
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
                f"{rate:g} events/s for {seconds:g} s need {settings.events:,} events, but the stream has "
                f"{workload.events:,}: use a longer stream or fewer --seconds"
            )
    with steps() as bars:
        result = measure_latency(
            workload, settings, check=check, on_events=bars.step("replay", settings.events)
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
            ("latency, maximum", f"{result.max_ms:,.0f} ms"),
            ("batch, median", f"{result.batch_ms_p50:,.0f} ms"),
            ("empty batch, median", f"{result.empty_batch_ms:,.0f} ms"),
            ("backlog growth", f"{result.backlog_growth:+.2%} of the rate"),
            ("messages per edge", f"{result.messages_per_edge:,.1f}"),
            ("largest relative error", "not checked" if error is None else f"{error:.1e}"),
        ],
    )
