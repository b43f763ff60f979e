"""Values of vertices by id."""

from __future__ import annotations

import numpy as np

from d3gnn.events.keys import Keys
from d3gnn.kernel.operators import Partition, Vertex
from d3gnn.types import Bools, Floats


def vertex_values(partition: Partition, operator: Vertex, ids: Keys) -> tuple[Floats, Bools]:
    """The values that a Vertex operator holds of vertices, one row each, NaN for an id that does not exist;
    and which ids exist.
    """
    values = np.full((len(ids), operator.width), np.nan, np.float32)
    part, row = partition.locate(ids)
    for p in range(operator.parts):
        here = part == p
        if here.any():
            values[here] = operator.values(p, row[here])
    return values, part >= 0
