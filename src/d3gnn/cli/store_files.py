"""The check of all files of a store, on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from d3gnn.cli.console import error_console, fail, print_json, steps, user_mistakes

if TYPE_CHECKING:
    from d3gnn.store.check import StoreReport
    from d3gnn.store.store import Store


@contextmanager
def exit_code_2() -> Iterator[None]:
    """Turn every error into one line and exit code 2: the codes below have meanings of their own."""
    from d3gnn.kernel.mapped_state import StateLost
    from d3gnn.store.store import StoreError

    with user_mistakes(OSError, ValueError, StoreError, StateLost):
        try:
            yield
        except (typer.Exit, typer.Abort, OSError, ValueError, StoreError, StateLost):
            raise
        except Exception as error:
            fail(f"{type(error).__name__}: {error}")


def read_report(folder: Path) -> tuple[Store, StoreReport]:
    """Check the store of a pipeline, with progress on the screen; exits with code 2 if there is none."""
    from d3gnn.store.check import check_store
    from d3gnn.store.graph_log import open_store

    bars: list[Callable[[int], None]] = []
    with exit_code_2(), steps() as shown:

        def report_entry(done: int, total: int) -> None:
            if not bars:
                bars.append(shown.step("checking", total, "entries"))
            bars[0](done)

        store = open_store(folder)
        return store, check_store(store, report_entry)


def print_report(store: Store, report: StoreReport) -> None:
    """The result of a check on standard error."""
    console = error_console()

    def line(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False)

    for path in report.strays:
        line(f"ignored: {path}, which d3gnn did not write")
    for damage in report.damages:
        line(f"damaged: {damage.path}: {_short(damage.problem)}")
    line(
        f"{store.uri}: {report.entries:,} entries, {report.snapshots} snapshots, {report.models} models and "
        f"{report.dead_letters} files of dead letters checked, {len(report.damages) or 'no'} damaged"
    )
    if report.damaged_batches:
        line(f"damaged: {report.damaged_batches}")


def check_files(folder: Path, json: bool) -> None:
    """Check the store of a pipeline; reports the damage and exits with code 2 if there is any."""
    store, report = read_report(folder)
    print_report(store, report)
    if not report.damages:
        return
    if json:
        damages = [{**vars(damage), "problem": _short(damage.problem)} for damage in report.damages]
        print_json(
            {
                "outcome": "damaged",
                "exact": False,
                "damaged": damages,
                "intact": report.intact(),
                "batch": report.last,
            }
        )
    else:
        error_console().print(
            "restore the damaged files from a backup, or see what `d3gnn repair` would drop", soft_wrap=True
        )
    raise typer.Exit(2)


def _short(problem: str) -> str:
    """What is wrong with a file, without what to do, which is the same for all."""
    return problem.split(" is damaged: ")[-1].split(". Restore it from a backup")[0]
