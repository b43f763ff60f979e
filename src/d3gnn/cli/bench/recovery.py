"""`d3gnn bench recovery`: from the death of a worker process to fresh output."""

from __future__ import annotations

from typing import Annotated

import typer

from d3gnn.cli import options as opt
from d3gnn.cli.bench import stream
from d3gnn.cli.bench.show import show
from d3gnn.cli.console import print_json, steps, user_mistakes


def recovery(
    stored: Annotated[int, typer.Option(help="Edges of the synthetic graph.", metavar="N")] = 1_000_000,
    load: Annotated[
        int, typer.Option(help="Events in the batches that load the graph.", metavar="N")
    ] = 100_000,
    batch: opt.Batch = 20_000,
    parts: opt.Parts = 2,
    partitioner: opt.Partitioner = opt.PartitionerName.hdrf,
    layers: opt.Layers = 2,
    width: opt.Width = 64,
    shape: stream.Shape = opt.ShapeName.power_law,
    vertices: stream.Vertices = 0,
    deletes: stream.Deletes = 0.0,
    seed: opt.Seed = 0,
    check: stream.Check = True,
    as_json: opt.Json = False,
) -> None:
    """Measure how long a pipeline on Spark takes from the death of its worker process to fresh output.

    A synthetic graph is loaded. In the middle of the next batch, the worker process gets a SIGKILL, so that
    its state is lost. The query starts again, rebuilds the state from the graph log, and emits every vertex.
    The time is that from the kill to the commit of this batch.

    [bold]Example[/bold]

      d3gnn bench recovery --stored 1000000 --json
    """
    with user_mistakes():
        from d3gnn.bench.recovery import RecoverySettings, measure_recovery

        settings = RecoverySettings(load, batch, parts, partitioner.value, layers, width, seed)
        workload = stream.load_workload(
            None, stored, shape=shape, vertices=vertices, deletes=deletes, feature_updates=0.0, width=width,
            edges_mode=None, undirected=False, seed=seed,
        )  # fmt: skip
    with steps() as bars:
        result = measure_recovery(
            workload, settings, check=check, on_events=bars.step("load", workload.events - batch)
        )
    if as_json:
        print_json(result.to_dict())
        return
    error = result.max_relative_error
    show(
        f"A worker dies over {result.stored_edges:,} edges and {result.vertices:,} vertices: fresh output "
        f"after {result.seconds:.1f} s",
        ["", ""],
        [
            ("until the query runs again", f"{result.restart_seconds:.1f} s"),
            ("log and Partition", f"{result.partition_seconds:.1f} s"),
            ("operators", f"{result.operator_seconds:.1f} s"),
            ("output rows", f"{result.rows:,}"),
            ("entries of the log", f"{result.log_entries:,}"),
            ("largest relative error", "not checked" if error is None else f"{error:.1e}"),
        ],
    )
