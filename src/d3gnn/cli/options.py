"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

SHARE = "0..1"


class ShapeName(StrEnum):
    """Shapes of synthetic streams."""

    power_law = "power-law"
    communities = "communities"
    hubs = "hubs"
    capped = "capped"
    rmat = "rmat"


class EngineName(StrEnum):
    """What can run a stream."""

    local = "local"
    spark = "spark"


class SinkName(StrEnum):
    """Where Spark writes embeddings."""

    noop = "noop"
    parquet = "parquet"


class PartitionerName(StrEnum):
    """Partitioners by name."""

    hdrf = "hdrf"
    random = "random"


class AggregatorName(StrEnum):
    """Aggregators by name."""

    mean = "mean"
    sum = "sum"
    max = "max"
    min = "min"


class ModelName(StrEnum):
    """Models by the layers that they are made of."""

    sage = "sage"
    gcn = "gcn"
    graphconv = "graphconv"
    gin = "gin"
    gat = "gat"
    gatv2 = "gatv2"


class EdgesMode(StrEnum):
    """What makes two edges the same."""

    simple = "simple"
    multi = "multi"
    append = "append"


class EdgeKind(StrEnum):
    """What makes two edges the same, where events may have keys."""

    simple = "simple"
    multi = "multi"
    keyed = "keyed"
    append = "append"


Seed = Annotated[int, typer.Option(help="Another seed, another stream.", metavar="N")]
Batch = Annotated[int, typer.Option(help="Events in a batch.", metavar="N")]
Parts = Annotated[int, typer.Option(help="Logical parts that edges are spread over.", metavar="P")]
Partitioner = Annotated[PartitionerName, typer.Option(help="How edges are spread over parts.")]
Layers = Annotated[int, typer.Option(help="Layers of the model.", metavar="N")]
Width = Annotated[int, typer.Option(help="Width of each layer.", metavar="N")]
Aggregator = Annotated[
    AggregatorName | None,
    typer.Option(help="How messages are joined; else as is usual for the model.", show_default=False),
]
Model = Annotated[ModelName, typer.Option(help="What the model's layers are.")]
Threads = Annotated[int, typer.Option(help="Threads for dense math.", metavar="N")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
