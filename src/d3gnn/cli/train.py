"""`d3gnn train`: train the model of a pipeline on its graph log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from d3gnn.cli import options as opt
from d3gnn.cli.console import error_console, print_json, user_mistakes

if TYPE_CHECKING:
    from d3gnn.training.loop import Epoch


def train(
    store: Annotated[
        Path,
        typer.Option(
            "--store", "--checkpoint", help="Store of the pipeline, or its checkpoint.", metavar="DIR"
        ),
    ],
    epochs: Annotated[int, typer.Option(help="Passes over the labels.", metavar="N")] = 50,
    lr: Annotated[float, typer.Option(help="Learning rate of Adam.", metavar="X")] = 0.01,
    weight_decay: Annotated[float, typer.Option(help="Weight decay.", metavar="X")] = 0.0,
    batch_size: Annotated[
        int | None, typer.Option(help="Labels in a step; all by default.", metavar="N", show_default=False)
    ] = None,
    dropout: Annotated[float, typer.Option(help="Dropout between layers.", metavar="X")] = 0.0,
    loss: Annotated[
        str | None,
        typer.Option(
            help="classification or regression. Default: as the model's head.",
            metavar="LOSS",
            show_default=False,
        ),
    ] = None,
    balanced: Annotated[
        bool, typer.Option("--balanced", help="Let each class count the same in sum.")
    ] = False,
    test: Annotated[float, typer.Option(help="Share of labels for testing only.", metavar="X")] = 0.0,
    test_column: Annotated[
        int | None,
        typer.Option(
            help="Place of the label's number that marks test labels.", metavar="N", show_default=False
        ),
    ] = None,
    holdout: Annotated[float, typer.Option(help="Share of labels held out.", metavar="X")] = 0.1,
    patience: Annotated[
        int | None,
        typer.Option(
            help="Stop after so many epochs without a better score on the held-out labels.",
            metavar="N",
            show_default=False,
        ),
    ] = None,
    keep_worse: Annotated[
        bool,
        typer.Option("--keep-worse", help="Keep a model that scores worse on the held-out labels, too."),
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Name of the new version.", metavar="NAME", show_default=False)
    ] = None,
    deploy: Annotated[bool, typer.Option("--deploy", help="Switch the pipeline to the new version.")] = False,
    seed: opt.Seed = 0,
    json: opt.Json = False,
) -> None:
    """Train the current model of a pipeline on the graph in its log, and add it as a new version.

    The pipeline may run meanwhile. A model that scores worse than the current one on the held-out labels is
    not kept (exit code 1), unless asked for.

    [bold]Examples[/bold]

      d3gnn train --store checkpoint --epochs 100 --patience 10

      d3gnn train --store checkpoint --deploy
    """
    with user_mistakes():
        from d3gnn.runtime.offline_training import train_store
        from d3gnn.store.graph_log import open_store
        from d3gnn.store.store import StoreError
        from d3gnn.training.settings import Training

    with user_mistakes(OSError, ValueError, StoreError):
        chosen: Any = loss
        settings = Training(
            loss=chosen, epochs=epochs, lr=lr, weight_decay=weight_decay, batch_size=batch_size,
            dropout=dropout, class_weights="balanced" if balanced else None, test=test,
            test_column=test_column, holdout=holdout, patience=patience, keep_worse=keep_worse, seed=seed,
        )  # fmt: skip
        console = error_console()
        with console.status("training") as status:

            def progress(epoch: Epoch) -> None:
                held = "" if epoch.holdout is None else f", held out {epoch.holdout:.4f}"
                scores = f"score {epoch.score:.4f}{held}"
                status.update(f"epoch {epoch.number}: loss {epoch.loss:.4f}, {scores}")

            done = train_store(
                open_store(store.resolve()), settings, name=name, deploys=deploy, progress=progress
            )
    trained, version = done.trained, done.version
    if json:
        print_json(
            {
                "command": "train",
                "parent": done.parent.version,
                "version": None if version is None else version.version,
                "deployed": deploy and version is not None,
                "trained_on": trained.trained_on,
                "held_out": trained.held_out,
                "tested_on": trained.tested_on,
                "before": trained.before,
                "after": trained.after,
                "test": trained.test,
                "seconds": trained.seconds,
                "epochs": [epoch._asdict() for epoch in trained.epochs],
            }
        )
    else:
        scores = f"score {trained.before:.4f} before, {trained.after:.4f} after"
        what = (
            "not kept, since it is worse"
            if version is None
            else f"version {version.version} ({version.name})"
        )
        console.print(f"{trained.trained_on} labels, {len(trained.epochs)} epochs, {scores}: {what}")
    if version is None:
        raise typer.Exit(1)
