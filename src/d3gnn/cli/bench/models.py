"""`d3gnn bench models`: run time of each kind of model, relative to GraphSAGE-mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from d3gnn.cli import options as opt
from d3gnn.cli.bench import stream
from d3gnn.cli.bench.show import show
from d3gnn.cli.console import error_console, print_json, status, user_mistakes

if TYPE_CHECKING:
    from d3gnn.bench.interleaved import ModelsResult


def models(
    edges: stream.EdgeFile = None,
    synthetic: stream.Synthetic = None,
    batch: opt.Batch = 2000,
    parts: opt.Parts = 1,
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
    """Compare the run time of models: GraphSAGE, GCN, GraphConv, GIN, GAT and GATv2, in LocalEngine.

    All models process the same stream with interleaved batches: each batch runs through every model before
    the next one. Reported for each model: edges per second, median batch time, run time relative to
    GraphSAGE-mean, and the largest relative error against recomputation from scratch at the end.

    [bold]Example[/bold]

      d3gnn bench models --edges as-733-events.csv.gz --edges-mode simple --undirected --json
    """
    with user_mistakes():
        from d3gnn.bench.interleaved import ModelsSettings, measure_models

        settings = ModelsSettings(batch, parts, partitioner.value, layers, width, seed=seed)
        workload = stream.load_workload(
            edges, synthetic, shape=shape, deletes=deletes, feature_updates=feature_updates, width=width,
            limit=limit, edges_mode=edges_mode, undirected=undirected, seed=seed,
        )  # fmt: skip
        console = error_console()
        result = measure_models(workload, settings, on_step=lambda name: status(console, f"{name} ..."))
    if as_json:
        print_json(result.to_dict())
    else:
        _show(result)


def _show(result: ModelsResult) -> None:
    show(
        f"{result.settings['workload']}: {result.edges:,} edges created and deleted, batches of "
        f"{result.batch:,}, interleaved",
        ["model", "edges/s", "median batch", "relative time", "error"],
        [
            (
                name,
                f"{found['edges_per_second']:,.0f}",
                f"{found['batch_ms_p50']:.1f} ms",
                f"{found['relative_time']:.2f}",
                f"{found['max_relative_error']:.0e}",
            )
            for name, found in result.models.items()
        ],
    )
