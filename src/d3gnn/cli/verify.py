"""`d3gnn verify`: recompute from the graph log, and compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from d3gnn.cli.console import error_console, print_json, user_mistakes


def verify(
    checkpoint: Annotated[Path, typer.Option(help="The pipeline's checkpoint folder.", metavar="DIR")],
    tolerance: Annotated[float, typer.Option(help="Largest relative error that is allowed.")] = 1e-5,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Recompute all embeddings from the graph log and compare them with those the pipeline holds.

    The pipeline must not be running, and nothing may wait in its windows. Exit code 1 if the largest relative
    error is above the tolerance, or if a vertex is missing.

    [bold]Example[/bold]

      d3gnn verify --checkpoint out/checkpoint
    """
    with user_mistakes():
        from d3gnn.spark.store import StoreError
        from d3gnn.spark.verify import stored_plan
        from d3gnn.spark.verify import verify as compare

    with user_mistakes(OSError, ValueError, StoreError), error_console().status("recomputing ..."):
        verdict = compare(stored_plan(checkpoint))
    right = verdict.max_relative_error <= tolerance and verdict.missing == 0
    waits = verdict.pending > 0 and verdict.missing == 0
    if json:
        print_json({**vars(verdict), "tolerance": tolerance, "exact": right})
    else:
        word = "[bold green]exact" if right else "[bold yellow]not yet" if waits else "[bold red]wrong"
        error_console().print(
            f"{word}[/]: {verdict.vertices:,} vertices and {verdict.edges:,} edges up to batch "
            f"{verdict.batch}, largest relative error {verdict.max_relative_error:.1e}, "
            f"{verdict.missing} missing",
            soft_wrap=True,
        )
        if waits:
            error_console().print(
                f"{verdict.pending:,} changes wait in windows: let a run end by itself (without --follow), "
                "or call drain() while one goes on; then verify again",
                soft_wrap=True,
            )
    if not right:
        raise typer.Exit(1)
