"""`d3gnn bench partitioner`: speed and quality of the streaming vertex-cut."""

from __future__ import annotations

from typing import Annotated

import typer

from d3gnn.cli import options as opt
from d3gnn.cli.bench.show import show
from d3gnn.cli.console import print_json, steps, user_mistakes


def partitioner(
    edges_count: Annotated[
        int, typer.Option(help="Number of edges of the synthetic stream.", metavar="N")
    ] = 2_000_000,
    parts: opt.Parts = 8,
    partitioner: opt.Partitioner = opt.PartitionerName.hdrf,
    edges_mode: Annotated[
        opt.EdgesMode, typer.Option(help="Edge mode; all but append also maintain the edge table.")
    ] = opt.EdgesMode.append,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Measure the partitioner on a synthetic power-law stream, in edges per second.

    Times the whole Partition operator, and the choice of a part for each edge alone. Also reports the quality
    of the vertex-cut: replicas per vertex (replication factor), and edges in the fullest part divided by the
    mean (balance).

    [bold]Example[/bold]

      d3gnn bench partitioner --edges-count 2000000 --parts 8 --json
    """
    with user_mistakes():
        if edges_count < 1 or parts < 1:
            raise ValueError(f"--edges-count {edges_count} --parts {parts}: both must be at least 1")
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
            ("edges per second, choice of part only", f"{result.choice_edges_per_second:,.0f}"),
            ("replicas per vertex", f"{result.replication_factor:.3f}"),
            ("balance (fullest part / mean)", f"{result.balance:.3f}"),
            ("vertices", f"{result.vertices:,}"),
        ],
    )
