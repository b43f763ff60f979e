"""Synthetic streams of any size, reproducible from a seed, with all kinds of events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from d3gnn.events import EventBatch, GraphSchema
from d3gnn.sources.rebatch import rebatch
from d3gnn.sources.synthetic_chunks import ChunkMaker, share_of
from d3gnn.types import Array, Ints

Shape: TypeAlias = Literal["power-law", "communities", "hubs", "capped", "rmat"]

#: Edges in a chunk. Another size is another stream for the same seed.
_CHUNK = 1 << 14
_SHARES = ("deletes", "vertex_deletes", "feature_updates", "bursts", "bad", "late")


@dataclass(frozen=True)
class SyntheticStream:
    """Events of a growing graph. The same arguments make the same events, for all batch sizes.

    edges, vertices:
        Edges to create, and vertices, which appear with them evenly over the stream.
    shape:
        `power-law`: older vertices have more edges. `communities`: the same, and most edges connect vertices
        of the same of `communities` groups, whose features are similar. `hubs`: half of all edges have one of
        `hubs` vertices as an end. `rmat`: a recursive matrix (0.57, 0.19, 0.19, 0.05), whose hubs are
        connected. `capped`: no vertex has more than `max_degree` edges in, or out; degrees do not depend on
        the length of the stream.
    deletes, vertex_deletes, feature_updates, bad:
        Further events of these kinds, as a share of the edges. A delete removes an edge that was created
        before it. Bad events cover all reasons for which a single row can be bad.
    features:
        Whether every vertex gets a feature `x`, in an event of its own.
    bursts:
        Share of the time in which edges come much faster, many of them into one vertex.
    late:
        Share of the events whose time is a few seconds too old; all others are in the order of their times.

    Memory does not grow with the stream, except for two counts per vertex with the shape `capped`.

    >>> stream = SyntheticStream(edges=100, vertices=20, deletes=0.1, seed=3)
    >>> len(stream), [len(batch) for batch in stream.batches(50)]
    (110, [50, 50, 10])
    """

    edges: int
    #: 0 chooses a number: a tenth of the edges, or for `capped` what keeps degrees well below the cap.
    vertices: int = 0
    seed: int = 0
    shape: Shape = "power-law"
    max_degree: int = 16
    communities: int = 8
    hubs: int = 10
    deletes: float = 0.0
    vertex_deletes: float = 0.0
    feature_updates: float = 0.0
    bursts: float = 0.0
    bad: float = 0.0
    late: float = 0.01
    features: bool = False
    feature_width: int = 16
    undirected: bool = False

    def __post_init__(self) -> None:
        if self.shape not in get_args(Shape):
            raise ValueError(f"shape={self.shape!r}: choose one of {', '.join(get_args(Shape))}")
        for name in ("edges", "communities", "hubs", "feature_width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed}: must be at least 0")
        if self.max_degree < 2:
            raise ValueError(f"max_degree={self.max_degree}: must be at least 2")
        for name in _SHARES:
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name}={getattr(self, name)}: must be a share of the edges, from 0 to 1")
        self._settle_vertices()

    def _settle_vertices(self) -> None:
        most = self.edges + 1
        if self.vertices == 0:
            edges_each = max(1, self.max_degree // 4) if self.shape == "capped" else 10
            object.__setattr__(self, "vertices", min(most, max(2, self.edges // edges_each)))
        if not 2 <= self.vertices <= most:
            raise ValueError(
                f"vertices={self.vertices}: from 2 to {most}; each comes with one of the {self.edges} edges"
            )
        if self.shape == "capped" and 2 * self.edges > self.vertices * self.max_degree:
            raise ValueError(
                f"{self.edges} edges over {self.vertices} vertices leave no room under max_degree="
                f"{self.max_degree}: give at least {-(-2 * self.edges // self.max_degree)} vertices"
            )

    def __len__(self) -> int:
        """The number of events."""
        more = (self.deletes, self.vertex_deletes, self.feature_updates, self.bad)
        return (
            self.edges
            + sum(share_of(0, self.edges, share) for share in more)
            + (self.vertices if self.features else 0)
        )

    @property
    def has_values(self) -> bool:
        """Whether some events have values."""
        return bool(self.features or self.feature_updates or self.bad)

    @property
    def schema(self) -> GraphSchema:
        """The schema of the graph: a multigraph, with a feature `x` if events have values."""
        features = {"x": self.feature_width} if self.has_values else {}
        # Without --features, only vertices with an update have features: zeros would make models too cheap.
        return GraphSchema(edges="multi", directed=not self.undirected, features=features, missing="hash")

    def community(self, ids: Array) -> Ints:
        """The community of each vertex, for the shape `communities`."""
        groups: Ints = np.asarray(ids, np.int64) % min(self.communities, self.vertices)
        return groups

    def batches(self, size: int) -> Iterator[EventBatch]:
        """The events, `size` at a time; the last batch may be smaller."""
        maker = ChunkMaker(self)
        chunks = (
            maker.chunk(first, min(_CHUNK, self.edges - first)) for first in range(0, self.edges, _CHUNK)
        )
        return rebatch(chunks, size)
