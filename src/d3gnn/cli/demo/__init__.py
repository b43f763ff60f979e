"""`d3gnn demo`: a synthetic stream with live progress, a check and a picture."""

from __future__ import annotations

from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from d3gnn.cli.console import error_console, status, steps, user_mistakes
from d3gnn.cli.options import EngineName, Partitioner, PartitionerName, Parts, Seed

if TYPE_CHECKING:
    from d3gnn.bench.check import Comparison
    from d3gnn.cli.demo.job import Engine, Job, Run

__all__ = ["demo"]

#: Events per batch. The smallest batch takes Spark a third of a second, so it gets larger ones.
_BATCH = {EngineName.local: 2000, EngineName.spark: 20_000}


def demo(
    edges: Annotated[int, typer.Option(help="Edges in the stream.", metavar="N")] = 200_000,
    engine: Annotated[
        EngineName, typer.Option(help="Spark in this process, or LocalEngine without Spark.")
    ] = EngineName.spark,
    batch: Annotated[
        int | None,
        typer.Option(
            help="Events per batch. Default: 20000 on Spark, else 2000.",
            metavar="N",
            show_default=False,
        ),
    ] = None,
    parts: Parts = 2,
    partitioner: Partitioner = PartitionerName.hdrf,
    out: Annotated[
        Path,
        typer.Option(help="Folder for the picture and the data.", metavar="DIR"),
    ] = Path("out"),
    seed: Seed = 0,
) -> None:
    """Run a synthetic stream with live progress, and verify the result.

    The stream has growing communities, deletes, feature updates, bursts and some bad events. At the end every
    embedding is compared with recomputation from scratch (exit code 1 if they differ), and the vertices that
    moved most are listed. A picture is written to DIR/demo.png if matplotlib is installed. With Spark, the
    stream, the output table and the checkpoint are kept in DIR/demo.

    [bold]Examples[/bold]

      d3gnn demo

      d3gnn demo --engine local --edges 1000000 --batch 10000 --parts 4 --out /tmp/demo --seed 3
    """
    with user_mistakes():
        from d3gnn.cli.demo.job import Job

        size = _BATCH[engine] if batch is None else batch
        job = Job.plan(edges=edges, batch=size, parts=parts, partitioner=partitioner.value, seed=seed)
        if parts < 1:
            raise ValueError(f"parts={parts}: must be at least 1")
        out.mkdir(parents=True, exist_ok=True)
    from d3gnn.bench.check import TOLERANCE
    from d3gnn.cli.demo.display import live, show_movers

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
    _draw(job, run, compared, out / "demo.png", console)
    if engine is EngineName.spark:
        console.print(f"next: d3gnn verify --checkpoint {out / 'demo' / 'checkpoint'}", soft_wrap=True)
    if not right:
        raise typer.Exit(1)


def _draw(job: Job, run: Run, compared: Comparison, picture: Path, console: Console) -> None:
    """Write the picture, or print how to get it."""
    if find_spec("matplotlib") is None:
        console.print("no picture: matplotlib is not installed (pip install 'd3gnn[plot]')", markup=False)
        return
    from d3gnn.cli.demo.picture import draw

    with user_mistakes(OSError):
        draw(job, run, compared, picture)
    console.print(f"picture: {picture}", soft_wrap=True)


def _local(job: Job, console: Console) -> Engine:
    from d3gnn.cli.demo.local import LocalRun

    with user_mistakes():
        run = LocalRun(job)
    with status(console, "compiling (the first time takes a minute) ..."):
        run.warm_up()
    return run


def _spark(job: Job, out: Path, console: Console, stack: ExitStack) -> Engine:
    """The job on Spark, whose session ends with the stack."""
    from d3gnn.bench.warm_up import warm_up
    from d3gnn.cli.demo.spark import SparkRun
    from d3gnn.cli.spark import plain_errors, spark_session

    folder = (out / "demo").resolve()
    folder.mkdir(exist_ok=True)
    with status(console, "compiling (the first time takes a minute) ..."):
        warm_up(job.model, job.stream.schema, job.parts, job.partitioner)
    log = folder / "spark.log"
    stack.enter_context(plain_errors(log))
    with status(console, "starting Spark ..."):
        return SparkRun(job, folder, stack.enter_context(spark_session(log)))
