"""The progress of the demo, and the vertices that moved most."""

from __future__ import annotations

import time

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from d3gnn.cli.console import facts
from d3gnn.cli.demo.job import Engine, Job, Mover, Run

_REFRESH = 0.15
_RECENT = 20


def live(job: Job, engine: Engine, console: Console) -> Run:
    """Run the job and show its progress, drawn between batches."""
    run, drawn = Run(), 0.0
    with Live(console=console, auto_refresh=False, transient=False) as screen:
        for run in job.run(engine):
            now = time.monotonic()
            if now - drawn >= _REFRESH:
                screen.update(_screen(job, run), refresh=True)
                drawn = now
        screen.update(_screen(job, run), refresh=True)
    if not console.is_terminal:
        console.print()  # a screen that is not live ends without a line break
    return run


def _screen(job: Job, run: Run) -> Panel:
    totals, recent_ms = run.totals, run.batch_ms[-_RECENT:]
    speed = sum(run.batch_events[-_RECENT:]) / max(1e-9, sum(recent_ms) / 1e3)
    cells = [
        ("events", f"{totals.events:,} of {len(job.stream):,}"),
        ("speed", f"{speed:,.0f} events/s"),
        ("batch", f"{sorted(recent_ms)[len(recent_ms) // 2]:,.1f} ms" if recent_ms else ""),
        ("batches", f"{totals.batches:,}"),
        ("rows emitted", f"{totals.rows:,}"),
        ("tombstones", f"{totals.tombstones:,}"),
    ]
    bar = ProgressBar(total=len(job.stream), completed=totals.events, width=60)
    title = "running" if totals.batches else "first batch: starting workers"
    if totals.events == len(job.stream):
        title = f"done in {run.seconds:.1f} s of engine time"
    return Panel(Group(bar, "", facts(cells), "", _reasons(run)), title=title, title_align="left", width=78)


def _reasons(run: Run) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right")
    table.add_column(overflow="fold")
    table.add_row(f"{run.totals.dead.total():,}", "[bold]dead letters")
    for reason, count in run.totals.dead.most_common():
        table.add_row(f"{count:,}", f"[dim]{reason}")
    table.add_row(f"{run.totals.late:,}", "[bold]late updates[/] [dim](a newer value was applied before)")
    return table


def show_movers(movers: list[Mover], console: Console) -> None:
    """Show the vertices whose embeddings moved most, and their events."""
    table = Table(title="Moved most over the last tenth of the stream", title_justify="left", box=SIMPLE_HEAD)
    for name in ("vertex", "community", "moved by", "edges in, added", "removed", "features set"):
        table.add_column(name, justify="right")
    for mover in movers:
        table.add_row(
            str(mover.id),
            str(mover.community),
            f"{mover.moved:.3f}",
            str(mover.edges_added),
            str(mover.edges_removed),
            str(mover.features_set),
        )
    console.print(table)
