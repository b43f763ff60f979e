"""`d3gnn run`: files of events, edges, features and labels in, a table of embeddings out, on Spark."""

from __future__ import annotations

import typer

from d3gnn.cli.console import error_console, print_json, status, user_mistakes
from d3gnn.cli.missing import parse_missing
from d3gnn.cli.options import (
    Conf,
    Json,
    Master,
    Partitioner,
    PartitionerName,
    Parts,
    named_widths,
    settings_of,
)
from d3gnn.cli.run import options as o
from d3gnn.cli.windows import ClockName, ClockOption, WindowOption, parse_windows

__all__ = ["run"]


def run(
    output: o.Output,
    checkpoint: o.Checkpoint,
    input: o.Input = None,
    edges: o.Edges = None,
    features: o.Features = None,
    labels: o.Labels = None,
    format: o.Format = None,
    ids: o.Ids = None,
    ts_unit: o.TsUnit = None,
    batch: o.Batch = None,
    batch_files: o.BatchFiles = None,
    src: o.Src = None,
    dst: o.Dst = None,
    ts: o.Ts = None,
    op: o.Op = None,
    key: o.Key = None,
    value: o.Value = None,
    feature_name: o.FeatureName = None,
    feature_id: o.FeatureId = None,
    feature_value: o.FeatureValue = None,
    feature_ts: o.FeatureTs = None,
    label_id: o.LabelId = None,
    label_value: o.LabelValue = None,
    label_ts: o.LabelTs = None,
    edges_mode: o.EdgesMode = None,
    undirected: o.Undirected = False,
    vertex_features: o.VertexFeatures = None,
    edge_features: o.EdgeFeatures = None,
    label_width: o.LabelWidth = None,
    ttl: o.Ttl = None,
    vertex_ttl: o.VertexTtl = None,
    idle: o.Idle = None,
    tombstones: o.Tombstones = None,
    max_abs: o.MaxAbs = None,
    max_ahead: o.MaxAhead = None,
    missing: o.Missing = None,
    model: o.Model = None,
    widths: o.Widths = None,
    aggregator: o.Aggregator = None,
    seed: o.Seed = None,
    threshold: o.Threshold = None,
    classes: o.Classes = None,
    changed_class: o.ChangedClass = False,
    parts: Parts = 2,
    partitioner: Partitioner = PartitionerName.hdrf,
    follow: o.Follow = False,
    every: o.Every = 1.0,
    window: WindowOption = None,
    clock: ClockOption = ClockName.batch,
    adopt: o.Adopt = None,
    arrays: o.Arrays = None,
    master: Master = None,
    conf: Conf = None,
    tasks: o.Tasks = None,
    on_dead_letter: o.DeadLetters = o.OnDeadLetter.keep,
    as_json: Json = False,
) -> None:
    """Keep a table of embeddings or predictions up to date with files of graph events.

    Reads INPUT (events of all kinds, or edges), --edges, --features and --labels, at least one of them: CSV,
    JSON, Parquet or text files, gzipped or not. Writes a Parquet table with a row for each embedding or
    prediction that changed. Run the same command again to process new files, or to continue after an
    interruption.

    [bold]Examples[/bold]

      d3gnn run edges.csv --output embeddings --checkpoint checkpoint

      d3gnn run payments/ --src payer --dst payee --ts paid_at --widths 16,64,32
      --output embeddings --checkpoint checkpoint --follow

      d3gnn run --edges edges.csv --features features.parquet --labels labels.csv
      --output embeddings --checkpoint checkpoint

      d3gnn run events.parquet --model classifier.safetensors --classes 1 --changed-class
      --output alerts --checkpoint checkpoint

      d3gnn run /data/edges/ --output /data/embeddings --checkpoint /data/checkpoint --parts 12
      --master spark://head:7077
    """
    console = error_console()
    with user_mistakes(), status(console, "loading ..."):
        from d3gnn.cli.run.follow import wait_for_files
        from d3gnn.cli.run.inputs import Columns, Inputs
        from d3gnn.cli.run.job import Job, summary
        from d3gnn.cli.run.missing import missing_features
        from d3gnn.cli.run.recall import Memory, recall_or_look, store_of_run
        from d3gnn.cli.run.settings import graph_schema, limits_of, make_alerts, make_model, with_stored
        from d3gnn.store.store import StoreError

        inputs = Inputs.of(
            input, edges, features, labels,
            Columns(src, dst, ts, op, key, value, feature_name),
            Columns(src=feature_id, value=feature_value, time=feature_ts),
            Columns(src=label_id, value=label_value, time=label_ts),
            format=format and format.value, ids=ids and ids.value, batch=batch,
            ts_unit=ts_unit and ts_unit.value,
        )  # fmt: skip
        inputs.check(follow, batch_files, every)
        is_first = Memory.load(checkpoint) is None
    if follow and is_first and not wait_for_files(inputs, console):
        return
    with user_mistakes(OSError, ValueError, StoreError):
        store = store_of_run(checkpoint, adopt)
        memory, again = recall_or_look(inputs, output, checkpoint, store if adopt else None)
        rule, widths_of_vertices = with_stored(
            parse_missing(missing), named_widths("--vertex-features", vertex_features), store
        )
        widths_of_edges = named_widths("--edge-features", edge_features)
        mode = edges_mode.value if edges_mode else None
        schema = graph_schema(
            memory.found,
            mode,
            undirected,
            widths_of_vertices,
            widths_of_edges,
            label_width,
            rule,
            limits=limits_of(max_abs, max_ahead),
            lifetimes={"ttl": ttl, "vertex_ttl": vertex_ttl, "idle": idle, "tombstones": tombstones},
        )
        gnn = make_model(model, widths, aggregator and aggregator.value, seed, schema, memory.found)
        job = Job.plan(
            inputs, memory, output, checkpoint, store, gnn, parts=parts, partitioner=partitioner.value,
            schema=schema, on_dead_letter=on_dead_letter.value, batch_files=batch_files,
            every=every if follow else None, window=parse_windows(window), clock=clock.value,
            alerts=make_alerts(threshold, classes, changed_class), arrays=arrays,
            adopt=adopt is not None, master=master, settings=settings_of(conf), tasks=tasks,
        )  # fmt: skip
    for line in memory.lines(again):
        console.print(line, soft_wrap=True, markup=False)
    console.print(f"{gnn}, {schema.edges} edges, {parts} part(s)", soft_wrap=True, markup=False)
    if windows := job.windows():
        console.print(windows, soft_wrap=True, markup=False)
    result = job.run(console)
    if warning := missing_features(result.totals, trained=model is not None, rule=job.gnn.schema.rule):
        console.print(warning, soft_wrap=True, markup=False)
    if as_json:
        print_json(result.to_dict())
    else:
        summary(result, console)
    if result.exit_code:
        raise typer.Exit(result.exit_code)
