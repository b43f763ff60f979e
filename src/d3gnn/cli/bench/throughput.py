"""`d3gnn bench throughput`: edges per second of an engine, and the error at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from d3gnn.cli import options as opt
from d3gnn.cli.bench import stream
from d3gnn.cli.bench.show import show
from d3gnn.cli.console import print_json, steps, user_mistakes

if TYPE_CHECKING:
    from d3gnn.bench import ThroughputResult


def throughput(
    edges: stream.EdgeFile = None,
    synthetic: stream.Synthetic = None,
    batch: opt.Batch = 2000,
    parts: opt.Parts = 1,
    engine: stream.Engine = opt.EngineName.local,
    sink: Annotated[
        opt.SinkName, typer.Option(help="Sink on Spark: noop drops all rows, parquet writes a table.")
    ] = opt.SinkName.noop,
    partitioner: opt.Partitioner = opt.PartitionerName.hdrf,
    layers: opt.Layers = 2,
    width: opt.Width = 64,
    model: opt.Model = opt.ModelName.sage,
    aggregator: opt.Aggregator = None,
    limit: stream.Limit = None,
    edges_mode: stream.Mode = None,
    undirected: stream.Undirected = False,
    shape: stream.Shape = opt.ShapeName.power_law,
    vertices: stream.Vertices = 0,
    deletes: stream.Deletes = 0.0,
    feature_updates: stream.FeatureUpdates = 0.0,
    threads: opt.Threads = 1,
    seed: opt.Seed = 0,
    check: stream.Check = True,
    as_json: opt.Json = False,
) -> None:
    """Measure the throughput of an engine in edges per second, and the error of its embeddings at the end.

    Also reported: batch times (p50, p99), messages per edge, bytes moved between operators, memory. On local,
    the time is that of LocalEngine.apply; compiling kernels and reading events are not included. On spark, it
    is the time of whole batches, from trigger to commit, with one input file per batch, after a separate
    warm-up pipeline.

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
        workload = stream.load_workload(
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
            ("kernel share of the time", f"{result.kernel_share:.1%}"),
            ("messages per edge", f"{result.messages_per_edge:,.1f}"),
            ("bytes moved between operators", f"{result.bytes_moved / 1e6:,.1f} MB"),
            ("replicas per vertex", f"{result.replication_factor:.2f}"),
            ("largest relative error", "not checked" if error is None else f"{error:.1e}"),
            ("events", f"{result.events:,} in {result.batches:,} batches, {result.seconds:.2f} s"),
            ("vertices, edges stored", f"{result.vertices:,}, {result.stored_edges:,}"),
            ("memory per edge", f"{sum(result.bytes_per_edge.values()):,.0f} bytes"),
            ("memory per vertex", f"{sum(result.bytes_per_vertex.values()):,.0f} bytes"),
        ],
    )
