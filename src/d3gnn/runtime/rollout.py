"""Model rollout: another version of the model for a pipeline, also while its query runs.

The chain of operators is part of the plan that runs on Spark, so a running query takes models with the same
chain only. Widths behind the input, weights, kinds of layers and aggregators may all differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from d3gnn.kernel.operators import ChainSpec, OperatorConfig
from d3gnn.nn.heads import Classifier
from d3gnn.nn.model import GNN
from d3gnn.runtime.plan import plugins_of
from d3gnn.store.control import command
from d3gnn.store.deployments import Deployment, deploy_version, last_deployment, start_with
from d3gnn.store.models import ModelVersion, find_model, get_model, put_model
from d3gnn.store.store import Store


class ModelMismatch(ValueError):
    """A model cannot replace the one of a running query; the message says what differs."""


def deploy(store: Store, model: GNN | int | str, name: str | None = None) -> ModelVersion:
    """Make a model, or a version that the store has, the current one; see `PipelineCommands.deploy`."""
    last = last_deployment(store)
    if last is None:
        raise FileNotFoundError(f"the store {store.uri} has no model: no pipeline has started on it")
    if isinstance(model, int | str):
        if name is not None:
            raise ValueError("name= is for a new model; a version of the store has its name")
        chosen = find_model(store, model)
        _check(store, last, get_model(store, chosen.path), chosen.name)
    else:
        _check(store, last, GNN.check(model), "the model")
        _, version = put_model(store, model, name)
        chosen = find_model(store, version)
    deploy_version(store, chosen.version)
    # Sent also if this version is the current one: a deploy may have died before it sent its command.
    command(f"{store.uri}/control", "deploy")
    return chosen


def current_model(store: Store) -> ModelVersion:
    """The version that was deployed last."""
    last = last_deployment(store)
    if last is None:
        raise FileNotFoundError(f"the store {store.uri} has no model: no pipeline has started on it")
    return find_model(store, last.model)


def started_with(store: Store, given: int, model: GNN, config: OperatorConfig) -> Deployment:
    """The deployment that counts for a start of a pipeline with this model; see `d3gnn.store.deployments`."""
    plugins = tuple(f"{each.__module__}.{each.__qualname__}" for each in plugins_of(model))
    alerts = config.alerts
    by_class = alerts is not None and (alerts.classes is not None or alerts.changed_class)
    started = start_with(store, given, plugins, by_class=by_class)
    if started.model != given:
        current = find_model(store, started.model)
        _check(store, started, get_model(store, current.path), current.name)
    return started


def _check(store: Store, deployed: Deployment, new: GNN, name: str) -> None:
    """Check that a model fits into the chain of operators of the last start."""
    given = find_model(store, deployed.given)
    running = get_model(store, given.path)
    differences = [*_differences(running, new, deployed)]
    if differences:
        raise ModelMismatch(
            f"{name} cannot replace version {given.version} ({given.name}) in a running query: "
            f"{'; '.join(differences)}. Stop the query, and start it with the new model: it rebuilds all "
            "state from the graph log. (The input of a graph is fixed: another width needs another store.)"
        )


def _differences(running: GNN, new: GNN, deployed: Deployment) -> Iterator[str]:
    texts: dict[str, Any] = {
        "layers": "layers",
        "degrees": "layers that normalise by degrees",
        "destinations": "messages that depend on the destination, or scores of edges",
        "predicts": "a head for vertices",
        "pairs": "a head for pairs",
    }
    ours, theirs = ChainSpec.of(running), ChainSpec.of(new)
    for field, text in texts.items():
        mine, other = getattr(ours, field), getattr(theirs, field)
        if mine != other:
            yield (
                f"it has {other} {text}, not {mine}"
                if field == "layers"
                else (f"it {'has' if other else 'lacks'} {text}")
            )
    if new.in_channels != running.in_channels:
        yield f"it takes {new.in_channels} numbers per vertex, not {running.in_channels}"
    if new.edge_dim not in (0, running.edge_dim):
        yield f"it takes {new.edge_dim} numbers per edge, not {running.edge_dim}"
    if new.scores_edges != running.scores_edges and theirs.pairs:
        yield f"its head {'scores' if new.scores_edges else 'does not score'} edges"
    if deployed.by_class and not isinstance(new.head, Classifier):
        yield "the alerts need a Classifier as its head"
    unknown = {f"{each.__module__}.{each.__qualname__}" for each in plugins_of(new)} - {*deployed.plugins}
    if unknown:
        yield f"its class {', '.join(sorted(unknown))} did not come to the workers with the query"
