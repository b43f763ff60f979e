"""`d3gnn models`: the versions of a pipeline's model, and a switch to another one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from d3gnn.cli.console import error_console, print_json, user_mistakes
from d3gnn.cli.options import Json

if TYPE_CHECKING:
    from d3gnn.nn.model import GNN

_SUFFIX = ".safetensors"


def models(
    store: Annotated[
        Path,
        typer.Option(
            "--store", "--checkpoint", help="Store of the pipeline, or its checkpoint.", metavar="DIR"
        ),
    ],
    use: Annotated[
        str | None,
        typer.Option(
            help="Switch to this version (its number or name), or to the model in this .safetensors file.",
            metavar="VERSION",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the new model.", metavar="NAME", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """List the versions of a pipeline's model, or switch to another one.

    A running pipeline switches in its next batch, without a stop: it rebuilds all state with the other model
    and emits every output again. A stopped one switches when it starts.

    [bold]Examples[/bold]

      d3gnn models --store checkpoint

      d3gnn models --store checkpoint --use june.safetensors --name june

      d3gnn models --store checkpoint --use 1
    """
    with user_mistakes():
        from d3gnn.runtime.rollout import current_model, deploy
        from d3gnn.store.graph_log import GraphLog, open_store
        from d3gnn.store.models import list_models
        from d3gnn.store.store import StoreError

    with user_mistakes(OSError, ValueError, StoreError):
        opened = open_store(store.resolve())
        if use is not None:
            deploy(opened, _model_file(use) or use, name)
        elif name is not None:
            raise ValueError("--name is for a new model; give its file with --use")
        log = GraphLog(opened)
        last = log.last()
        meta = None if last is None else log.meta(last)
        current, in_use = current_model(opened).version, 0 if meta is None else meta.model_version
        rows = [
            {**each._asdict(), "current": each.version == current, "in_use": each.version == in_use}
            for each in list_models(opened)
        ]
    if json:
        print_json({"command": "models", "last_batch": last, "models": rows})
        return
    table = Table("version", "name", "digest", "")
    for row in rows:
        note = "in use" if row["in_use"] else ""
        if row["current"] and not row["in_use"]:
            note = "current: used from the next batch on"
        table.add_row(str(row["version"]), str(row["name"]), str(row["digest"]), note)
    error_console().print(table)


def _model_file(use: str) -> GNN | None:
    if not use.endswith(_SUFFIX):
        return None
    from d3gnn.nn.model import GNN

    return GNN.load(use)
