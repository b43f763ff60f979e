"""`d3gnn fork`: a new store from an old one, with other settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from d3gnn.cli.console import error_console, print_json, steps, user_mistakes
from d3gnn.cli.missing import parse_missing
from d3gnn.cli.options import EdgeKind, Json, PartitionerName, named_numbers, named_widths

if TYPE_CHECKING:
    from d3gnn.events import GraphSchema


def _changed(help: str, metavar: str | None = None) -> Any:
    return typer.Option(help=help, metavar=metavar, show_default=False, rich_help_panel="What changes")


def fork(
    old: Annotated[
        Path, typer.Argument(help="Checkpoint or store of the old pipeline; it is only read.", metavar="OLD")
    ],
    new: Annotated[
        Path,
        typer.Argument(
            help="Checkpoint of the new pipeline; the store is in its folder graph/.", metavar="NEW"
        ),
    ],
    name: Annotated[str | None, _changed("Name of the pipeline.", "NAME")] = None,
    parts: Annotated[int | None, _changed("Logical parts.", "N")] = None,
    partitioner: Annotated[PartitionerName | None, _changed("How edges are assigned to parts.")] = None,
    vertex_features: Annotated[
        str | None,
        _changed(
            "All vertex features with their widths, in the order of the model's input: others are removed, "
            "new ones added, wider ones filled up.",
            "NAME=N,...",
        ),
    ] = None,
    edge_features: Annotated[str | None, _changed("The same for edge features.", "NAME=N,...")] = None,
    fill: Annotated[
        str | None,
        _changed(
            "New numbers of widened features: one for all, or several as in x=1:2. Default: 0.", "NAME=X,..."
        ),
    ] = None,
    missing: Annotated[
        str | None,
        _changed(
            "Input of vertices without a feature: zero, hash, mean (of the graph), or numbers as in x=0.5.",
            "RULE",
        ),
    ] = None,
    edges_mode: Annotated[EdgeKind | None, _changed("When two edges are the same.")] = None,
    undirected: Annotated[
        bool,
        typer.Option("--undirected", help="Ignore the direction of edges.", rich_help_panel="What changes"),
    ] = False,
    label_width: Annotated[
        int | None, _changed("Numbers in a label, if the graph has no labels.", "N")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            help="Take the graph after this batch. Default: the newest.", metavar="N", show_default=False
        ),
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Write all entries of the log, not only the graph.")
    ] = False,
    json: Json = False,
) -> None:
    """Write a new store with the graph of an old one, with other parts, features or edges.

    The old pipeline may run; not one byte of it changes. The new store has the settings of the old one but
    for those that are given. Start a pipeline with these settings and the checkpoint NEW to go on with the
    graph: nothing has to be read again.

    [bold]Examples[/bold]

      d3gnn fork checkpoint wider --parts 8 --partitioner random

      d3gnn fork checkpoint richer --vertex-features x=16,risk=1 --missing mean
    """
    with user_mistakes():
        from d3gnn.kernel.partitioners import make_partitioner
        from d3gnn.kernel.partitioners import partitioner as named_partitioner
        from d3gnn.runtime.fork import fork as write
        from d3gnn.runtime.plan import absolute
        from d3gnn.store.graph_log import open_store
        from d3gnn.store.store import STORE, StoreError

    with user_mistakes(OSError, ValueError, StoreError):
        settings = open_store(absolute(old)).settings
        rule, filled = parse_missing(missing), named_numbers("--fill", fill)
        schema = changed_schema(
            settings["schema"],
            {
                "edges": edges_mode and edges_mode.value,
                "directed": False if undirected else None,
                "features": named_widths("--vertex-features", vertex_features) or None,
                "edge_features": named_widths("--edge-features", edge_features) or None,
                "label_width": label_width,
                "missing": None if rule == "mean" else rule,
            },
            filled,
        )
        placed = (
            named_partitioner(partitioner.value)
            if partitioner
            else make_partitioner(**settings["partitioner"])
        )
        with ExitStack() as shown:
            made = write(
                absolute(old), f"{absolute(new)}/{STORE}", name=name or settings["name"],
                parts=settings["parts"] if parts is None else parts, partitioner=placed, schema=schema,
                batch=batch, history=history, fill=filled, means=rule == "mean", progress=progress_bar(shown),
            )  # fmt: skip
    if json:
        print_json({"command": "fork", **vars(made)})
        return
    console = error_console()
    console.print(
        f"{made.store}: the graph of {made.source} after batch {made.batch}, {made.events:,} events in "
        f"{made.entries:,} entries, {made.vertices:,} vertices",
        soft_wrap=True, markup=False,
    )  # fmt: skip
    for reason, count in made.skipped.items():
        console.print(f"  {count:>9,}  {reason}", soft_wrap=True, markup=False)
    if made.lacking:
        console.print(f"{made.lacking:,} vertices lack a feature", soft_wrap=True)


def progress_bar(shown: ExitStack) -> Callable[[int, int], None]:
    """A progress bar that appears with the first report."""
    report: Callable[[int], None] | None = None

    def progress(done: int, total: int) -> None:
        nonlocal report
        if report is None:
            report = shown.enter_context(steps()).step("fork", total)
        report(done)

    return progress


def changed_schema(
    old: Mapping[str, Any], changes: Mapping[str, Any], fill: Mapping[str, float | tuple[float, ...]]
) -> GraphSchema:
    """The schema of a store with the changes that are not None.

    Numbers for missing features stay, with those of `fill` behind them where a feature is widened.
    """
    from d3gnn.events import GraphSchema

    given = {name: value for name, value in changes.items() if value is not None}
    schema = GraphSchema(**old)
    if isinstance(schema.missing, Mapping) and "missing" not in given:
        widths, numbers = given.get("features", schema.features), {}
        for name, values in schema.missing.items():
            added = widths.get(name, 0) - schema.features[name]
            if name in widths and added >= 0:
                more = fill.get(name, 0.0)
                numbers[name] = (*values, *((more,) * added if isinstance(more, float) else more))  # type: ignore[misc]
        given["missing"] = numbers
    return replace(schema, **given)
