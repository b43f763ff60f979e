"""`d3gnn bench peers`: d3gnn compared with DGL, PyG and delta propagation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from d3gnn.cli import options as opt
from d3gnn.cli.bench import stream
from d3gnn.cli.bench.show import show
from d3gnn.cli.console import error_console, print_json, status, user_mistakes

if TYPE_CHECKING:
    from d3gnn.bench import PeersResult


def peers(
    edges: stream.EdgeFile = None,
    synthetic: stream.Synthetic = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(help="Events in a batch; repeat for several sizes.  [default: 2000]", metavar="N"),
    ] = None,
    timed: Annotated[
        int, typer.Option(help="Number of timed batches; 0 chooses it by the batch size.", metavar="N")
    ] = 0,
    systems: Annotated[
        str, typer.Option(help="Systems to measure, separated by commas.  [default: all]", metavar="NAMES")
    ] = "",
    parts: opt.Parts = 2,
    partitioner: opt.Partitioner = opt.PartitionerName.hdrf,
    layers: opt.Layers = 2,
    width: opt.Width = 64,
    threads: Annotated[int, typer.Option(help="Threads of every system but local.", metavar="N")] = 2,
    limit: stream.Limit = None,
    edges_mode: stream.Mode = None,
    undirected: stream.Undirected = False,
    shape: stream.Shape = opt.ShapeName.power_law,
    vertices: stream.Vertices = 0,
    max_degree: stream.MaxDegree = 16,
    deletes: stream.Deletes = 0.0,
    feature_updates: stream.FeatureUpdates = 0.0,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Compare d3gnn with DGL, PyG and delta propagation: seconds per batch until all embeddings are exact.

    All but the last batches of the stream are loaded first. Then every system processes the same batches with
    the same weights, one system after another. At the end, the embeddings of each system are compared with
    recomputation from scratch.

    Systems: dgl_full and pyg_full recompute all embeddings after every batch; dgl_influenced and
    pyg_influenced only those that the batch can have changed; tuned_full and tuned_influenced do the same
    with DGL's kernels and hand-optimised preprocessing; ripple propagates differences along edges (a
    re-implementation in the style of RIPPLE); local (one thread) and spark are d3gnn.

    [bold]Examples[/bold]

      d3gnn bench peers --edges edges.csv.gz --batch 2000 --json

      d3gnn bench peers --synthetic 20000000 --shape rmat --batch 2000 --batch 20000 --systems dgl_full,spark
    """
    with user_mistakes():
        from d3gnn.bench.comparison import SYSTEMS, PeersSettings, measure_peers

        sizes = batch or [2000]
        chosen = tuple(name.strip() for name in systems.split(",") if name.strip()) or SYSTEMS
        for size in sizes:
            settings = PeersSettings(
                size, timed, chosen, threads, parts, partitioner.value, layers, width, seed
            )
        workload = stream.load_workload(
            edges,
            synthetic,
            shape=shape,
            vertices=vertices,
            max_degree=max_degree,
            deletes=deletes,
            feature_updates=feature_updates,
            width=width,
            limit=limit,
            edges_mode=edges_mode,
            undirected=undirected,
            seed=seed,
        )
        console = error_console()
        results = measure_peers(
            workload, settings, batches=sizes, on_step=lambda name: status(console, f"{name} ...")
        )
    for result in results:
        if as_json:
            print_json(result.to_dict())
        else:
            _show(result)


def _show(result: PeersResult) -> None:
    over = {name: result.speedup.get(f"{name}_over", {}) for name in ("local", "spark")}
    show(
        f"{result.settings['workload']}: {result.stored_edges:,} edges stored, batches of {result.batch:,}",
        ["system", "mean batch", "edges per second", "error", "speed-up of local", "speed-up of spark"],
        [
            (
                name,
                f"{found['seconds_per_batch'] * 1e3:,.2f} ms",
                f"{found['edges_per_second']:,.0f}",
                f"{found['max_relative_error']:.1e}",
                _ratio(over["local"].get(name)),
                _ratio(over["spark"].get(name)),
            )
            for name, found in result.systems.items()
        ],
    )


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:,.3g}"
