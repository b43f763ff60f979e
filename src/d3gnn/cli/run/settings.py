"""The graph's schema, the model and the alerts of a run, from the options and the inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from d3gnn.cli.run.recall import SCHEMA_KEY
from d3gnn.events import EdgeMode, GraphSchema
from d3gnn.sources import EdgeListError
from d3gnn.sources.files import Found
from d3gnn.store.store import SETTINGS, Store

if TYPE_CHECKING:
    from d3gnn.kernel.alerts import Alerts
    from d3gnn.nn import GNN

_HIDDEN_WIDTHS = (64, 32)
_DEFAULT_WIDTH = 16


def graph_schema(
    found: Mapping[str, Found],
    edges: str | None,
    undirected: bool,
    features: Mapping[str, int],
    edge_features: Mapping[str, int],
    label_width: int | None,
    missing: Any,
    *,
    limits: Mapping[str, Any],
    lifetimes: Mapping[str, str | None],
) -> GraphSchema:
    """From the options; what they leave open, from the metadata of a Parquet file and the values found."""
    if missing == "mean":
        raise ValueError("--missing mean is for d3gnn fork, which has a graph to take the mean of")
    schema = _schema_of_files(found)
    if edges is None and schema.edges == "simple" and any("key" in of.files.roles for of in found.values()):
        edges = "keyed"
    in_labels = found["labels"].width if "labels" in found else 0
    if missing is None:
        has_values = any(of.width for name, of in found.items() if name != "labels")
        missing = schema.missing or ("zero" if features or schema.features or has_values else None)
    lives: dict[str, Any] = {name: given or getattr(schema, name) for name, given in lifetimes.items()}
    return replace(
        schema,
        edges=cast(EdgeMode, edges) if edges else schema.edges,
        directed=schema.directed and not undirected,
        features=features or schema.features,
        edge_features=edge_features or schema.edge_features,
        label_width=label_width or in_labels or schema.label_width,
        missing=missing,
        **lives,
        **limits,
    )


def limits_of(max_abs: float | None, max_ahead: str | None) -> dict[str, Any]:
    """The limits of the schema that the options set."""
    given = {"max_abs": max_abs, "max_ahead": max_ahead}
    return {name: None if limit == "none" else limit for name, limit in given.items() if limit is not None}


def with_stored(missing: Any, features: Mapping[str, int], uri: str) -> tuple[Any, Mapping[str, int]]:
    """The rule for missing features, from the option or else from the store, if it exists; and the vertex
    features, which come from the store as well if the rule has numbers for them.
    """
    store = Store(uri)
    if missing is not None or not store.exists(SETTINGS):
        return missing, features
    stored = store.settings["schema"]
    rule = stored["missing"]
    return rule, features or (stored["features"] if isinstance(rule, Mapping) else features)


def _schema_of_files(found: Mapping[str, Found]) -> GraphSchema:
    for of in found.values():
        if (stored := of.metadata.get(SCHEMA_KEY)) is not None:
            try:
                return GraphSchema(**json.loads(stored))
            except (TypeError, ValueError) as error:
                raise EdgeListError(f"{of.files.path} has an unreadable graph schema: {error}") from error
    return GraphSchema()


def make_model(
    model: Path | None,
    widths: str | None,
    aggregator: str | None,
    seed: int | None,
    schema: GraphSchema,
    found: Mapping[str, Found],
) -> GNN:
    """A model from its file, or a GraphSAGE from the options, as wide as the features."""
    from d3gnn.nn import GNN
    from d3gnn.nn.models import sage_from_widths

    in_inputs = next((of.width for name, of in found.items() if name != "labels" and of.width), 0)
    if model is not None:
        if widths or aggregator or seed is not None:
            raise ValueError(f"--model {model} has its own widths and weights; leave out the other options")
        made = GNN.load(model)
    else:
        numbers = (
            _widths(widths) if widths else [schema.width or in_inputs or _DEFAULT_WIDTH, *_HIDDEN_WIDTHS]
        )
        made = sage_from_widths(numbers, aggregator or "mean", seed=seed or 0)
    if not schema.features and in_inputs and made.in_channels != in_inputs:
        what = f"--model {model}" if model is not None else f"--widths {widths}"
        raise ValueError(
            f"{what}: the model takes {made.in_channels} inputs, but the first value of a vertex has "
            f"{in_inputs} numbers; both must be equal"
        )
    return made


def _widths(text: str) -> list[int]:
    try:
        return [int(width) for width in text.split(",")]
    except ValueError:
        raise ValueError(f"--widths {text}: must be integers separated by commas, as in 16,64,32") from None


def make_alerts(threshold: float | None, classes: str | None, changed_class: bool) -> Alerts | None:
    """The filter of predictions; None for all of them."""
    from d3gnn.kernel.alerts import Alerts

    if threshold is None and classes is None and not changed_class:
        return None
    try:
        numbers = None if classes is None else [int(number) for number in classes.split(",")]
    except ValueError:
        raise ValueError(f"--classes {classes}: must be class numbers from 0, as in 1,2") from None
    return Alerts(threshold, numbers, changed_class)
