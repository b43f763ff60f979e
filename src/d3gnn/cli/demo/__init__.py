"""`d3gnn demo`: a stream, live, checked, and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from d3gnn.cli.console import error_console, steps, user_mistakes
from d3gnn.cli.options import Batch, Partitioner, PartitionerName, Parts, Seed

__all__ = ["demo"]


def demo(
    edges: Annotated[int, typer.Option(help="Edges in the stream.", metavar="N")] = 200_000,
    batch: Batch = 2000,
    parts: Parts = 2,
    partitioner: Partitioner = PartitionerName.hdrf,
    out: Annotated[Path, typer.Option(help="Folder for the picture.", metavar="FOLDER")] = Path("out"),
    seed: Seed = 0,
) -> None:
    """Run a synthetic stream through the engine, watch it, and check it.

    Communities that grow, with deletes, feature updates, bursts and some bad events. At the end every
    embedding is compared with recomputation from scratch (exit code 1 if they differ), the vertices that
    moved most are listed, and a picture is written to FOLDER/demo.png.

    [bold]Examples[/bold]

      d3gnn demo

      d3gnn demo --edges 1000000 --batch 10000 --parts 4 --out /tmp/demo --seed 3
    """
    with user_mistakes():
        from d3gnn.cli.demo.job import Job

        job = Job.plan(edges=edges, batch=batch, parts=parts, partitioner=partitioner.value, seed=seed)
        out.mkdir(parents=True, exist_ok=True)
    from d3gnn.bench.check import TOLERANCE, compare
    from d3gnn.cli.demo.display import live, show_movers
    from d3gnn.cli.demo.picture import draw

    console = error_console()
    console.print(f"{job.engine.model} on {job.parts} part(s), {len(job.stream):,} events, seed {seed}")
    with console.status("compiling (the first time takes a minute) ..."):
        job.warm_up()
    run = live(job, console)
    show_movers(run.movers, console)
    with steps() as bars:
        compared = compare(job.engine, job.stream.batches(batch), bars.step("recompute", len(job.stream)))
    right = compared.max_relative_error <= TOLERANCE
    console.print(
        f"{'[bold green]exact' if right else '[bold red]wrong'}[/]: {compared.vertices:,} vertices and "
        f"{compared.edges:,} edges recomputed from scratch, largest relative error "
        f"{compared.max_relative_error:.1e} (at most {TOLERANCE:.0e} is allowed)"
    )
    picture = out / "demo.png"
    with user_mistakes(OSError):
        draw(job, run, compared, picture)
    console.print(f"picture: {picture}", soft_wrap=True)
    if not right:
        raise typer.Exit(1)
