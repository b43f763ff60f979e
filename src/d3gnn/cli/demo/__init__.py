"""`d3gnn demo`: a stream, live, checked, and drawn."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from d3gnn.cli.console import error_console, saying, steps, user_mistakes
from d3gnn.cli.options import EngineName, Partitioner, PartitionerName, Parts, Seed

if TYPE_CHECKING:
    from d3gnn.cli.demo.job import Engine, Job

__all__ = ["demo"]

#: Events in a batch. Spark takes a third of a second for the smallest, so it gets larger ones.
_BATCH = {EngineName.local: 2000, EngineName.spark: 20_000}


def demo(
    edges: Annotated[int, typer.Option(help="Edges in the stream.", metavar="N")] = 200_000,
    engine: Annotated[
        EngineName, typer.Option(help="Spark in this process, or the engine without Spark.")
    ] = EngineName.spark,
    batch: Annotated[
        int | None,
        typer.Option(
            help="Events in a batch: 20000 on Spark, 2000 without.", metavar="N", show_default=False
        ),
    ] = None,
    parts: Parts = 2,
    partitioner: Partitioner = PartitionerName.hdrf,
    out: Annotated[
        Path,
        typer.Option(help="Folder for the picture, and for what Spark reads and writes.", metavar="FOLDER"),
    ] = Path("out"),
    seed: Seed = 0,
) -> None:
    """Run a synthetic stream, watch it, and check it.

    Communities that grow, with deletes, feature updates, bursts and some bad events. At the end every
    embedding is compared with recomputation from scratch (exit code 1 if they differ), the vertices that
    moved most are listed, and a picture is written to FOLDER/demo.png. On Spark, the stream, the table of
    embeddings and the checkpoint are in FOLDER/demo, for [bold]d3gnn verify[/bold] and for you to look at.

    [bold]Examples[/bold]

      d3gnn demo

      d3gnn demo --engine local --edges 1000000 --batch 10000 --parts 4 --out /tmp/demo --seed 3
    """
    with user_mistakes():
        from d3gnn.cli.demo.job import Job

        size = _BATCH[engine] if batch is None else batch
        job = Job.plan(edges=edges, batch=size, parts=parts, partitioner=partitioner.value, seed=seed)
        if parts < 1:
            raise ValueError(f"parts={parts}: at least 1, please")
        out.mkdir(parents=True, exist_ok=True)
    from d3gnn.bench.check import TOLERANCE
    from d3gnn.cli.demo.display import live, show_movers
    from d3gnn.cli.demo.picture import draw

    console = error_console()
    console.print(f"{job.model} on {job.parts} part(s), {len(job.stream):,} events, seed {seed}")
    with ExitStack() as stack:
        runner = _local(job, console) if engine is EngineName.local else _spark(job, out, console, stack)
        run = live(job, runner, console)
    show_movers(run.movers, console)
    with steps() as bars:
        compared = runner.compare(bars.step("recompute", len(job.stream)))
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
    if engine is EngineName.spark:
        console.print(f"again: d3gnn verify --checkpoint {out / 'demo' / 'checkpoint'}", soft_wrap=True)
    if not right:
        raise typer.Exit(1)


def _local(job: Job, console: Console) -> Engine:
    from d3gnn.cli.demo.local import LocalRun

    with user_mistakes():
        run = LocalRun(job)
    with saying(console, "compiling (the first time takes a minute) ..."):
        run.warm_up()
    return run


def _spark(job: Job, out: Path, console: Console, stack: ExitStack) -> Engine:
    """The job on Spark, which runs until the stack is closed."""
    from d3gnn.bench.warm_up import warm_up
    from d3gnn.cli.demo.spark import SparkRun
    from d3gnn.cli.spark import plain_errors, spark_session

    folder = (out / "demo").resolve()
    folder.mkdir(exist_ok=True)
    with saying(console, "compiling (the first time takes a minute) ..."):
        warm_up(job.model, job.stream.schema, job.parts, job.partitioner)
    log = folder / "spark.log"
    stack.enter_context(plain_errors(log))
    with saying(console, "starting Spark ..."):
        return SparkRun(job, folder, stack.enter_context(spark_session(log)))
