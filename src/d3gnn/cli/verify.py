"""`d3gnn verify`: recompute from the graph log, and compare."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from d3gnn.cli.console import error_console, print_json
from d3gnn.cli.options import Conf, Json, Master, settings_of
from d3gnn.cli.store_files import check_files, exit_code_2

if TYPE_CHECKING:
    from d3gnn.runtime.verify import Verdict


class Outcome(Enum):
    """The outcome of a comparison; the value is its markup."""

    exact = "[bold green]exact[/]"
    pending = "[bold yellow]pending[/]"
    wrong = "[bold red]wrong[/]"

    @staticmethod
    def of(verdict: Verdict, tolerance: float) -> Outcome:
        """Differences are expected while windows hold changes back; missing vertices never are."""
        if verdict.missing:
            return Outcome.wrong
        if verdict.max_relative_error <= tolerance:
            return Outcome.exact
        return Outcome.pending if verdict.pending else Outcome.wrong


def verify(
    checkpoint: Annotated[
        Path, typer.Option(help="Checkpoint folder of the pipeline, or its store.", metavar="DIR")
    ],
    tolerance: Annotated[float, typer.Option(help="Largest relative error allowed.", metavar="ERROR")] = 1e-5,
    deep: Annotated[
        bool, typer.Option("--deep", help="First check every file of the store, and say which are damaged.")
    ] = False,
    arrays: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the pipeline's arrays. Default: that of its last start.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
) -> None:
    """Recompute all embeddings from the graph log and compare them with those of a pipeline.

    If the pipeline is running, it waits between two batches until its embeddings are read.

    Prints one of three outcomes, and exits with its code:

      exact    (0): all embeddings are within the tolerance.

      pending  (1): some differ, and windows still hold changes back, which would explain it. Flush them, then
      verify again.

      wrong    (1): some differ although no changes are pending, or vertices are missing.

    Exit code 2: could not check. There is no pipeline in this folder, its store is damaged, or there are no
    embeddings to compare, because arrays are missing or a batch was interrupted.

    [bold]Examples[/bold]

      d3gnn verify --checkpoint out/checkpoint

      d3gnn verify --checkpoint out/checkpoint --deep

      d3gnn verify --checkpoint /data/checkpoint --master spark://head:7077
    """
    with exit_code_2():
        from d3gnn.runtime.verify import stored_plan
        from d3gnn.runtime.verify import verify as compare

    console = error_console()
    if deep:
        check_files(checkpoint, json)
    with exit_code_2(), console.status("recomputing ..."):
        if master is None:
            verdict = compare(stored_plan(checkpoint, arrays))
        else:
            verdict = _on_cluster(checkpoint, arrays, master, settings_of(conf))
    outcome = Outcome.of(verdict, tolerance)
    if json:
        exact = outcome is Outcome.exact
        print_json({**vars(verdict), "tolerance": tolerance, "exact": exact, "outcome": outcome.name})
    else:
        console.print(
            f"{outcome.value}: {verdict.vertices:,} vertices and {verdict.edges:,} edges up to batch "
            f"{verdict.batch}, largest relative error {verdict.max_relative_error:.1e}, "
            f"{verdict.missing} missing, {verdict.pending:,} pending",
            soft_wrap=True,
        )
        if outcome is Outcome.pending:
            console.print(
                "windows hold changes back; flush them with `d3gnn run` without --follow, or with drain() in "
                "a running pipeline, then verify again",
                soft_wrap=True,
            )
    if outcome is not Outcome.exact:
        raise typer.Exit(1)


def _on_cluster(checkpoint: Path, arrays: Path | None, master: str, settings: dict[str, str]) -> Verdict:
    """The same, with the embeddings on the hosts of a cluster."""
    from d3gnn.spark.session import session
    from d3gnn.spark.verify import verify_on_cluster

    spark = session(master, "d3gnn verify", **settings)
    try:
        return verify_on_cluster(spark, checkpoint, arrays=arrays)
    finally:
        spark.stop()
