"""`d3gnn bench drift`: accuracy over time of models that are trained once, on drift, and periodically."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from d3gnn.cli import options as opt
from d3gnn.cli.bench.show import show
from d3gnn.cli.console import print_json, steps, user_mistakes


def drift(
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of pubmed-temporal; a random stream whose concept changes twice unless given.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    vertices: Annotated[int, typer.Option(help="Vertices of the random stream.", metavar="N")] = 6000,
    first: Annotated[int, typer.Option(help="Labels before the first training.", metavar="N")] = 500,
    every: Annotated[
        int, typer.Option(help="Labels between trainings of the periodic policy.", metavar="N")
    ] = 500,
    newest: Annotated[int, typer.Option(help="Labels that a later training uses.", metavar="N")] = 300,
    epochs: Annotated[int, typer.Option(help="Epochs of a training.", metavar="N")] = 40,
    plot: Annotated[
        Path | None,
        typer.Option(help="Write windowed accuracy as SVG.", metavar="FILE", show_default=False),
    ] = None,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Compare a model that is trained once with ones that are trained again: on drift, and periodically.

    Each label scores the prediction that was current when it arrived. The ceiling is the accuracy of a model
    that is trained on the final graph, on labels that it did not see.

    [bold]Example[/bold]

      d3gnn bench drift --plot drift.svg
    """
    with user_mistakes(ImportError, OSError, ValueError):
        from d3gnn.bench.drift import DriftSettings, measure_drift

        settings = DriftSettings(
            data, vertices=vertices, first=first, every=every, newest=newest, epochs=epochs, seed=seed
        )
    with user_mistakes(ImportError, OSError, ValueError), steps() as bars:
        result = measure_drift(settings, on_steps=bars.step("stream", settings.steps, "steps"))
    if plot is not None:
        from d3gnn.bench.report.line_chart import Line, draw_lines

        lines = [Line(name, name, name, points) for name, points in result.windowed.items() if points]
        ends = [points[-1][0] for points in result.windowed.values() if points]
        ceiling = [(float(settings.first), result.ceiling), (float(max(ends, default=1)), result.ceiling)]
        lines.append(Line("ceiling", "ceiling", "trained on the final graph", ceiling))
        plot.write_text(
            draw_lines(lines, f"Accuracy of the last {settings.window} labels", "labels", "accuracy")
        )
    if as_json:
        print_json(result.to_dict())
        return
    show(
        f"Accuracy on {result.labels:,} labels; trained on the final graph: {result.ceiling:.3f}",
        ["", "in total", "at the end", "trainings", "seconds"],
        [
            (
                name,
                f"{result.accuracy[name]:.3f}",
                f"{result.windowed[name][-1][1]:.3f}" if result.windowed[name] else "",
                str(result.trainings[name]),
                f"{result.training_seconds[name]:.1f}",
            )
            for name in result.accuracy
        ],
    )
