"""`d3gnn forget`: erase vertices from everything that a stopped pipeline keeps."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from d3gnn.cli.console import error_console, fail, print_json, user_mistakes
from d3gnn.cli.options import Json

if TYPE_CHECKING:
    from rich.console import Console

    from d3gnn.events import Key
    from d3gnn.runtime.erasure import Erasure


def forget(
    store: Annotated[
        Path,
        typer.Option(
            "--store", "--checkpoint", help="Store of the pipeline, or its checkpoint.", metavar="DIR"
        ),
    ],
    id: Annotated[
        list[str] | None, typer.Option(help="Vertex to forget; several times for several.", metavar="ID")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="File with a vertex to forget in each line.", metavar="FILE")
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            help="Output table to delete their rows from; several times for several.", metavar="DIR"
        ),
    ] = None,
    arrays: Annotated[
        Path | None, typer.Option(help="Folder of the arrays. Default: that of the store.", metavar="DIR")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Search, and change nothing.")] = False,
    json: Json = False,
) -> None:
    """Erase vertices with all their edges from a stopped pipeline: from its graph log, whose history is
    deleted, from its dead letters, its arrays, and output tables. Then search for what is left.

    The next start rebuilds all state from the log. Input files, backups and other copies are yours: filter
    them, or a later event with the id creates the vertex again. After a crash, run the same command again.

    Exit code 1: some file still names one of the ids (with --dry-run: names one). Exit code 2: the pipeline
    runs, or there is none.

    [bold]Example[/bold]

      d3gnn forget --store out/checkpoint --id ann --output out/embeddings
    """
    with user_mistakes():
        from d3gnn.runtime.erasure import forget as erase
        from d3gnn.store.graph_log import open_store
        from d3gnn.store.store import StoreError

    console = error_console()
    with user_mistakes(OSError, ValueError, StoreError):
        texts = _ids(id or [], file)
        ids = _typed(texts, open_store(store).settings["ids"])
        with console.status("searching and erasing ..."):
            erasure = erase(store, ids, outputs=output or (), arrays=arrays, dry_run=dry_run)
    if json:
        print_json({**asdict(erasure), "complete": not erasure.left})
    else:
        _show(erasure, console)
    if erasure.left:
        raise typer.Exit(1)


def _ids(given: list[str], file: Path | None) -> list[str]:
    lines = [] if file is None else file.read_text(encoding="utf-8").splitlines()
    texts = [*given, *(line for line in lines if line)]
    if not texts:
        fail("there are no ids to forget: give --id, or --file with an id in each line")
    return texts


def _typed(texts: list[str], kind: str) -> list[Key]:
    if kind == "string":
        return list(texts)
    for text in texts:
        if not text.strip().removeprefix("-").isdecimal():
            fail(f"the ids of this store are integers; {text!r} is none")
    return [int(text) for text in texts]


def _show(erasure: Erasure, console: Console) -> None:
    def line(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    for place in erasure.found:
        line(f"{place.place}: {place.rows:,} rows in {place.files:,} files")
    if erasure.dry_run:
        line(f"found in {len(erasure.left):,} files; nothing was changed")
        return
    line(
        f"erased {erasure.vertices:,} vertices, {erasure.edges:,} edges, and {erasure.array_files:,} files "
        "of state, which the next start rebuilds"
    )
    if not erasure.left:
        line(f"complete: a search finds none of the {erasure.ids:,} ids")
    for path in erasure.left:
        line(f"left: {path}")
