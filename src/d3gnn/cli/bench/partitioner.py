"""`d3gnn bench partitioner`: how fast edges are given their parts, and how well."""

from __future__ import annotations

from typing import Annotated

import typer

from d3gnn.cli.bench.show import show
from d3gnn.cli.console import print_json, steps, user_mistakes
from d3gnn.cli.options import EdgesMode, Json, Partitioner, PartitionerName, Parts, Seed


def partitioner(
    edges_count: Annotated[int, typer.Option(help="Edges to partition.", metavar="N")] = 2_000_000,
    parts: Parts = 8,
    partitioner: Partitioner = PartitionerName.hdrf,
    edges_mode: Annotated[
        EdgesMode, typer.Option(help="All but append also keep the table of edges.")
    ] = EdgesMode.append,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Partition a synthetic power-law stream: the whole Partition operator, and the bare choice of a part.

    [bold]Example[/bold]

      d3gnn bench partitioner --edges-count 2000000 --parts 8 --json
    """
    with user_mistakes():
        if edges_count < 1 or parts < 1:
            raise ValueError(f"{edges_count} edges over {parts} parts: at least 1 of each, please")
    from d3gnn.bench import measure_partitioner

    with steps() as bars:
        result = measure_partitioner(
            edges_count,
            parts,
            partitioner.value,
            mode=edges_mode.value,
            seed=seed,
            on_edges=bars.step("partition", edges_count, "edges"),
        )
    if as_json:
        print_json(result.to_dict())
        return
    show(
        f"{partitioner.value} over {parts} parts, {edges_count:,} edges",
        ["", ""],
        [
            ("edges per second, Partition", f"{result.edges_per_second:,.0f}"),
            ("edges per second, bare choice", f"{result.choice_edges_per_second:,.0f}"),
            ("replicas per vertex", f"{result.replication_factor:.3f}"),
            ("fullest part over the mean", f"{result.balance:.3f}"),
            ("vertices", f"{result.vertices:,}"),
        ],
    )
