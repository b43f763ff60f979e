"""The `d3gnn` command: one file per subcommand. What is slow to import is imported when it is needed."""

from __future__ import annotations

from typing import Annotated

import typer

from d3gnn.cli import bench
from d3gnn.cli.demo import demo
from d3gnn.cli.generate import generate
from d3gnn.cli.run import run
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
app.command()(demo)
app.command()(run)
app.command()(generate)
app.command()(verify)
app.add_typer(bench.app, name="bench")


def _version(asked: bool) -> None:
    if asked:
        from d3gnn import __version__

        typer.echo(f"d3gnn {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Streaming graph neural networks: exact embeddings of a graph that keeps changing.

    Begin with [bold]d3gnn demo[/bold]. Results go to standard output, progress to standard error.
    """
