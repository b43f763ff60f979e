"""`d3gnn bench windows`: traffic, run time and latency of window policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from d3gnn.cli import options as opt
from d3gnn.cli.bench import stream
from d3gnn.cli.bench.show import show
from d3gnn.cli.console import error_console, print_json, status, user_mistakes

if TYPE_CHECKING:
    from d3gnn.bench.windows import WindowsResult


def windows(
    edges: stream.EdgeFile = None,
    synthetic: stream.Synthetic = None,
    batch: opt.Batch = 500,
    parts: opt.Parts = 4,
    window: Annotated[
        int, typer.Option(help="Longest delay in each operator, in batches.", metavar="N")
    ] = 20,
    every: Annotated[
        float, typer.Option(help="Seconds between batches on the simulated clock.", metavar="SECONDS")
    ] = 0.1,
    partitioner: opt.Partitioner = opt.PartitionerName.hdrf,
    layers: opt.Layers = 2,
    width: opt.Width = 64,
    limit: stream.Limit = None,
    edges_mode: stream.Mode = None,
    undirected: stream.Undirected = False,
    shape: stream.Shape = opt.ShapeName.power_law,
    deletes: stream.Deletes = 0.0,
    feature_updates: stream.FeatureUpdates = 0.0,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Compare windows: traffic, run time and latency of each kind, against no window, in LocalEngine.

    All windows have the same longest delay. Batches arrive at a fixed interval of a simulated clock, so
    delays and traffic are the same on every machine. After the last event the run continues until nothing is
    pending; then the embeddings are compared with recomputation from scratch. Run time is the time in
    LocalEngine.apply: the policies are interleaved in five rounds, and the fastest round of each batch
    counts.

    [bold]Example[/bold]

      d3gnn bench windows --edges sx-mathoverflow.txt.gz --batch 500 --parts 4 --json
    """
    with user_mistakes():
        from d3gnn.bench.windows import WindowsSettings, measure_windows

        settings = WindowsSettings(batch, parts, window, every, partitioner.value, layers, width, seed=seed)
        workload = stream.load_workload(
            edges, synthetic, shape=shape, deletes=deletes, feature_updates=feature_updates, width=width,
            limit=limit, edges_mode=edges_mode, undirected=undirected, seed=seed,
        )  # fmt: skip
        console = error_console()
        result = measure_windows(workload, settings, on_step=lambda name: status(console, f"{name} ..."))
    if as_json:
        print_json(result.to_dict())
    else:
        _show(result)


def _show(result: WindowsResult) -> None:
    from d3gnn.bench.windows import last_layer_bytes

    last = len(result.policies["none"]["layers"])
    show(
        f"{result.settings['workload']}: batches of {result.batch:,}, {result.parts} part(s); longest "
        f"delay {result.settings['window']} batches per operator",
        ["window", "run time", f"bytes, layer {last}", "p50", "p99", "max", "imbalance", "error"],
        [
            (
                name,
                f"{found['seconds']:.2f} s (1/{result.speedup[name]:.1f})",
                f"{last_layer_bytes(found) / 1e6:,.0f} MB (1/{result.traffic_reduction[name]:.1f})",
                *(f"{found[field] / 1e3:.2f} s" for field in ("p50_ms", "p99_ms", "max_ms")),
                f"{found['imbalance']:.2f}",
                f"{found['max_relative_error']:.0e}",
            )
            for name, found in result.policies.items()
        ],
    )
