"""`d3gnn bench throughput`: edges per second, and the error at the end."""

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
    Vertices,
    stream_of,
)
from d3gnn.cli.console import print_json, steps, user_mistakes
from d3gnn.cli.options import (
    Aggregator,
    Batch,
    EngineName,
    Json,
    Layers,
    Model,
    ModelName,
    Partitioner,
    PartitionerName,
    Parts,
    Seed,
    ShapeName,
    SinkName,
    Threads,
    Width,
)

if TYPE_CHECKING:
    from d3gnn.bench import ThroughputResult


def throughput(
    edges: EdgeFile = None,
    synthetic: Synthetic = None,
    batch: Batch = 2000,
    parts: Parts = 1,
    engine: Annotated[EngineName, typer.Option(help="What runs the stream.")] = EngineName.local,
    sink: Annotated[
        SinkName, typer.Option(help="With Spark: count and drop the embeddings, or write a table.")
    ] = SinkName.noop,
    partitioner: Partitioner = PartitionerName.hdrf,
    layers: Layers = 2,
    width: Width = 64,
    model: Model = ModelName.sage,
    aggregator: Aggregator = None,
    limit: Limit = None,
    edges_mode: Mode = None,
    undirected: Undirected = False,
    shape: Shape = ShapeName.power_law,
    vertices: Vertices = 0,
    deletes: Deletes = 0.0,
    feature_updates: FeatureUpdates = 0.0,
    threads: Threads = 1,
    seed: Seed = 0,
    check: Annotated[bool, typer.Option(help="Compare the end with recomputation from scratch.")] = True,
    as_json: Json = False,
) -> None:
    """Run a stream through an engine as fast as it goes.

    Time is that of the engine alone: code is compiled before, events are read and made beside it. On Spark it
    is that of whole batches, from trigger to commit, log and all, over a file for each batch; a pipeline of
    its own runs first, until Java is warm.

    [bold]Examples[/bold]

      d3gnn bench throughput --edges edges.csv.gz --batch 2000 --json

      d3gnn bench throughput --synthetic 1000000 --parts 4 --batch 20000

      d3gnn bench throughput --edges as-733-events.csv.gz --edges-mode simple --undirected --model gat

      d3gnn bench throughput --edges edges.csv.gz --engine spark --parts 2 --batch 20000
    """
    with user_mistakes():
        from d3gnn.bench import ThroughputSettings, measure_throughput

        settings = ThroughputSettings(
            batch,
            parts,
            engine.value,
            partitioner.value,
            layers,
            width,
            aggregator and aggregator.value,
            threads,
            seed,
            sink.value,
            model.value,
        )
        workload = stream_of(
            edges,
            synthetic,
            shape=shape,
            vertices=vertices,
            deletes=deletes,
            feature_updates=feature_updates,
            width=width,
            limit=limit,
            edges_mode=edges_mode,
            undirected=undirected,
            seed=seed,
        )
    with steps() as bars:
        result = measure_throughput(
            workload,
            settings,
            check=check,
            on_events=bars.step("run", workload.events),
            on_check=bars.step("check", workload.events),
        )
    if as_json:
        print_json(result.to_dict())
    else:
        _show(result)


def _show(result: ThroughputResult) -> None:
    error = result.max_relative_error
    show(
        f"Throughput on {result.settings['workload']}, batches of {result.batch:,}, {result.parts} part(s)",
        ["", ""],
        [
            ("edges per second", f"{result.edges_per_second:,.0f}"),
            ("batch, median", f"{result.batch_ms_p50:.2f} ms"),
            ("batch, 99th percentile", f"{result.batch_ms_p99:.2f} ms"),
            ("share of time in operators", f"{result.kernel_share:.1%}"),
            ("messages per edge", f"{result.messages_per_edge:,.1f}"),
            ("moved between operators", f"{result.bytes_moved / 1e6:,.1f} MB"),
            ("replicas per vertex", f"{result.replication_factor:.2f}"),
            ("largest relative error", "not checked" if error is None else f"{error:.1e}"),
            ("events", f"{result.events:,} in {result.batches:,} batches, {result.seconds:.2f} s"),
            ("vertices, edges stored", f"{result.vertices:,}, {result.stored_edges:,}"),
            ("memory per edge", f"{sum(result.bytes_per_edge.values()):,.0f} bytes"),
            ("memory per vertex", f"{sum(result.bytes_per_vertex.values()):,.0f} bytes"),
        ],
    )
