"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
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
    """Engines that can run a stream."""

    local = "local"
    spark = "spark"


class SinkName(StrEnum):
    """Sinks of Spark's output."""

    noop = "noop"
    parquet = "parquet"


class PartitionerName(StrEnum):
    """Partitioners by name."""

    hdrf = "hdrf"
    clda = "clda"
    fennel = "fennel"
    metis = "metis"
    random = "random"


class AggregatorName(StrEnum):
    """Aggregators by name."""

    mean = "mean"
    sum = "sum"
    max = "max"
    min = "min"


class ModelName(StrEnum):
    """Models by their layers."""

    sage = "sage"
    gcn = "gcn"
    graphconv = "graphconv"
    gin = "gin"
    gat = "gat"
    gatv2 = "gatv2"


class EdgesMode(StrEnum):
    """When two edges are the same."""

    simple = "simple"
    multi = "multi"
    append = "append"


class EdgeKind(StrEnum):
    """When two edges are the same, for events that may have keys."""

    simple = "simple"
    multi = "multi"
    keyed = "keyed"
    append = "append"


Seed = Annotated[int, typer.Option(help="Seed of all random numbers.", metavar="N")]
Batch = Annotated[int, typer.Option(help="Events per batch.", metavar="N")]
Parts = Annotated[int, typer.Option(help="Logical parts, over which edges are distributed.", metavar="N")]
Partitioner = Annotated[PartitionerName, typer.Option(help="How edges are assigned to parts.")]
Layers = Annotated[int, typer.Option(help="Layers of the model.", metavar="N")]
Width = Annotated[int, typer.Option(help="Width of each layer.", metavar="N")]
Aggregator = Annotated[
    AggregatorName | None,
    typer.Option(help="Aggregator of the messages. Default: the usual one of the model.", show_default=False),
]
Model = Annotated[ModelName, typer.Option(help="Layers of the model.")]
Threads = Annotated[int, typer.Option(help="Threads for matrix products.", metavar="N")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object on standard output.")]


def named_widths(option: str, text: str | None) -> dict[str, int]:
    """Names and widths from `x=8,risk=1`."""
    try:
        pairs = [item.split("=") for item in text.split(",")] if text else []
        return {name.strip(): int(width) for name, width in pairs}
    except ValueError:
        raise ValueError(f"{option} {text}: must be names and widths, as in x=8,risk=1") from None


def named_numbers(option: str, text: str | None) -> dict[str, float | tuple[float, ...]]:
    """Names and numbers from `x=0.5,risk=1:2`: one number, or several with colons between them."""
    found: dict[str, float | tuple[float, ...]] = {}
    try:
        for item in text.split(",") if text else []:
            name, numbers = item.split("=")
            each = tuple(float(number) for number in numbers.split(":"))
            found[name.strip()] = each[0] if len(each) == 1 else each
    except ValueError:
        raise ValueError(f"{option} {text}: must be names and numbers, as in x=0.5 or x=0.5:1.5") from None
    return found


#: A Spark cluster instead of this machine, and Spark settings for it.
Master = Annotated[
    str | None,
    typer.Option(
        help="Spark cluster to run on, such as spark://host:7077. Default: all cores of this machine.",
        metavar="URL", show_default=False, rich_help_panel="Running",
    ),
]  # fmt: skip
Conf = Annotated[
    list[str] | None,
    typer.Option(
        help="Spark setting, such as spark.driver.host=10.0.0.5; may be repeated.",
        metavar="NAME=VALUE", show_default=False, rich_help_panel="Running",
    ),
]  # fmt: skip


def settings_of(conf: Iterable[str] | None) -> dict[str, str]:
    """Spark settings, from options NAME=VALUE.

    >>> settings_of(["spark.executor.memory=2g"])
    {'spark.executor.memory': '2g'}
    """
    pairs = [each.partition("=") for each in conf or ()]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise ValueError(f"--conf {name}: write NAME=VALUE")
    return {name: value for name, _, value in pairs}
