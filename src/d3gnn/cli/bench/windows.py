"""`d3gnn bench windows`: what windows save, and what they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from d3gnn.cli.bench.show import show
from d3gnn.cli.bench.stream import (
    Deletes,
    EdgeFile,
    FeatureUpdates,
    Limit,
    Mode,
    Shape,
    Synthetic,
    Undirected,
    stream_of,
)
from d3gnn.cli.console import error_console, print_json, saying, user_mistakes
from d3gnn.cli.options import Batch, Json, Layers, Partitioner, PartitionerName, Parts, Seed, ShapeName, Width

if TYPE_CHECKING:
    from d3gnn.bench.windows import WindowsResult


def windows(
    edges: EdgeFile = None,
    synthetic: Synthetic = None,
    batch: Batch = 500,
    parts: Parts = 4,
    window: Annotated[
        int, typer.Option(help="Batches that anything waits for at most, in each operator.", metavar="N")
    ] = 20,
    every: Annotated[
        float, typer.Option(help="Time between two batches, on a clock set by hand.", metavar="SECONDS")
    ] = 0.1,
    partitioner: Partitioner = PartitionerName.hdrf,
    layers: Layers = 2,
    width: Width = 64,
    limit: Limit = None,
    edges_mode: Mode = None,
    undirected: Undirected = False,
    shape: Shape = ShapeName.power_law,
    deletes: Deletes = 0.0,
    feature_updates: FeatureUpdates = 0.0,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """The same stream under no window, and under one of each kind with the same longest delay.

    Batches come at a fixed pace on a clock that is set by hand, so that what waits, and for how long, is the
    same on every machine. The run goes on after the last event until nothing waits; then the embeddings are
    held against recomputation from scratch. Run time is the time that LocalEngine works: policies take turns
    in five rounds, and of each batch the fastest round counts.

    [bold]Example[/bold]

      d3gnn bench windows --edges sx-mathoverflow.txt.gz --batch 500 --parts 4 --json
    """
    with user_mistakes():
        from d3gnn.bench.windows import WindowsSettings, measure_windows

        settings = WindowsSettings(batch, parts, window, every, partitioner.value, layers, width, seed=seed)
        workload = stream_of(
            edges, synthetic, shape=shape, deletes=deletes, feature_updates=feature_updates, width=width,
            limit=limit, edges_mode=edges_mode, undirected=undirected, seed=seed,
        )  # fmt: skip
        console = error_console()
        result = measure_windows(workload, settings, around=lambda name: saying(console, f"{name} ..."))
    if as_json:
        print_json(result.to_dict())
    else:
        _show(result)


def _show(result: WindowsResult) -> None:
    from d3gnn.bench.windows import last_layer_bytes

    last = len(result.policies["none"]["layers"])
    show(
        f"{result.settings['workload']}: batches of {result.batch:,}, {result.parts} part(s); nothing waits "
        f"longer than {result.settings['window']} batches in an operator",
        ["window", "run time", f"bytes, layer {last}", "p50", "p99", "max", "imbalance", "error"],
        [
            (
                name,
                f"{found['seconds']:.2f} s (1/{result.less_time[name]:.1f})",
                f"{last_layer_bytes(found) / 1e6:,.0f} MB (1/{result.fewer_bytes[name]:.1f})",
                *(f"{found[field] / 1e3:.2f} s" for field in ("p50_ms", "p99_ms", "max_ms")),
                f"{found['imbalance']:.2f}",
                f"{found['max_relative_error']:.0e}",
            )
            for name, found in result.policies.items()
        ],
    )
