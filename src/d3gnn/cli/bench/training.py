"""`d3gnn bench training`: an epoch of full-graph training, compared with DGL and PyG."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from d3gnn.cli import options as opt
from d3gnn.cli.bench.show import show
from d3gnn.cli.console import print_json, steps, user_mistakes


def training(
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of ogbn-arxiv; a random graph unless given.", metavar="DIR", show_default=False
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Number of timed rounds.", metavar="N")] = 5,
    parts: opt.Parts = 1,
    width: opt.Width = 64,
    threads: opt.Threads = 2,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Compare an epoch of full-graph training with DGL and PyG, which take turns.

    All train the same two-layer GraphSAGE with the same weights, labels and threads. The losses of all rounds
    are compared, too.

    [bold]Example[/bold]

      d3gnn bench training --data ogbn-arxiv --json
    """
    with user_mistakes(ImportError, OSError, ValueError):
        from d3gnn.bench.training import TrainingSettings, measure_training

        settings = TrainingSettings(data, rounds=rounds, parts=parts, width=width, threads=threads, seed=seed)
    with user_mistakes(ImportError, OSError, ValueError), steps() as bars:
        result = measure_training(settings, on_rounds=bars.step("train", rounds + 2, "rounds"))
    if as_json:
        print_json(result.to_dict())
        return
    show(
        f"An epoch on {result.edges:,} edges, {threads} threads",
        ["", "elapsed", "CPU time", "d3gnn / it"],
        [
            (
                name,
                f"{result.seconds[name]:.3f} s",
                f"{result.cpu_seconds[name]:.3f} s",
                f"{result.ratio[name]:.2f}" if name in result.ratio else "",
            )
            for name in result.seconds
        ],
    )
