"""`d3gnn compact`: a snapshot of a graph log, so that a rebuild does not read its history."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from d3gnn.cli.console import error_console, print_json, user_mistakes
from d3gnn.cli.options import Json


def compact(
    store: Annotated[
        Path,
        typer.Option(
            "--store", "--checkpoint", help="Store of a pipeline, or its checkpoint.", metavar="DIR"
        ),
    ],
    factor: Annotated[
        float,
        typer.Option(
            help="Only if there are more events since the newest snapshot than this many times its own; "
            "0 for always.",
            metavar="F",
        ),
    ] = 1.0,
    forget_history: Annotated[
        bool, typer.Option("--forget-history", help="Delete the entries before the snapshot.")
    ] = False,
    json: Json = False,
) -> None:
    """Write a snapshot of the graph if the log has grown: the time of a rebuild then follows the graph.

    The pipeline may run meanwhile; a timer can call this every hour, since a log that has not grown costs
    nothing. Vertices, edges and parts are those that the log has: a rebuild decides nothing again.

    [bold]Example[/bold]

      d3gnn compact --store checkpoint
    """
    with user_mistakes():
        from d3gnn.runtime.plan import absolute
        from d3gnn.store.graph_log import GraphLog
        from d3gnn.store.log_size import rebuilt_from
        from d3gnn.store.store import StoreError

        if factor < 0:
            raise ValueError(f"--factor {factor:g}: must be at least 0")
    with user_mistakes(OSError, ValueError, StoreError):
        log = GraphLog.open(absolute(store))
        snapshot, since = rebuilt_from(log)
        due = since > factor * snapshot
        if due:
            log.compact(forget_history=forget_history)
        kept, rest = rebuilt_from(log)
    if json:
        found = {"snapshot": due, "events_before": snapshot + since, "events_after": kept + rest}
        print_json({"command": "compact", **found})
        return
    text = f"a rebuild reads {kept + rest:,} events"
    error_console().print(
        f"{text} instead of {snapshot + since:,}" if due else f"{text}; no snapshot is due", soft_wrap=True
    )
