"""A stream cut into blocks of timed batches, and the embeddings expected after each block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from d3gnn.bench.live_graph import LiveGraph
from d3gnn.bench.workload import Workload
from d3gnn.events import Element, EventBatch
from d3gnn.events.keys import Keys
from d3gnn.nn import GNN
from d3gnn.oracle import forward
from d3gnn.types import Floats

#: Largest batch of the initial load, in events.
LOAD = 5_000_000
#: Batches of each block before its timed ones: arrays that the load has just filled grow in these.
SETTLE = 20
#: Smallest fraction of the stream that is loaded before the first block.
_LOADED_SHARE = 0.5
#: Rows that are compared at a time.
_COMPARED_ROWS = 1 << 16


class Block(NamedTuple):
    """Batches of one size: first `settle` untimed ones, then `timed` timed ones."""

    batch: int
    settle: int
    timed: int

    @property
    def batches(self) -> int:
        return self.settle + self.timed


def plan_blocks(workload: Workload, batches: Sequence[int], timed: int) -> list[Block]:
    """One block for each batch size, all in the last half of the stream; `timed` 0 chooses the number."""
    available = int(workload.events * (1 - _LOADED_SHARE)) // len(batches)
    blocks = []
    for batch in batches:
        most = available // batch
        if most < 1:
            raise ValueError(
                f"batch={batch}: half of the stream's {workload.events:,} events are loaded first, and "
                "the rest is too short for one batch of each size; take a longer stream or a smaller batch"
            )
        count = min(most, timed or min(200, max(10, 20_000 // batch)))
        blocks.append(Block(batch, min(most - count, SETTLE), count))
    return blocks


@dataclass(frozen=True)
class BlockStream:
    """A workload as an initial load of `stored` events, followed by blocks."""

    workload: Workload
    stored: int
    blocks: list[Block]

    def graph(self, model: GNN) -> LiveGraph:
        """The graph after the initial load."""
        graph = LiveGraph(self.workload.schema.for_model(model.in_channels))
        for batch in self.load():
            graph.apply(batch)
        return graph

    def load(self) -> Iterator[EventBatch]:
        """The batches of the initial load."""
        whole = self._whole()
        for begin in range(0, self.stored, LOAD):
            yield whole.between(begin, min(begin + LOAD, self.stored))

    def timed(self) -> Iterator[list[EventBatch]]:
        """The batches of each block, with the untimed ones."""
        whole, begin = self._whole(), self.stored
        for block in self.blocks:
            ends = range(begin + block.batch, begin + block.batch * block.batches + 1, block.batch)
            yield [whole.between(end - block.batch, end) for end in ends]
            begin = ends[-1]

    def first(self, batches: int) -> Iterator[EventBatch]:
        """The first events of the stream in small batches, for warm-up."""
        return islice(self.workload.batches(min(self.blocks[0].batch, 2000)), batches)

    def _whole(self) -> EventBatch:
        return next(self.workload.batches(self.workload.events))


def count_edges(batches: Iterable[EventBatch]) -> int:
    """The number of edge events in the batches."""
    return sum(int(np.count_nonzero(batch.element == Element.EDGE)) for batch in batches)


class ExpectedEmbeddings:
    """The vertices after each block, with their embeddings from a static forward pass.

    Embeddings are stored in files, because memory is scarce for large graphs.
    """

    def __init__(self, model: GNN, stream: BlockStream, folder: Path) -> None:
        self._folder = folder
        self._keys: list[Keys] = []
        graph = stream.graph(model)
        #: Edges and vertices before the first block.
        self.stored = (graph.edge_count, len(graph))
        for batches in stream.timed():
            for batch in batches:
                graph.apply(batch)
            np.save(self._path(len(self._keys)), forward(model, graph.inputs, graph.src, graph.dst))
            self._keys.append(graph.keys())

    def _path(self, block: int) -> Path:
        return self._folder / f"{block}.npy"

    def error(self, block: int, embeddings: Callable[[Keys, slice], Floats]) -> float:
        """The largest relative error after a block; `embeddings` returns those of the given ids and rows."""
        expected = np.load(self._path(block), mmap_mode="r")
        difference = largest = 0.0
        for begin in range(0, len(expected), _COMPARED_ROWS):
            rows = slice(begin, begin + _COMPARED_ROWS)
            got = embeddings(self._keys[block].take(np.arange(len(expected))[rows]), rows)
            if not np.isfinite(got).all():
                raise RuntimeError("some embeddings are missing, NaN or infinite")
            difference = max(difference, float(np.abs(got - expected[rows].astype(np.float64)).max()))
            largest = max(largest, float(np.abs(expected[rows]).max()))
        return difference / largest if largest else difference
