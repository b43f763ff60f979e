"""`d3gnn bench stages`: breakdown of the time of a batch on Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from d3gnn.cli import options as opt
from d3gnn.cli.bench import stream
from d3gnn.cli.bench.show import show
from d3gnn.cli.console import print_json, steps, user_mistakes


def stages(
    edges: stream.EdgeFile = None,
    synthetic: stream.Synthetic = None,
    batch: opt.Batch = 20_000,
    parts: opt.Parts = 2,
    timed: Annotated[int, typer.Option(help="Number of timed batches.", metavar="N")] = 40,
    warm_up: Annotated[
        int, typer.Option(help="Batches of a separate warm-up pipeline (JVM).", metavar="N")
    ] = 100,
    partitioner: opt.Partitioner = opt.PartitionerName.hdrf,
    layers: opt.Layers = 2,
    width: opt.Width = 64,
    limit: stream.Limit = None,
    edges_mode: stream.Mode = None,
    undirected: stream.Undirected = False,
    shape: stream.Shape = opt.ShapeName.power_law,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Measure where the time of a batch on Spark goes, in milliseconds.

    The stages are source (listing files), planning (of the query), kernels (time in operators), tasks and
    rows (task scheduling, Python workers, row transfer) and commits. Also timed: a cold start, from starting
    the JVM to the end of the first batch, and a batch that rebuilds all lost state from the graph log.

    [bold]Example[/bold]

      d3gnn bench stages --edges edges.csv.gz --batch 20000 --json
    """
    with user_mistakes():
        from d3gnn.bench import ThroughputSettings
        from d3gnn.bench.stages import measure_stages

        settings = ThroughputSettings(batch, parts, "spark", partitioner.value, layers, width, seed=seed)
        if timed < 1 or warm_up < 1:
            raise ValueError(f"--timed {timed} --warm-up {warm_up}: both must be at least 1")
        workload = stream.load_workload(
            edges, synthetic, shape=shape, width=width, limit=limit, edges_mode=edges_mode,
            undirected=undirected, seed=seed,
        )  # fmt: skip
        with steps() as bars:
            count = min(timed * batch, workload.events)
            result = measure_stages(
                workload, settings, timed=timed, warm_up=warm_up, on_batches=bars.step("run", count)
            )
    if as_json:
        print_json(result.to_dict())
        return
    cold = result.cold_start_s
    show(
        f"A batch of {batch:,} events on Spark, {parts} part(s): {result.batch_ms:.0f} ms",
        ["", ""],
        [
            *((name, f"{spent:.1f} ms") for name, spent in result.milliseconds.items()),
            ("cold start, to the end of a batch", "-" if cold is None else f"{cold:.1f} s"),
            (f"rebuild of {result.recovered_edges:,} edges from the log", f"{result.recovery_s:.1f} s"),
        ],
    )
