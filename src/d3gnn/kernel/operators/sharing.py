"""What the operators of a chain share: a host chooses, the operators do not know.

Where operators run in different tasks, each keeps everything that it needs (`Separate`). Where the operators
of a part run one after the other in one process, they share what they would all keep (`Shared`): the edges of
the part, and the values of a layer's input. See docs/adr/0023-one-adjacency-per-part.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from d3gnn.kernel.operators.base import OpenState, OperatorId
from d3gnn.kernel.operators.config import OperatorConfig
from d3gnn.kernel.operators.part_graph import ChangedGraph, FollowedGraph, PartGraph
from d3gnn.kernel.part_state import PartState
from d3gnn.nn.layer import Layer

#: Where operators of one process keep the edges that they share, by whether self-loops are left out.
ADJACENCIES = {False: OperatorId("adjacency"), True: OperatorId("adjacency-without-loops")}

#: Opens the edges of a part for an operator, given the operator's own state of the part.
OpenGraph = Callable[[PartState, int], PartGraph]
#: Opens the state of a part that another operator keeps.
OpenOther = Callable[[int], PartState]


class Near(NamedTuple):
    """Where a Vertex reads what it would otherwise be sent, and keep; None for what is sent."""

    #: Vertex l-1, whose values are the roots of layer l.
    roots: OpenOther | None = None
    #: Edge l of the only part, whose states are the partials.
    partials: OpenOther | None = None


#: A Vertex that is sent everything.
APART = Near()


class Separate:
    """Each operator keeps what it needs in its own state."""

    def graph(self, skips_self_loops: bool) -> OpenGraph:
        """How the next operator of the chain opens the edges of a part."""
        return lambda part_state, _: ChangedGraph(part_state, skips_self_loops)

    def near(self, number: int, layer: Layer, config: OperatorConfig) -> Near:
        """What the Vertex of a layer, or of the input (0), reads in the states of other operators."""
        return APART


class Shared(Separate):
    """Operators share the edges of a part: those that leave self-loops out, and those that keep them. Roots
    are read where they are made.

    Each part must run the operators in the order of the chain, all of them in every batch.
    """

    def __init__(self, open_state: OpenState) -> None:
        self._open_state = open_state
        self._changed: dict[bool, dict[int, ChangedGraph]] = {}

    def graph(self, skips_self_loops: bool) -> OpenGraph:
        is_first = skips_self_loops not in self._changed
        changed = self._changed.setdefault(skips_self_loops, {})

        def find(_: PartState, part: int) -> PartGraph:
            # Operators are asked for their states in any order, and again when files were opened again.
            state, found = self._open_state(ADJACENCIES[skips_self_loops], part), changed.get(part)
            if found is None or found.adjacency.part_state is not state:
                found = changed[part] = ChangedGraph(state, skips_self_loops)
            return found if is_first else FollowedGraph(found)

        return find

    def near(self, number: int, layer: Layer, config: OperatorConfig) -> Near:
        roots = partials = None
        # The value of a master is what was sent last. Only the input changes before its window sends it.
        is_sent = number > 1 or config.forward is None
        if number and is_sent and layer.sends_input and layer.root_width == layer.message_width:
            roots = partial(self._open_state, OperatorId("vertex", number - 1))
        # Without a window, a partial is sent whenever a state changes; that of the only part is the state.
        if number and config.parts == 1 and config.reduce is None:
            partials = partial(self._open_state, OperatorId("edge", number))
        return Near(roots, partials)
