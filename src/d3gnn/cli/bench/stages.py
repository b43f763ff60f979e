"""`d3gnn bench stages`: where the time of a batch on Spark goes."""

from __future__ import annotations

from typing import Annotated

import typer

from d3gnn.cli.bench.show import show
from d3gnn.cli.bench.stream import EdgeFile, Limit, Mode, Shape, Synthetic, Undirected, stream_of
from d3gnn.cli.console import print_json, steps, user_mistakes
from d3gnn.cli.options import Batch, Json, Layers, Partitioner, PartitionerName, Parts, Seed, ShapeName, Width


def stages(
    edges: EdgeFile = None,
    synthetic: Synthetic = None,
    batch: Batch = 20_000,
    parts: Parts = 2,
    timed: Annotated[int, typer.Option(help="Batches to time.", metavar="N")] = 40,
    warm_up: Annotated[int, typer.Option(help="Batches before, until Java is warm.", metavar="N")] = 100,
    partitioner: Partitioner = PartitionerName.hdrf,
    layers: Layers = 2,
    width: Width = 64,
    limit: Limit = None,
    edges_mode: Mode = None,
    undirected: Undirected = False,
    shape: Shape = ShapeName.power_law,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Take batches on Spark apart: the source, planning, kernels, tasks and rows, commits.

    It also times the first start of all, and the batch after all arrays were lost, which makes them anew from
    the log.

    [bold]Example[/bold]

      d3gnn bench stages --edges edges.csv.gz --batch 20000 --json
    """
    with user_mistakes():
        from d3gnn.bench import ThroughputSettings
        from d3gnn.bench.stages import measure_stages

        settings = ThroughputSettings(batch, parts, "spark", partitioner.value, layers, width, seed=seed)
        if timed < 1 or warm_up < 1:
            raise ValueError(f"--timed {timed} --warm-up {warm_up}: at least 1 of each, please")
        workload = stream_of(
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
            ("first start, to the end of a batch", "-" if cold is None else f"{cold:.1f} s"),
            (f"arrays of {result.recovered_edges:,} edges made anew", f"{result.recovery_s:.1f} s"),
        ],
    )
