"""`d3gnn repartition`: a new store with the same graph in other parts."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from d3gnn.cli.console import error_console, print_json, user_mistakes
from d3gnn.cli.fork import progress_bar
from d3gnn.cli.options import Json, PartitionerName


def repartition(
    store: Annotated[
        Path,
        typer.Option(
            "--store",
            "--checkpoint",
            help="Store of the old pipeline, or its checkpoint; it is only read.",
            metavar="DIR",
        ),
    ],
    into: Annotated[
        Path, typer.Option(help="Checkpoint of the new pipeline; its store is in graph/.", metavar="DIR")
    ],
    parts: Annotated[
        int | None,
        typer.Option(help="Logical parts. Default: as many as now.", metavar="N", show_default=False),
    ] = None,
    partitioner: Annotated[
        PartitionerName | None,
        typer.Option(help="Partitioner. Default: that of the store.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Partition the graph of a store again, into a new store: more parts, or fewer replicas.

    A streaming partitioner decides about each edge once, and cannot know what comes later. Here it sees the
    whole graph in the order of its edges, without those that were deleted; METIS plans all of it. Reports the
    replicas per vertex before and after. All settings but parts and partitioner stay; see `d3gnn fork` for
    others.

    [bold]Example[/bold]

      d3gnn repartition --store checkpoint --into wider --parts 16 --partitioner metis
    """
    with user_mistakes():
        from d3gnn.events import GraphSchema
        from d3gnn.kernel.partitioners import make_partitioner
        from d3gnn.kernel.partitioners import partitioner as named_partitioner
        from d3gnn.runtime.fork import fork, replication_factor
        from d3gnn.runtime.plan import absolute
        from d3gnn.store.graph_log import open_store
        from d3gnn.store.store import STORE, StoreError

    with user_mistakes(OSError, ValueError, ImportError, StoreError):
        old = open_store(absolute(store))
        settings = old.settings
        chosen = (
            named_partitioner(partitioner.value)
            if partitioner
            else make_partitioner(**settings["partitioner"])
        )
        with ExitStack() as shown:
            made = fork(
                absolute(store), f"{absolute(into)}/{STORE}", name=settings["name"],
                parts=settings["parts"] if parts is None else parts, partitioner=chosen,
                schema=GraphSchema(**settings["schema"]), progress=progress_bar(shown),
            )  # fmt: skip
        before, after = replication_factor(absolute(store), made.batch), replication_factor(made.store)
    if json:
        found = {"replication_before": round(before, 4), "replication_after": round(after, 4)}
        print_json({"command": "repartition", **vars(made), **found})
        return
    error_console().print(
        f"{made.store}: the graph of {made.source} after batch {made.batch}, {made.vertices:,} vertices in "
        f"{parts or settings['parts']} parts instead of {settings['parts']}: {after:.3f} replicas per vertex "
        f"instead of {before:.3f}",
        soft_wrap=True, markup=False,
    )  # fmt: skip
