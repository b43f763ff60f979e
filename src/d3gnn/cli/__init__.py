"""The `d3gnn` command: one module for each subcommand, which imports slow modules only when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from d3gnn.cli import bench
from d3gnn.cli.clean import clean
from d3gnn.cli.compact import compact
from d3gnn.cli.compact_output import compact_output
from d3gnn.cli.demo import demo
from d3gnn.cli.forget import forget
from d3gnn.cli.fork import fork
from d3gnn.cli.generate import generate
from d3gnn.cli.help import help_of
from d3gnn.cli.models import models
from d3gnn.cli.repair import repair
from d3gnn.cli.repartition import repartition
from d3gnn.cli.run import run
from d3gnn.cli.train import train
from d3gnn.cli.verify import verify

__all__ = ["app"]

app = typer.Typer(
    name="d3gnn",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    demo, run, generate, verify, repair, clean, models, train, compact_output, compact, fork, repartition,
    forget,
):  # fmt: skip
    app.command(help=help_of(command))(command)
app.add_typer(bench.app, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        from d3gnn import __version__

        typer.echo(f"d3gnn {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Streaming graph neural networks: exact embeddings of a graph that keeps changing.

    Start with [bold]d3gnn demo[/bold]. Results go to standard output, progress and errors to standard error.
    """
