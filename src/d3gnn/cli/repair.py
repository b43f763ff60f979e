"""`d3gnn repair`: drop what is damaged in a store, and the tail of the log that depends on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from d3gnn.cli.console import error_console, fail
from d3gnn.cli.store_files import exit_code_2, print_report, read_report


def repair(
    store: Annotated[
        Path, typer.Option(help="Store of the pipeline, or the checkpoint that it is in.", metavar="DIR")
    ],
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Checkpoint of the pipeline, if the store is not in it.", metavar="DIR", show_default=False
        ),
    ] = None,
    last_batch: Annotated[
        int | None,
        typer.Option(
            help="Drop also undamaged batches after this one.", metavar="N", min=0, show_default=False
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Drop damaged files of a store, and the batches that cannot be rebuilt without them.

    Stop the pipeline first: while it runs, the command refuses. It checks all files, says what it would do,
    and asks. The checkpoint is set back to the last batch that is kept, so that the next start reads the
    events of dropped batches again, if the source still has them. Name a new output folder for that start.

    Exit code 1: nothing was done. Exit code 2: the store cannot be repaired, or its pipeline runs.

    [bold]Examples[/bold]

      d3gnn repair --store out/checkpoint

      d3gnn repair --store s3://graphs/payments --checkpoint out/checkpoint --last-batch 1041
    """
    with ExitStack() as stack:
        with exit_code_2():
            stack.enter_context(_held(store))
        _repair(store, checkpoint, last_batch, yes)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep the pipeline of a store from running."""
    from d3gnn.runtime.idle import held_idle
    from d3gnn.runtime.plan import absolute
    from d3gnn.store.graph_log import open_store
    from d3gnn.store.store import StoreDamaged

    store = open_store(absolute(folder))
    try:
        _ = store.settings
    except StoreDamaged:  # the check names it, and nothing is repaired
        yield
        return
    with held_idle(store):
        yield


def _repair(store: Path, checkpoint: Path | None, last_batch: int | None, yes: bool) -> None:
    opened, report = read_report(store)
    print_report(opened, report)
    with exit_code_2():
        from d3gnn.store.repair import plan_repair
        from d3gnn.store.spark_checkpoint import SparkCheckpoint

        found = SparkCheckpoint.around(opened) if checkpoint is None else SparkCheckpoint(checkpoint)
        if checkpoint is not None and found is not None and not found.exists():
            fail(f"{checkpoint} is not the checkpoint of a query: it has no metadata and no offsets")
        planned = plan_repair(opened, report, found, last_batch)
    console = error_console()
    if not planned.is_needed:
        console.print("nothing to repair")
        return
    for step in planned.steps():
        console.print(f"- {step}", soft_wrap=True, markup=False)
    if planned.dropped and found is None:
        console.print(
            "The checkpoint is not known, and will not be set back: if it is ahead of the log, the pipeline "
            "refuses to start. Name it with --checkpoint.",
            soft_wrap=True,
        )
    if not yes and not typer.confirm("Do it?", err=True):
        raise typer.Exit(1)
    with exit_code_2():
        planned.apply()
    console.print(f"done: the log ends with batch {planned.keep}", soft_wrap=True)
