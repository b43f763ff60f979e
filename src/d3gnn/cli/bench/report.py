"""`d3gnn bench report`: run all benchmarks, and write a report."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from d3gnn.cli.console import error_console, span, status, user_mistakes


def report(
    out: Annotated[Path, typer.Option(help="Output folder.", metavar="FOLDER")] = Path("bench"),
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of real streams; synthetic ones replace missing files.", metavar="FOLDER"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Skip the graphs of 20 million edges.")] = False,
    results: Annotated[
        list[Path] | None,
        typer.Option(help="Do not measure: report the results in these files (from --json).", metavar="FILE"),
    ] = None,
) -> None:
    """Run all benchmarks, each in its own process, and write report.html, report.md and plots/*.svg.

    results.json in the same folder contains every result with the command that reproduces it.

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
                start = time.monotonic()
                with status(console, shlex.join(command)):
                    done = subprocess.run([sys.executable, "-m", *command], capture_output=True)
                lines = done.stdout.decode().splitlines()
                found += [json.loads(line) | {"command": shlex.join(command)} for line in lines]
                # Partial results, in case of an interrupt.
                (out / "results.json").write_text(json.dumps(found, indent=2) + "\n")
                took = span(time.monotonic() - start)
                if done.returncode:
                    last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
                    console.print(f"failed after {took}, skipped: {' '.join(last)}", markup=False)
                else:
                    console.print(f"{took}: {shlex.join(command)}", markup=False, soft_wrap=True)
        page = write_report(found, out)
    sys.stdout.write(f"{page}\n")


def _read(path: Path) -> list[dict[str, Any]]:
    """The results in a file: a JSON list, or one JSON object per line."""
    text = path.read_text()
    try:
        results = (
            json.loads(text) if text.lstrip().startswith("[") else [json.loads(x) for x in text.splitlines()]
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not a file of results from d3gnn bench --json: {error}") from error
    return list(results[0]) if results and isinstance(results[0], list) else results
