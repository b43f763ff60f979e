"""`d3gnn bench`: measure, and compare with what one would take instead."""

from __future__ import annotations

import typer

from d3gnn.cli.bench.growth import growth
from d3gnn.cli.bench.latency import latency
from d3gnn.cli.bench.models import models
from d3gnn.cli.bench.partitioner import partitioner
from d3gnn.cli.bench.peers import peers
from d3gnn.cli.bench.report import report
from d3gnn.cli.bench.stages import stages
from d3gnn.cli.bench.throughput import throughput
from d3gnn.cli.bench.windows import windows

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Measure: each prints a table, or with --json one JSON object on standard output.",
)
app.command()(throughput)
app.command()(peers)
app.command()(latency)
app.command()(growth)
app.command()(stages)
app.command()(windows)
app.command()(models)
app.command()(partitioner)
app.command()(report)
