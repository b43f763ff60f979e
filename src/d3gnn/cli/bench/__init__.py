"""`d3gnn bench`: benchmarks, and comparison with DGL and PyG."""

from __future__ import annotations

import typer

from d3gnn.cli.bench.drift import drift
from d3gnn.cli.bench.expiry import expiry
from d3gnn.cli.bench.growth import growth
from d3gnn.cli.bench.latency import latency
from d3gnn.cli.bench.models import models
from d3gnn.cli.bench.partitioners import partitioners
from d3gnn.cli.bench.peers import peers
from d3gnn.cli.bench.recovery import recovery
from d3gnn.cli.bench.report import report
from d3gnn.cli.bench.stages import stages
from d3gnn.cli.bench.throughput import throughput
from d3gnn.cli.bench.training import training
from d3gnn.cli.bench.windows import windows
from d3gnn.cli.help import help_of

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Benchmarks. Each prints a table, or with --json one JSON object per result on standard output.",
)
for command in (
    throughput, peers, latency, growth, stages, windows, models, partitioners, expiry, recovery, training,
    drift, report,
):  # fmt: skip
    app.command(help=help_of(command))(command)
