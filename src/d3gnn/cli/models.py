"""`d3gnn models`: the versions of a pipeline's model, and a switch to another one."""

from __future__ import annotations

from dataclasses import asdict
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
    action: Annotated[
        str | None,
        typer.Argument(
            help="show or export a version; nothing: list them.", metavar="[ACTION]", show_default=False
        ),
    ] = None,
    version: Annotated[
        str | None,
        typer.Argument(help="Number or name of the version.", metavar="[VERSION]", show_default=False),
    ] = None,
    *,
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
    to: Annotated[
        Path | None,
        typer.Option(help="With export: the file to write.", metavar="FILE", show_default=False),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the new model.", metavar="NAME", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """List the versions of a pipeline's model, show or export one, or switch to another one.

    A running pipeline switches in its next batch, without a stop: it rebuilds all state with the other model
    and emits every output again. A stopped one switches when it starts.

    [bold]Examples[/bold]

      d3gnn models --store checkpoint

      d3gnn models --store checkpoint --use june.safetensors --name june

      d3gnn models --store checkpoint --use 1

      d3gnn models show 2 --store checkpoint

      d3gnn models export 2 --store checkpoint --to model.safetensors
    """
    if action is not None:
        _on_version(action, version, store, to, json=json)
        return
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


def _on_version(action: str, which: str | None, store: Path, to: Path | None, *, json: bool) -> None:
    """Show or export a version."""
    with user_mistakes():
        from d3gnn.store.graph_log import open_store
        from d3gnn.store.models import find_model, get_model, read_model_file
        from d3gnn.store.store import StoreError
        from d3gnn.store.training_records import training_record

    with user_mistakes(OSError, ValueError, StoreError):
        if action not in ("show", "export") or which is None:
            raise ValueError(f"{action} {which or ''}: use show VERSION, or export VERSION --to FILE")
        opened = open_store(store.resolve())
        found = find_model(opened, which)
        if action == "export":
            if to is None:
                raise ValueError("export needs --to, the file to write")
            to.write_bytes(read_model_file(opened, found.path))
            error_console().print(f"{to}: version {found.version} ({found.name})")
            return
        record = training_record(opened, found.version)
        shown = {
            **found._asdict(),
            "model": repr(get_model(opened, found.path)),
            "training": None if record is None else asdict(record),
        }
    if json:
        print_json({"command": "models show", **shown})
        return
    table = Table("", "", show_header=False)
    for key, value in {**shown, **(shown.pop("training") or {})}.items():
        table.add_row(key, str(value))
    error_console().print(table)


def _model_file(use: str) -> GNN | None:
    if not use.endswith(_SUFFIX):
        return None
    from d3gnn.nn.model import GNN

    return GNN.load(use)
