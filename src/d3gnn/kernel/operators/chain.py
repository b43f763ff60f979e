"""The operators of a model, behind Partition: Edge and Vertex in turns."""

from __future__ import annotations

from typing import Any

from d3gnn.events.schema import GraphSchema
from d3gnn.kernel.alerts import Alerts
from d3gnn.kernel.operators.base import Operator, Spaces
from d3gnn.kernel.operators.edge import Edge
from d3gnn.kernel.operators.pairs import Pairs, Scored
from d3gnn.kernel.operators.vertex import Vertex
from d3gnn.kernel.windows import Window
from d3gnn.nn.heads import Classifier, Head, PairHead
from d3gnn.nn.layer import Layer
from d3gnn.nn.model import GNN


def names_of(layers: int, degrees: bool, pairs: bool = False) -> list[str]:
    """The operators' names, in the order in which a batch passes them.

    >>> names_of(2, degrees=False)
    ['vertex-0', 'edge-1', 'vertex-1', 'edge-2', 'vertex-2']
    """
    numbers = range(layers + 1)
    names = [f"{kind}-{i}" for i in numbers for kind in ("edge", "vertex")]
    return names[0 if degrees else 1 :] + ([f"edge-{layers + 1}"] if pairs else [])


def check_head(model: GNN, schema: GraphSchema) -> None:
    """Refuse scores of edges that cannot be told apart when one of them goes."""
    if model.scores_edges and schema.edges in ("multi", "keyed"):
        raise ValueError(
            f"edges='{schema.edges}': parallel edges have one score, and whether one is left when another "
            "goes is not known where they are scored. Take edges='simple' or 'append', or a head with "
            "edges=False, which answers queries"
        )


def check_epsilon(epsilon: float) -> float:
    """Refuse what is no bound."""
    if not 0 <= epsilon < float("inf"):
        raise ValueError(f"epsilon={epsilon}: 0, which is exact, or a small number above it")
    return epsilon


def check_alerts(alerts: Alerts | None, model: GNN) -> Alerts | None:
    """Refuse alerts of which the model says nothing."""
    if alerts is None:
        return None
    if model.head is None:
        raise ValueError("alerts need a head that says something: GNN(layers, head=Classifier(net))")
    if (alerts.classes or alerts.changed_class) and not isinstance(model.head, Classifier):
        raise ValueError("classes and changed_class are for a Classifier; a threshold is for any head")
    return alerts


def make_operator(
    name: str,
    model: GNN,
    parts: int,
    schema: GraphSchema,
    spaces: Spaces,
    windows: tuple[Window | None, Window | None],
    epsilon: float = 0.0,
    alerts: Alerts | None = None,
    tells_vertices: bool = True,
) -> Operator[Any]:
    """One of them, by name; `windows` are those of Edge and of Vertex operators.

    `tells_vertices` is whether updates of vertices come out where the model's head is for pairs.
    """
    kind, number = name.split("-")
    index, (reduce, forward) = int(number), windows
    is_last, pairs = index == len(model.layers), isinstance(model.head, PairHead)
    if kind == "vertex":
        scored = Scored(model.out_width) if model.scores_edges else None
        layers: list[Layer | None] = [None, *model.layers, scored]
        degrees = index == 0 and model.degrees is not None
        head = model.head if is_last and isinstance(model.head, Head) else None
        return Vertex(
            index, parts, schema, layers[index], layers[index + 1], spaces, forward, degrees, epsilon, head,
            alerts if head else None, tells_vertices or not pairs,
        )  # fmt: skip
    if index > len(model.layers):
        assert isinstance(model.head, PairHead)
        return Pairs(index, model.head, model.out_width, spaces, alerts)
    if index > 0:
        return Edge(index, parts, model.layers[index - 1], spaces, reduce)
    assert model.degrees is not None
    return Edge(0, parts, model.degrees, spaces, reduce)
