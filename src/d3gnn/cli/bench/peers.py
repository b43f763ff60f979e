"""`d3gnn bench peers`: d3gnn beside what one would take instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from d3gnn.cli.bench.show import show
from d3gnn.cli.bench.stream import (
    Deletes,
    EdgeFile,
    FeatureUpdates,
    Limit,
    MaxDegree,
    Mode,
    Shape,
    Synthetic,
    Undirected,
    Vertices,
    stream_of,
)
from d3gnn.cli.console import error_console, print_json, saying, user_mistakes
from d3gnn.cli.options import Json, Layers, Partitioner, PartitionerName, Parts, Seed, ShapeName, Width

if TYPE_CHECKING:
    from d3gnn.bench import PeersResult


def peers(
    edges: EdgeFile = None,
    synthetic: Synthetic = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(help="Events in a batch; may be given several times.  [default: 2000]", metavar="N"),
    ] = None,
    timed: Annotated[int, typer.Option(help="Batches to time; 0 chooses by their size.", metavar="N")] = 0,
    systems: Annotated[
        str, typer.Option(help="Some of the systems, with commas between.  [default: all]", metavar="NAMES")
    ] = "",
    parts: Parts = 2,
    partitioner: Partitioner = PartitionerName.hdrf,
    layers: Layers = 2,
    width: Width = 64,
    threads: Annotated[int, typer.Option(help="Threads of every system.", metavar="N")] = 2,
    limit: Limit = None,
    edges_mode: Mode = None,
    undirected: Undirected = False,
    shape: Shape = ShapeName.power_law,
    vertices: Vertices = 0,
    max_degree: MaxDegree = 16,
    deletes: Deletes = 0.0,
    feature_updates: FeatureUpdates = 0.0,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """The same batches through d3gnn, and through what one would take instead.

    All but the last batches of the stream are loaded first. Then every system takes in the same batches, with
    the same weights and threads, one system after the other; at the end the embeddings of each are held
    against recomputation from scratch.

    dgl_full, pyg_full compute everything anew after every batch; dgl_influenced, pyg_influenced only what the
    batch has reached; ripple sends differences along edges (a re-implementation in the style of RIPPLE);
    local and spark are d3gnn in one process, and on Spark.

    [bold]Examples[/bold]

      d3gnn bench peers --edges edges.csv.gz --batch 2000 --json

      d3gnn bench peers --synthetic 20000000 --shape rmat --batch 2000 --batch 20000 --systems dgl_full,spark
    """
    with user_mistakes():
        from d3gnn.bench.side_by_side import SYSTEMS, PeersSettings, measure_peers

        sizes = batch or [2000]
        named = tuple(name.strip() for name in systems.split(",") if name.strip()) or SYSTEMS
        for size in sizes:
            settings = PeersSettings(
                size, timed, named, threads, parts, partitioner.value, layers, width, seed
            )
        workload = stream_of(
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
            workload, settings, batches=sizes, around=lambda name: saying(console, f"{name} ...")
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
        ["system", "a batch", "edges per second", "error", "local is so many times as fast", "spark"],
        [
            (
                name,
                f"{found['seconds_per_batch'] * 1e3:,.2f} ms",
                f"{found['edges_per_second']:,.0f}",
                f"{found['max_relative_error']:.1e}",
                _times(over["local"].get(name)),
                _times(over["spark"].get(name)),
            )
            for name, found in result.systems.items()
        ],
    )


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:,.3g}"
