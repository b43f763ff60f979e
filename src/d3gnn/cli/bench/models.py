"""`d3gnn bench models`: what each kind of layer costs, beside the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from d3gnn.bench.in_turns import ModelsResult


def models(
    edges: EdgeFile = None,
    synthetic: Synthetic = None,
    batch: Batch = 2000,
    parts: Parts = 1,
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
    """The same stream through one model of each kind, batch by batch in turns, in LocalEngine.

    Each is held against recomputation from scratch at the end. Its time is given as such, and as times that
    of GraphSAGE with the mean.

    [bold]Example[/bold]

      d3gnn bench models --edges as-733-events.csv.gz --edges-mode simple --undirected --json
    """
    with user_mistakes():
        from d3gnn.bench.in_turns import ModelsSettings, measure_models

        settings = ModelsSettings(batch, parts, partitioner.value, layers, width, seed=seed)
        workload = stream_of(
            edges, synthetic, shape=shape, deletes=deletes, feature_updates=feature_updates, width=width,
            limit=limit, edges_mode=edges_mode, undirected=undirected, seed=seed,
        )  # fmt: skip
        console = error_console()
        result = measure_models(workload, settings, around=lambda name: saying(console, f"{name} ..."))
    if as_json:
        print_json(result.to_dict())
    else:
        _show(result)


def _show(result: ModelsResult) -> None:
    show(
        f"{result.settings['workload']}: {result.edges:,} edges created and deleted, batches of "
        f"{result.batch:,}, all models in turns",
        ["model", "edges/s", "median batch", "times sage", "error"],
        [
            (
                name,
                f"{found['edges_per_second']:,.0f}",
                f"{found['batch_ms_p50']:.1f} ms",
                f"{found['times']:.2f}",
                f"{found['max_relative_error']:.0e}",
            )
            for name, found in result.models.items()
        ],
    )
