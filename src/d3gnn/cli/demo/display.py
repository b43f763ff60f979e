"""The run as it goes on, and the vertices that moved most."""

from __future__ import annotations

import time

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from d3gnn.cli.demo.job import Job, Mover, Run
from d3gnn.events import Reason

_REFRESH = 0.15
_RECENT = 20


def live(job: Job, console: Console) -> Run:
    """Run the job and show it; drawn by the thread that works, between batches."""
    run, drawn = Run(), 0.0
    with Live(console=console, auto_refresh=False, transient=False) as screen:
        for run in job.run():
            now = time.monotonic()
            if now - drawn >= _REFRESH:
                screen.update(_screen(job, run), refresh=True)
                drawn = now
        screen.update(_screen(job, run), refresh=True)
    if not console.is_terminal:
        console.print()  # a screen that is not live ends without a line break
    return run


def _screen(job: Job, run: Run) -> Panel:
    recent_ms, recent_events = run.batch_ms[-_RECENT:], run.batch_events[-_RECENT:]
    speed = sum(recent_events) / max(1e-9, sum(recent_ms) / 1e3)
    facts = Table.grid(padding=(0, 3))
    for _ in range(4):
        facts.add_column()
    cells = [
        ("events", f"{run.events:,} of {len(job.stream):,}"),
        ("speed", f"{speed:,.0f} events/s"),
        ("batch", f"{sorted(recent_ms)[len(recent_ms) // 2]:.1f} ms" if recent_ms else ""),
        ("vertices", f"{len(job.engine):,}"),
        ("embeddings emitted", f"{run.emitted:,}"),
        ("tombstones", f"{run.tombstones:,}"),
    ]
    for left, right in zip(cells[0::2], cells[1::2], strict=True):
        facts.add_row(f"[dim]{left[0]}", left[1], f"[dim]{right[0]}", right[1])
    bar = ProgressBar(total=len(job.stream), completed=run.events, width=60)
    title = "running" if run.events < len(job.stream) else f"done in {run.seconds:.1f} s of engine time"
    return Panel(Group(bar, "", facts, "", _reasons(run)), title=title, title_align="left", width=78)


def _reasons(run: Run) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right")
    table.add_column(overflow="fold")
    table.add_row(f"{run.dead:,}", "[bold]dead letters")
    for reason, count in sorted(run.reasons.items(), key=lambda item: -item[1]):
        if reason.is_dead:
            table.add_row(f"{count:,}", f"[dim]{reason.text}")
    table.add_row(f"{run.reasons[Reason.LATE]:,}", "[bold]late updates[/] [dim](a newer value was there)")
    return table


def show_movers(movers: list[Mover], console: Console) -> None:
    """The vertices whose embeddings moved most, and what happened to them."""
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
