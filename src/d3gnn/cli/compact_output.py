"""`d3gnn compact-output`: the newest rows of an output table, beside it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from d3gnn.cli.console import error_console, print_json, status, user_mistakes
from d3gnn.cli.options import Json


def compact_output(
    output: Annotated[Path, typer.Argument(help="Output folder of a pipeline.", metavar="OUTPUT")],
    delete_history: Annotated[
        bool,
        typer.Option("--delete-history", help="Delete the files that the compaction before this includes."),
    ] = False,
    now: Annotated[
        bool,
        typer.Option("--now", help="With --delete-history: also the files that this compaction includes."),
    ] = False,
    json: Json = False,
) -> None:
    """Write the newest row of each id beside an output table, so that d3gnn.latest reads few files.

    The pipeline may run meanwhile. With --delete-history, files whose rows are all outdated or compacted are
    deleted: those of the compaction before, so that readers are not disturbed, or with --now all of them.
    d3gnn.latest reads the rest; for spark.read, set the option ignoreMissingFiles.

    [bold]Example[/bold]

      d3gnn compact-output embeddings --delete-history
    """
    if now and not delete_history:
        with user_mistakes():
            raise ValueError("--now is for --delete-history")
    console = error_console()
    with user_mistakes(), status(console, "starting Spark ..."):
        from d3gnn.cli.spark import plain_errors, spark_session
        from d3gnn.spark.tables import compact_output as compact
        from d3gnn.store.store import StoreError

        if not output.is_dir():
            raise FileNotFoundError(f"{output} does not exist; give the output folder of a pipeline")
    log = Path(tempfile.mkdtemp(prefix="d3gnn-")) / "spark.log"
    with plain_errors(log), user_mistakes(OSError, ValueError, StoreError), spark_session(log) as spark:
        done = compact(spark, output.resolve(), delete_history=delete_history, now=now)
    if json:
        print_json({"command": "compact-output", "rows": done.rows, "files": len(done.files)})
    else:
        console.print(f"{done.rows:,} rows compacted, from {len(done.files):,} files", soft_wrap=True)
