"""`d3gnn bench growth`: batch time by the size of the stored graph."""

from __future__ import annotations

from typing import Annotated

import typer

from d3gnn.cli import options as opt
from d3gnn.cli.bench import stream
from d3gnn.cli.bench.show import show
from d3gnn.cli.console import print_json, steps, user_mistakes


def growth(
    stored: Annotated[
        str, typer.Option(help="Sizes of the stored graph in edges, increasing.", metavar="N,N,...")
    ] = "100000,300000,1000000",
    batch: opt.Batch = 2000,
    engine: stream.Engine = opt.EngineName.local,
    shape: stream.Shape = opt.ShapeName.capped,
    timed: Annotated[int, typer.Option(help="Number of timed batches at each size.", metavar="N")] = 40,
    parts: opt.Parts = 1,
    partitioner: opt.Partitioner = opt.PartitionerName.hdrf,
    layers: opt.Layers = 2,
    width: opt.Width = 64,
    max_degree: stream.MaxDegree = 16,
    threads: opt.Threads = 1,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Measure how the time of a batch depends on the size of the stored graph.

    The same batches run on synthetic graphs of several sizes with the same degrees. The time of a batch
    should depend on what it touches, not on the size of the graph. The ratio is the median batch time at the
    last size divided by that at the first. The sizes are timed in five interleaved rounds; a wide spread of
    the ratios by round means that other processes disturbed the measurement. With hubs (--shape power-law,
    hubs or rmat) a batch touches more vertices as the graph grows: compare the times per message and per
    output row.

    [bold]Examples[/bold]

      d3gnn bench growth --stored 100000,1000000 --json

      d3gnn bench growth --stored 1000000,20000000 --engine spark --parts 2
    """
    with user_mistakes():
        try:
            sizes = [int(size) for size in stored.split(",")]
        except ValueError:
            raise ValueError(
                f"--stored {stored}: must be integers separated by commas, for example 100000,1000000"
            ) from None
        from d3gnn.bench import ThroughputSettings
        from d3gnn.bench.growth import check_sizes, measure_growth

        settings = ThroughputSettings(
            batch, parts, engine.value, partitioner.value, layers, width, threads=threads, seed=seed
        )
        check_sizes(sizes, timed)
    with steps() as bars:
        result = measure_growth(
            sizes,
            settings,
            shape=shape.value,
            max_degree=max_degree,
            timed=timed,
            on_edges=bars.step("grow", sum(sizes), "edges"),
        )
    if as_json:
        print_json(result.to_dict())
        return
    show(
        f"Batches of {batch:,} edges: {result.growth:g} times the edges stored, {result.ratio:.2f} times the "
        f"batch time ({min(result.ratio_by_round):.2f} to {max(result.ratio_by_round):.2f} by round)",
        ["edges stored", "vertices", "median batch", "messages per edge", "per message", "per output row"],
        [
            (
                f"{row['stored_edges']:,}",
                f"{row['vertices']:,}",
                f"{row['batch_ms_p50']:.2f} ms",
                f"{row['messages_per_edge']:.1f}",
                f"{row['us_per_message']:.2f} us",
                f"{row['us_per_row']:.2f} us",
            )
            for row in result.sizes
        ],
    )
