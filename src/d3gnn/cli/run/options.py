"""The options of `d3gnn run`, by the panels in which `--help` shows them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from d3gnn.cli.options import AggregatorName, EdgeKind

_INPUT, _COLUMNS = "Inputs", "Columns of --edges, or else of INPUT"
_GRAPH, _MODEL, _RUNNING = "Graph", "Model", "Running"


class FormatName(StrEnum):
    """Formats of files."""

    csv = "csv"
    json = "json"
    parquet = "parquet"
    text = "text"


class IdsName(StrEnum):
    """Types of vertex ids."""

    integer = "integer"
    string = "string"


class UnitName(StrEnum):
    """Units of integer times."""

    s = "s"
    ms = "ms"
    us = "us"
    ns = "ns"


class OnDeadLetter(StrEnum):
    """What a dead letter does to the run."""

    keep = "keep"
    stop = "stop"


def _option(panel: str, metavar: str | None, help: str) -> Any:
    """An option without a default to show: its help names one if there is one."""
    return typer.Option(help=help, metavar=metavar, show_default=False, rich_help_panel=panel)


def _flag(panel: str, name: str, help: str) -> Any:
    return typer.Option(name, help=help, rich_help_panel=panel)


def _shown(panel: str, metavar: str | None, help: str) -> Any:
    """An option whose default is shown."""
    return typer.Option(help=help, metavar=metavar, rich_help_panel=panel)


Input = Annotated[
    Path | None,
    typer.Argument(
        help="File or folder with events of any kind, or with edges.",
        metavar="INPUT",
        show_default=False,
    ),
]
Output = Annotated[Path, typer.Option(help="Folder of the output table.", metavar="DIR", show_default=False)]
Checkpoint = Annotated[
    Path,
    typer.Option(
        help="Folder for the graph log and all else that a restart needs.", metavar="DIR", show_default=False
    ),
]

Edges = Annotated[Path | None, _option(_INPUT, "PATH", "File or folder with an edge in each row.")]
Features = Annotated[
    Path | None, _option(_INPUT, "PATH", "File or folder with the features of a vertex in each row.")
]
Labels = Annotated[
    Path | None, _option(_INPUT, "PATH", "File or folder with the label of a vertex in each row.")
]
Format = Annotated[
    FormatName | None, _option(_INPUT, None, "Format of all inputs. Default: by the names of the files.")
]
Ids = Annotated[IdsName | None, _option(_INPUT, None, "Type of the vertex ids. Default: by the first rows.")]
TsUnit = Annotated[UnitName | None, _option(_INPUT, None, "Unit of integer times. Default: us.")]
Batch = Annotated[
    int | None,
    _option(
        _INPUT,
        "N",
        "Events per batch from a single file. Default: 100000 above 8 MB, else all.",
    ),
]
BatchFiles = Annotated[
    int | None, _option(_INPUT, "N", "Files per batch, for each folder. Default: files of 16 MB in total.")
]

Src = Annotated[str | None, _option(_COLUMNS, "COLUMN", "Source of an edge.")]
Dst = Annotated[str | None, _option(_COLUMNS, "COLUMN", "Destination of an edge.")]
Ts = Annotated[str | None, _option(_COLUMNS, "COLUMN", "Event time, also of other inputs with this column.")]
Op = Annotated[str | None, _option(_COLUMNS, "COLUMN", "Operation: create, update or delete; or + and -.")]
Key = Annotated[str | None, _option(_COLUMNS, "COLUMN", "Key that distinguishes parallel edges.")]
Value = Annotated[str | None, _option(_COLUMNS, "COLUMN", "Value of an edge feature, or of any event.")]
FeatureName = Annotated[str | None, _option(_COLUMNS, "COLUMN", "Name of the feature that a value is for.")]


def _of_vertices(metavar: str, help: str) -> Any:
    return _option("Columns of --features and --labels", metavar, help)


FeatureId = Annotated[str | None, _of_vertices("COLUMN", "Vertex id in --features. Default: id, node, ...")]
FeatureValue = Annotated[
    str | None,
    _of_vertices("COLUMN,...", "Feature: one column, or several with a number each. Default: all numbers."),
]
FeatureTs = Annotated[
    str | None, _of_vertices("COLUMN", "Event time in --features. Default: --ts, time, timestamp, ...")
]
LabelId = Annotated[str | None, _of_vertices("COLUMN", "Vertex id in --labels. Default: id, node, ...")]
LabelValue = Annotated[str | None, _of_vertices("COLUMN,...", "Label. Default: label, y, class, target.")]
LabelTs = Annotated[
    str | None, _of_vertices("COLUMN", "Event time in --labels. Default: --ts, time, timestamp, ...")
]

EdgesMode = Annotated[
    EdgeKind | None,
    _option(_GRAPH, None, "When two edges are the same. Default: keyed if there is a key, else simple."),
]
Undirected = Annotated[bool, _flag(_GRAPH, "--undirected", "Send messages in both directions of an edge.")]
VertexFeatures = Annotated[
    str | None,
    _option(_GRAPH, "NAME=N,...", "Vertex features and widths. Default: x, as wide as the model's input."),
]
EdgeFeatures = Annotated[str | None, _option(_GRAPH, "NAME=N,...", "Edge features and their widths.")]
Missing = Annotated[
    str | None,
    _option(
        _GRAPH,
        "RULE",
        "Input of vertices without a feature: zero, hash of the id, or numbers as in x=0.5. Default: zero if "
        "there are features.",
    ),
]
LabelWidth = Annotated[int | None, _option(_GRAPH, "N", "Numbers in a label. Default: as in --labels.")]
Ttl = Annotated[
    str | None,
    _option(_GRAPH, "DURATION", "Delete edges this long after their last event, as in 30d. Default: never."),
]
VertexTtl = Annotated[
    str | None,
    _option(_GRAPH, "DURATION", "Delete vertices this long after their last event. Default: never."),
]
Idle = Annotated[
    str | None,
    _option(
        _GRAPH,
        "DURATION",
        "With --ttl: how far event time may stay behind the clock, as in 5m; lets idle streams expire.",
    ),
]
Tombstones = Annotated[
    str | None,
    _option(
        _GRAPH,
        "DURATION",
        "How long the delete of a vertex makes its older events late, as in 30d. Default: for ever.",
    ),
]
MaxAbs = Annotated[
    float | None, _option(_GRAPH, "NUMBER", "Largest absolute value in features and labels. Default: none.")
]
MaxAhead = Annotated[
    str | None,
    _option(_GRAPH, "TIME", "How far a time may be ahead of the arrival, as in 12h; or none. Default: 1d."),
]

Model = Annotated[Path | None, _option(_MODEL, "FILE", "Model that model.save() wrote.")]
Widths = Annotated[
    str | None,
    _option(_MODEL, "N,N,...", "GraphSAGE with these widths of input and layers. Default: width of x,64,32."),
]
Aggregator = Annotated[AggregatorName | None, _option(_MODEL, None, "Its aggregator. Default: mean.")]
Seed = Annotated[int | None, _option(_MODEL, "N", "Seed of its weights. Default: 0.")]
Threshold = Annotated[
    float | None, _option(_MODEL, "SCORE", "Write only predictions with at least this score.")
]
Classes = Annotated[str | None, _option(_MODEL, "N,N,...", "Write only predictions of these classes.")]
ChangedClass = Annotated[
    bool, _flag(_MODEL, "--changed-class", "Write only predictions whose class has changed.")
]

Follow = Annotated[bool, _flag(_RUNNING, "--follow", "Wait for new files until Ctrl-C.")]
Every = Annotated[float, _shown(_RUNNING, "SECONDS", "With --follow: interval between looks for new files.")]
Tasks = Annotated[
    int | None,
    _option(_RUNNING, "N", "Spark tasks of an operator. Default: 1; on a cluster, one for each executor."),
]
Adopt = Annotated[
    Path | None,
    _option(
        _RUNNING,
        "DIR",
        "Checkpoint or store of another pipeline, whose graph this run takes over. That one is refused then.",
    ),
]
Arrays = Annotated[
    Path | None,
    _option(_RUNNING, "DIR", "Folder for arrays on this machine. Default: one in memory (/dev/shm)."),
]
DeadLetters = Annotated[
    OnDeadLetter, _shown(_RUNNING, None, "Keep dead letters in the checkpoint, or stop at the first one.")
]
