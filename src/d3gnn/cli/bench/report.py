"""`d3gnn bench report`: everything, as a page to read."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from d3gnn.cli.console import error_console, saying, span, user_mistakes


def report(
    out: Annotated[Path, typer.Option(help="Folder for the report.", metavar="FOLDER")] = Path("bench"),
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of real streams; without it, synthetic ones.", metavar="FOLDER"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out what takes minutes: graphs of 20 million edges.")
    ] = False,
    results: Annotated[
        list[Path] | None,
        typer.Option(help="Measure nothing: report what these files hold, of --json.", metavar="FILE"),
    ] = None,
) -> None:
    """Run all benchmarks, each in a process of its own, and write report.html, report.md and the pictures.

    results.json in the same folder holds every result with the command that makes it again.

    [bold]Examples[/bold]

      d3gnn bench report --out bench

      d3gnn bench report --results bench/results.json --out again
    """
    console = error_console()
    with user_mistakes():
        from d3gnn.bench.report import write_report

        if results:
            found = [result for path in results for result in _read(path)]
        else:
            from d3gnn.bench.suite import suite

            out.mkdir(parents=True, exist_ok=True)
            found = []
            for arguments in suite(data, quick=quick):
                command = ["d3gnn", "bench", *arguments, "--json"]
                begun = time.monotonic()
                with saying(console, shlex.join(command)):
                    done = subprocess.run([sys.executable, "-m", *command], capture_output=True)
                lines = done.stdout.decode().splitlines()
                found += [json.loads(line) | {"command": shlex.join(command)} for line in lines]
                (out / "results.json").write_text(json.dumps(found, indent=2) + "\n")  # so far
                took = span(time.monotonic() - begun)
                if done.returncode:
                    last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
                    console.print(f"failed after {took}, left out: {' '.join(last)}", markup=False)
                else:
                    console.print(f"{took}: {shlex.join(command)}", markup=False, soft_wrap=True)
        page = write_report(found, out)
    sys.stdout.write(f"{page}\n")


def _read(path: Path) -> list[dict[str, Any]]:
    """The results in a file: a list of them, or one on each line."""
    text = path.read_text()
    try:
        held = (
            json.loads(text) if text.lstrip().startswith("[") else [json.loads(x) for x in text.splitlines()]
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} holds no results of d3gnn bench --json: {error}") from error
    return list(held[0]) if held and isinstance(held[0], list) else held
