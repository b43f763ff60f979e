"""The commands of the report exist, and accept their options."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
import typer

from d3gnn.bench.suite import suite
from d3gnn.cli import app


def parse(arguments: list[str]) -> None:
    """Parse the arguments, without running the command."""
    bench = typer.main.get_command(app).commands["bench"]  # type: ignore[attr-defined]
    name, *options = arguments
    command: click.Command = bench.commands[name]
    command.make_context(name, [*options, "--json"])


@pytest.mark.parametrize("quick", [False, True])
def test_all_commands_can_be_parsed(quick: bool) -> None:
    lists = list(suite(None, quick=quick))
    for arguments in lists:
        parse(arguments)
    assert {arguments[0] for arguments in lists} == {
        "throughput", "peers", "stages", "partitioners", "latency", "growth", "windows", "models",
        "expiry", "recovery",
    }  # fmt: skip
    assert not any("--edges" in arguments for arguments in lists)
    assert any("20500000" in arguments for arguments in lists) != quick


def test_real_streams_are_used_if_present(shared_data: Path) -> None:
    lists = list(suite(shared_data))
    for arguments in lists:
        parse(arguments)
    files = {
        Path(arguments[arguments.index("--edges") + 1]).name for arguments in lists if "--edges" in arguments
    }
    assert len(files) == 4
