"""`d3gnn run`: files of events or edges in, a table of fresh embeddings out, on Spark."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from d3gnn.cli.console import error_console, print_json, saying, user_mistakes
from d3gnn.cli.options import AggregatorName, EdgeKind, Json, Partitioner, PartitionerName, Parts
from d3gnn.cli.windows import ClockName, WindowOption, parse_windows

__all__ = ["run"]

_INPUT, _GRAPH, _MODEL, _RUNNING = "Input", "Graph", "Model", "Running"
#: The exit code of what was interrupted, as shells have it.
_STOPPED = 130


class FormatName(StrEnum):
    """What files hold."""

    csv = "csv"
    json = "json"
    parquet = "parquet"
    text = "text"


class IdsName(StrEnum):
    """What vertices are named by."""

    integer = "integer"
    string = "string"


class UnitName(StrEnum):
    """What times count."""

    s = "s"
    ms = "ms"
    us = "us"
    ns = "ns"


class OnDeadLetter(StrEnum):
    """What becomes of bad events."""

    keep = "keep"
    stop = "stop"


def _column(what: str) -> Any:
    return typer.Option(help=what, metavar="COLUMN", show_default=False, rich_help_panel=_INPUT)


def run(
    input: Annotated[
        Path,
        typer.Argument(help="A file, or a folder whose files are read.", metavar="INPUT", show_default=False),
    ],
    output: Annotated[Path, typer.Option(help="Folder for the table of embeddings.", metavar="DIR")],
    checkpoint: Annotated[
        Path, typer.Option(help="Folder of all that a restart needs, the graph log among it.", metavar="DIR")
    ],
    format: Annotated[
        FormatName | None,
        typer.Option(help="Else as the names of the files say.", show_default=False, rich_help_panel=_INPUT),
    ] = None,
    src: Annotated[str | None, _column("Column with the source of an edge.")] = None,
    dst: Annotated[str | None, _column("Column with its destination.")] = None,
    ts: Annotated[str | None, _column("Column with the time of an event.")] = None,
    ts_unit: Annotated[
        UnitName | None,
        typer.Option(
            help="What times that are whole numbers count: us.", show_default=False, rich_help_panel=_INPUT
        ),
    ] = None,
    op: Annotated[str | None, _column("Column with create, update or delete; or + and -.")] = None,
    key: Annotated[str | None, _column("Column that tells parallel edges apart.")] = None,
    value: Annotated[str | None, _column("Column with a feature's numbers.")] = None,
    feature: Annotated[str | None, _column("Column with a feature's name.")] = None,
    ids: Annotated[
        IdsName | None,
        typer.Option(help="What vertices are named by.", show_default=False, rich_help_panel=_INPUT),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            help="Cut a single file into batches of so many events (100000 if it is larger than 8 MB).",
            metavar="N",
            show_default=False,
            rich_help_panel=_INPUT,
        ),
    ] = None,
    batch_files: Annotated[
        int | None,
        typer.Option(
            help="Files of a folder in a batch, at most. Else as many as have 16 MB.",
            metavar="N",
            show_default=False,
            rich_help_panel=_INPUT,
        ),
    ] = None,
    edges_mode: Annotated[
        EdgeKind | None,
        typer.Option(
            help="What makes two edges the same: simple, or keyed if there is a key.",
            show_default=False,
            rich_help_panel=_GRAPH,
        ),
    ] = None,
    undirected: Annotated[
        bool, typer.Option("--undirected", help="Messages go both ways.", rich_help_panel=_GRAPH)
    ] = False,
    features: Annotated[
        str | None,
        typer.Option(
            help="Features of vertices and their widths; else one, x, as wide as the model's input.",
            metavar="NAME=N,...",
            show_default=False,
            rich_help_panel=_GRAPH,
        ),
    ] = None,
    edge_features: Annotated[
        str | None,
        typer.Option(
            help="Features of edges.", metavar="NAME=N,...", show_default=False, rich_help_panel=_GRAPH
        ),
    ] = None,
    label_width: Annotated[
        int | None,
        typer.Option(help="Numbers in a label.", metavar="N", show_default=False, rich_help_panel=_GRAPH),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="A model that model.save() wrote.",
            metavar="FILE",
            show_default=False,
            rich_help_panel=_MODEL,
        ),
    ] = None,
    widths: Annotated[
        str | None,
        typer.Option(
            help="Or a GraphSAGE: widths of its input and layers. The features' width,64,32 if not given.",
            metavar="N,N,...",
            show_default=False,
            rich_help_panel=_MODEL,
        ),
    ] = None,
    aggregator: Annotated[
        AggregatorName | None,
        typer.Option(help="How messages are joined: mean.", show_default=False, rich_help_panel=_MODEL),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Of the GraphSAGE's weights: 0.", metavar="N", show_default=False, rich_help_panel=_MODEL
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Of what the model's head says, only what has at least this score comes out.",
            metavar="SCORE",
            show_default=False,
            rich_help_panel=_MODEL,
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="Only these classes come out.", metavar="N,N,...", show_default=False, rich_help_panel=_MODEL
        ),
    ] = None,
    changed_class: Annotated[
        bool,
        typer.Option(
            "--changed-class", help="Only another class than the last comes out.", rich_help_panel=_MODEL
        ),
    ] = False,
    parts: Parts = 2,
    partitioner: Partitioner = PartitionerName.hdrf,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="Go on and wait for new files, until Ctrl-C.", rich_help_panel=_RUNNING
        ),
    ] = False,
    every: Annotated[
        float,
        typer.Option(
            help="With --follow: look for new files so often.", metavar="SECONDS", rich_help_panel=_RUNNING
        ),
    ] = 1.0,
    window: WindowOption = None,
    clock: Annotated[
        ClockName,
        typer.Option(
            help="What windows tell the time by: when a batch is taken in, or event time (see --ts-unit).",
            rich_help_panel=_RUNNING,
        ),
    ] = ClockName.batch,
    on_dead_letter: Annotated[
        OnDeadLetter,
        typer.Option(help="Keep bad events beside the log, or stop at the first.", rich_help_panel=_RUNNING),
    ] = OnDeadLetter.keep,
    as_json: Json = False,
) -> None:
    """Keep a table of embeddings fresh, or of what a model's head says, on Spark in this process.

    Takes events from CSV, JSON or Parquet files, or any edge list, gzipped or not, and writes the embeddings
    that they change to a Parquet table. The same command goes on where it ended, or was killed.

    [bold]Examples[/bold]

      d3gnn run edges.csv --output embeddings --checkpoint checkpoint

      d3gnn run payments/ --src payer --dst payee --ts paid_at --widths 16,64,32
      --output embeddings --checkpoint checkpoint --follow

      d3gnn run events.parquet --model model.safetensors --batch 20000
      --output embeddings --checkpoint checkpoint

      d3gnn run events.parquet --model classifier.safetensors --classes 1 --changed-class
      --output alerts --checkpoint checkpoint
    """
    console = error_console()
    with user_mistakes(), saying(console, "loading ..."):
        from d3gnn.cli.run.job import Job, summary
        from d3gnn.cli.run.settings import (
            Source,
            declared,
            graph_schema,
            make_alerts,
            make_model,
            recall_or_look,
        )

        named = {"src": src, "dst": dst, "time": ts, "op": op, "key": key, "value": value, "feature": feature}
        names = {role: name for role, name in named.items() if name is not None}
        unit = ts_unit and ts_unit.value
        source = Source(input, format and format.value, names, ids and ids.value, batch, unit)
        source.check(follow, batch_files, every)
        memory, again = recall_or_look(source, output, checkpoint)
        widths_of = declared("--features", features), declared("--edge-features", edge_features)
        mode = edges_mode.value if edges_mode else None
        schema = graph_schema(memory.found, mode, undirected, *widths_of, label_width)
        gnn = make_model(model, widths, aggregator and aggregator.value, seed, schema, memory.found)
        job = Job.plan(
            source, memory, output, checkpoint, gnn, parts=parts, partitioner=partitioner.value,
            schema=schema, on_dead_letter=on_dead_letter.value, batch_files=batch_files,
            every=every if follow else None, window=parse_windows(window), clock=clock.value,
            alerts=make_alerts(threshold, classes, changed_class),
        )  # fmt: skip
    console.print(f"{'reading on' if again else 'found'}: {memory.found.files}", soft_wrap=True, markup=False)
    console.print(f"{gnn} over {schema.edges} edges on {parts} part(s)", soft_wrap=True, markup=False)
    if said := job.windows():
        console.print(said, soft_wrap=True, markup=False)
    result = job.run(console)
    if as_json:
        print_json(result.to_dict())
    else:
        summary(result, console)
    if not (result.finished or follow):
        raise typer.Exit(_STOPPED)
