"""The operators of a model, behind Partition: Edge and Vertex in turns."""

from __future__ import annotations

from typing import Any

from d3gnn.events.schema import GraphSchema
from d3gnn.kernel.operators.base import Operator, Spaces
from d3gnn.kernel.operators.edge import Edge
from d3gnn.kernel.operators.vertex import Vertex
from d3gnn.kernel.windows import Window
from d3gnn.nn.layer import Layer
from d3gnn.nn.model import GNN


def names_of(layers: int, degrees: bool) -> list[str]:
    """The operators' names, in the order in which a batch passes them.

    >>> names_of(2, degrees=False)
    ['vertex-0', 'edge-1', 'vertex-1', 'edge-2', 'vertex-2']
    """
    numbers = range(layers + 1)
    names = [f"{kind}-{i}" for i in numbers for kind in ("edge", "vertex")]
    return names if degrees else names[1:]


def check_epsilon(epsilon: float) -> float:
    """Refuse what is no bound."""
    if not 0 <= epsilon < float("inf"):
        raise ValueError(f"epsilon={epsilon}: 0, which is exact, or a small number above it")
    return epsilon


def make_operator(
    name: str,
    model: GNN,
    parts: int,
    schema: GraphSchema,
    spaces: Spaces,
    windows: tuple[Window | None, Window | None],
    epsilon: float = 0.0,
) -> Operator[Any]:
    """One of them, by name; `windows` are those of Edge and of Vertex operators."""
    kind, number = name.split("-")
    index, (reduce, forward) = int(number), windows
    if kind == "vertex":
        layers: list[Layer | None] = [None, *model.layers, None]
        degrees = index == 0 and model.degrees is not None
        return Vertex(
            index, parts, schema, layers[index], layers[index + 1], spaces, forward, degrees, epsilon
        )
    if index > 0:
        return Edge(index, parts, model.layers[index - 1], spaces, reduce)
    assert model.degrees is not None
    return Edge(0, parts, model.degrees, spaces, reduce)
