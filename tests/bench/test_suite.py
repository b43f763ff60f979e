"""The commands of the report are ones that there are."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
import typer

from d3gnn.bench.suite import suite
from d3gnn.cli import app


def parse(arguments: list[str]) -> None:
    """Let the command line read them, without doing anything."""
    bench = typer.main.get_command(app).commands["bench"]  # type: ignore[attr-defined]
    name, *options = arguments
    command: click.Command = bench.commands[name]
    command.make_context(name, [*options, "--json"])


@pytest.mark.parametrize("quick", [False, True])
def test_all_of_them_are_understood(quick: bool) -> None:
    lists = list(suite(None, quick=quick))
    for arguments in lists:
        parse(arguments)
    assert {arguments[0] for arguments in lists} == {
        "throughput", "peers", "stages", "partitioner", "latency", "growth", "windows", "models",
    }  # fmt: skip
    assert not any("--edges" in arguments for arguments in lists)
    assert any("20500000" in arguments for arguments in lists) != quick


def test_real_streams_where_they_are(shared_data: Path) -> None:
    lists = list(suite(shared_data))
    for arguments in lists:
        parse(arguments)
    files = {
        Path(arguments[arguments.index("--edges") + 1]).name for arguments in lists if "--edges" in arguments
    }
    assert len(files) == 4
