"""`d3gnn bench growth`: time of a batch as the stored graph grows."""

from __future__ import annotations

from typing import Annotated

import typer

from d3gnn.cli.bench.show import show
from d3gnn.cli.bench.stream import MaxDegree, Shape
from d3gnn.cli.console import print_json, steps, user_mistakes
from d3gnn.cli.options import (
    Batch,
    EngineName,
    Json,
    Layers,
    Partitioner,
    PartitionerName,
    Parts,
    Seed,
    ShapeName,
    Threads,
    Width,
)


def growth(
    stored: Annotated[
        str, typer.Option(help="Sizes of the stored graph, in edges, rising.", metavar="N,N,...")
    ] = "100000,300000,1000000",
    batch: Batch = 2000,
    engine: Annotated[EngineName, typer.Option(help="What runs the stream.")] = EngineName.local,
    shape: Shape = ShapeName.capped,
    timed: Annotated[int, typer.Option(help="Batches to time at each size.", metavar="N")] = 40,
    parts: Parts = 1,
    partitioner: Partitioner = PartitionerName.hdrf,
    layers: Layers = 2,
    width: Width = 64,
    max_degree: MaxDegree = 16,
    threads: Threads = 1,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Time the same batches on graphs of several sizes, with the same degrees.

    A batch should cost what it touches, not what is stored: the ratio says how much longer the median batch
    takes at the last size than at the first. The sizes are timed in turns, in five rounds; where the ratios
    of the rounds lie far apart, the machine was busy with something else. Where a stream has hubs, a batch
    touches more as the graph grows: look at the time for each message and each row then.

    [bold]Examples[/bold]

      d3gnn bench growth --stored 100000,1000000 --json

      d3gnn bench growth --stored 1000000,20000000 --engine spark --parts 2
    """
    with user_mistakes():
        try:
            sizes = [int(size) for size in stored.split(",")]
        except ValueError:
            raise ValueError(
                f"--stored {stored}: numbers with commas between, as in 100000,1000000"
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
        f"{batch:,}-edge batches: on {result.growth:g} times the graph, {result.ratio:.2f} times the time "
        f"({min(result.ratio_by_round):.2f} to {max(result.ratio_by_round):.2f} by round)",
        ["edges stored", "vertices", "batch, median", "messages per edge", "per message", "per row"],
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
