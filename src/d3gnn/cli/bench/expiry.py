"""`d3gnn bench expiry`: the cost of an edge that expires."""

from __future__ import annotations

from typing import Annotated

import typer

from d3gnn.cli import options as opt
from d3gnn.cli.bench.show import show
from d3gnn.cli.console import print_json, steps, user_mistakes


def expiry(
    batch: opt.Batch = 2000,
    timed: Annotated[int, typer.Option(help="Number of timed batches.", metavar="N")] = 40,
    parts: opt.Parts = 1,
    partitioner: opt.Partitioner = opt.PartitionerName.hdrf,
    layers: opt.Layers = 2,
    width: opt.Width = 64,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Compare the cost of an edge that expires with that of an edge that an event deletes.

    Two engines hold the same random graph. In each timed batch, the same edges leave both: in one, a single
    event lets them expire; in the other, each has a delete event. The batches are interleaved. The ratio is
    the median over batches, and should be at most 1.

    [bold]Example[/bold]

      d3gnn bench expiry --batch 2000 --json
    """
    with user_mistakes():
        from d3gnn.bench.expiry import ExpirySettings, measure_expiry

        settings = ExpirySettings(batch, timed, parts, partitioner.value, layers, width, seed)
    with steps() as bars:
        result = measure_expiry(settings, on_edges=bars.step("expire", 3 * timed * batch, "edges"))
    if as_json:
        print_json(result.to_dict())
        return
    show(
        f"Batches of {batch:,} edges that leave a graph of {result.stored_edges:,}: an expired edge costs "
        f"{result.ratio:.2f} of a deleted one",
        ["", "all operators", "Partition"],
        [
            _row("expires", result.us_per_expired_edge, result.partition_us_per_expired_edge),
            _row("is deleted", result.us_per_deleted_edge, result.partition_us_per_deleted_edge),
        ],
    )


def _row(what: str, *microseconds: float) -> tuple[str, ...]:
    return what, *(f"{each:.2f} us per edge" for each in microseconds)
