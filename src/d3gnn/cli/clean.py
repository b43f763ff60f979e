"""`d3gnn clean`: remove arrays that no running pipeline uses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from d3gnn.cli.console import error_console, print_json, user_mistakes
from d3gnn.cli.options import Json


def clean(
    arrays: Annotated[
        list[Path] | None,
        typer.Option(
            help="Further folder that was the `arrays` of pipelines; may be given several times.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List them only.")] = False,
    json: Json = False,
) -> None:
    """List the arrays on this machine that no running pipeline uses, ask, and remove them.

    Arrays are kept in memory (/dev/shm), and outlive their pipeline, so that its next start need not rebuild
    them. They can be removed at any time: the next start rebuilds them from the graph log. Arrays whose store
    is gone are also removed whenever a pipeline starts.

    Nothing of a running pipeline is listed. In a cluster, stop its pipelines before you clean a machine.

    [bold]Examples[/bold]

      d3gnn clean --dry-run

      d3gnn clean --yes --arrays /data/arrays
    """
    with user_mistakes():
        from d3gnn.runtime.leftovers import leftovers, places

        found = list(leftovers([*places(), *(folder.resolve(strict=True) for folder in arrays or [])]))
    console = error_console()
    sizes = [each.nbytes for each in found]
    for each, size in zip(found, sizes, strict=True):
        state = each.store or "a store that is not known"
        if each.is_useless:
            state += ", which is gone"
        console.print(f"{size / 1e6:>10,.1f} MB  {each.folder}  of {state}", soft_wrap=True, markup=False)
    total = f"{len(found)} folders, {sum(sizes) / 1e6:,.1f} MB"
    removed: list[Any] = []
    if not found:
        console.print("no arrays are left over")
    elif dry_run:
        console.print(f"{total}: run `d3gnn clean` to remove them")
    elif yes or typer.confirm(f"Remove {total}?", err=True):
        removed = [(each, size) for each, size in zip(found, sizes, strict=True) if each.remove()]
        freed = sum(size for _, size in removed)
        console.print(f"removed {len(removed)} folders, {freed / 1e6:,.1f} MB")
    if json:
        gone = {each.folder for each, _ in removed}
        rows = [
            {
                "folder": str(each.folder),
                "store": each.store,
                "bytes": size,
                "removed": each.folder in gone,
            }
            for each, size in zip(found, sizes, strict=True)
        ]
        print_json({"arrays": rows, "removed": len(removed)})
