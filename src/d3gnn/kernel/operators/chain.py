"""The chain of operators that a model unrolls to: the one place that derives a dataflow from a model.

    Partition -> Vertex 0 -> Edge 1 -> Vertex 1 -> ... -> Edge L -> Vertex L [-> Edge L+1]

Edge 0, which counts degrees, runs before Vertex 0 in models that normalise by degree. Edge L+1 scores pairs
in models whose head needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from d3gnn.kernel.operators.base import OpenState, Operator, OperatorId
from d3gnn.kernel.operators.config import OperatorConfig
from d3gnn.kernel.operators.edge import Edge
from d3gnn.kernel.operators.input_vertex import InputVertex
from d3gnn.kernel.operators.layer_vertex import LayerVertex
from d3gnn.kernel.operators.output_vertex import OutputVertex
from d3gnn.kernel.operators.pairs import Pairs, Scored
from d3gnn.kernel.operators.sharing import Separate
from d3gnn.nn.heads import Head, PairHead
from d3gnn.nn.layer import Layer
from d3gnn.nn.model import GNN


@dataclass(frozen=True)
class ChainSpec:
    """The operators of a model, as plain values that travel with a query.

    >>> from d3gnn.nn import GNN, SAGEConv
    >>> chain = ChainSpec.of(GNN([SAGEConv(8, 16), SAGEConv(16, 4)]))
    >>> [str(operator) for operator in chain.operators]
    ['vertex-0', 'edge-1', 'vertex-1', 'edge-2', 'vertex-2']
    """

    layers: int
    #: Whether Edge 0 counts degrees.
    degrees: bool = False
    #: Whether values travel to the destinations of edges, too.
    destinations: bool = False
    #: Whether the head predicts something of each vertex.
    predicts: bool = False
    #: Whether the head scores pairs of vertices, at Edge L+1.
    pairs: bool = False

    @staticmethod
    def of(model: GNN) -> ChainSpec:
        """The chain of a model."""
        return ChainSpec(
            layers=len(model.layers),
            degrees=model.degrees is not None,
            destinations=model.reads_destinations,
            predicts=isinstance(model.head, Head),
            pairs=isinstance(model.head, PairHead),
        )

    @property
    def operators(self) -> tuple[OperatorId, ...]:
        """The operators behind Partition, in the order in which a batch passes them."""
        return (*self.inputs, *self.cascade)

    @property
    def inputs(self) -> tuple[OperatorId, ...]:
        """The operators that a host may run in Partition's task, since they see inputs only."""
        counts = (OperatorId("edge", 0),) if self.degrees else ()
        return (*counts, OperatorId("vertex", 0))

    @property
    def cascade(self) -> tuple[OperatorId, ...]:
        """The operators behind the inputs: Edge and Vertex of each layer, and Edge L+1 for pairs."""
        numbers = range(1, self.layers + 1)
        pairs = (OperatorId("edge", self.layers + 1),) if self.pairs else ()
        return (*(OperatorId(role, layer) for layer in numbers for role in ("edge", "vertex")), *pairs)

    @property
    def embeddings(self) -> OperatorId:
        """The operator that holds the embeddings: the last Vertex."""
        return OperatorId("vertex", self.layers)

    @property
    def output(self) -> OperatorId:
        """The operator whose blocks leave the chain."""
        return self.operators[-1]


def build_operator(
    id: OperatorId,
    model: GNN,
    config: OperatorConfig,
    open_state: OpenState,
    sharing: Separate | None = None,
) -> Operator[Any]:
    """One operator of a model's chain; its parts open their states by `open_state(id, part)`, and
    `sharing` is what the host lets them share: nothing, unless given.
    """
    sharing = sharing or Separate()
    chain, layer = ChainSpec.of(model), id.layer
    if id.role == "edge":
        if layer > chain.layers:
            assert isinstance(model.head, PairHead)
            return Pairs(id, model.head, model.out_channels, open_state, config, sharing)
        made = model.layers[layer - 1] if layer else model.degrees
        assert made is not None
        return Edge(id, made, open_state, config, sharing)
    scored = Scored(model.out_channels) if model.scores_edges else None
    layers: list[Layer | None] = [*model.layers, scored]
    following = layers[layer]
    if layer == 0:
        assert following is not None
        return InputVertex(id, following, open_state, config, degrees=chain.degrees)
    made = model.layers[layer - 1]
    near = sharing.near(layer, made, config)
    if id != chain.embeddings:
        return LayerVertex(id, made, following, open_state, config, near)
    head = model.head if isinstance(model.head, Head) else None
    emits = config.emit == "all" or not chain.pairs
    return OutputVertex(id, made, following, open_state, config, near, head, emits=emits)
