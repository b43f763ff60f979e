"""Delta propagation in the style of RIPPLE.

Naman, Simmhan: RIPPLE: Scalable Incremental GNN Inferencing on Large Streaming Graphs, 2025. This is a
re-implementation of the idea, not the authors' code.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from d3gnn.bench.live_graph import Change, LiveGraph
from d3gnn.bench.peers.base import Peer
from d3gnn.bench.peers.blocks import block_of
from d3gnn.kernel.arrays import GrowableArray
from d3gnn.kernel.compiled import compiled, lean
from d3gnn.kernel.part_state import PartState
from d3gnn.nn import GNN
from d3gnn.types import Doubles, Floats, Ints, Ints32, Small

#: Largest number of edges changed since the index was built, as a fraction of all edges; above it, rebuild.
_TAIL_SHARE = 1 / 64
_SHORTEST_TAIL = 1024


class Ripple(Peer):
    """Stores the values and message sums of every layer; propagates differences along out-edges."""

    name = "ripple"
    needs = "torch"
    recomputes_all = False

    def __init__(self, model: GNN, graph: LiveGraph) -> None:
        super().__init__(model, graph)
        space = PartState()
        self._values = [
            space.array(f"values_{i}", np.float32, width)
            for i, width in enumerate([model.in_channels, *(layer.out_width for layer in self.layers)])
        ]
        #: The last messages sent; retracting one subtracts exactly what was added.
        self._sent = [
            value if layer.sends_input else space.array(f"sent_{i}", np.float32, layer.message_width)
            for i, (layer, value) in enumerate(zip(self.layers, self._values, strict=False))
        ]
        self._sums = [
            space.array(f"sums_{i}", np.float64, layer.message_width) for i, layer in enumerate(self.layers)
        ]
        self._degrees = space.array("degrees", np.int64)
        self._mark = space.array("mark", np.int64)
        self._arrays = [*self._values, *self._sent, *self._sums, self._degrees, self._mark]

    def load(self) -> None:
        graph, n = self.graph, len(self.graph)
        self._reserve(n + n // 2)
        self._out = _OutEdges(graph)
        block = block_of(graph.src, graph.dst, n, n)
        self._degrees.data[:n] = np.diff(block.begins)
        self._values[0].data[:n] = graph.inputs
        all_rows = np.arange(n)
        with torch.inference_mode():
            for i, layer in enumerate(self.layers):
                if not layer.sends_input:
                    self._sent[i].data[:n] = layer.message(torch.from_numpy(self._values[i].data[:n])).numpy()
                self._sums[i].data[:n] = 0.0
                _sum_up(block.begins, block.sources, self._sent[i].data, self._sums[i].data)
                self._values[i + 1].data[:n] = self._update(i, all_rows).numpy()
        # An empty change compiles the kernels that later batches need.
        none = all_rows[:0]
        self.apply(Change(none, none, none, none, none, n))

    def apply(self, change: Change) -> None:
        self._reserve(len(self.graph))
        self._out.apply(change)
        np.add.at(self._degrees.data, change.added_dst, 1)
        np.subtract.at(self._degrees.data, change.removed_dst, 1)
        rows = change.inputs
        with torch.inference_mode():
            x = torch.from_numpy(self.graph.inputs[rows])
            for i in range(len(self.layers)):
                rows = self._propagate(i, rows, x, change)
                x = self._update(i, rows)
            self._values[-1].data[rows] = x.numpy()

    def embeddings(self) -> Floats:
        return self._values[-1].data[: len(self.graph)]  # type: ignore[no-any-return]

    def _propagate(self, i: int, rows: Ints, x: Tensor, change: Change) -> Ints:
        """Set the values of rows and send the differences; the rows that layer i must update."""
        sent, sums = self._sent[i].data, self._sums[i].data
        # Added and removed edges use the messages from before the batch; those of a new vertex are zero.
        _add(change.added_src, change.added_dst, sent, 1, sums)
        _add(change.removed_src, change.removed_dst, sent, -1, sums)
        messages = self.layers[i].message(x).numpy()
        difference = messages.astype(np.float64)
        difference -= sent[rows]
        sent[rows] = messages
        if not self.layers[i].sends_input:
            self._values[i].data[rows] = x.numpy()
        return self._out.send(rows, difference, sums, change.targets, self._mark.data)

    def _update(self, i: int, rows: Ints) -> Tensor:
        """The outputs of layer i at rows."""
        layer = self.layers[i]
        sums = torch.from_numpy(self._sums[i].data[rows])
        if layer.aggr == "mean":
            sums /= torch.from_numpy(self._degrees.data[rows]).clamp_(min=1).unsqueeze(1)
        return layer.update(layer.root(torch.from_numpy(self._values[i].data[rows])), sums.float())

    def _reserve(self, n: int) -> None:
        array: GrowableArray
        for array in self._arrays:
            array.reserve(n)


class _OutEdges:
    """Edges by source: an index, and a list (the tail) of edges that changed since the index was built."""

    def __init__(self, graph: LiveGraph) -> None:
        self._graph = graph
        self._index()

    def _index(self) -> None:
        graph, n = self._graph, len(self._graph)
        self._begins, self._targets, _ = block_of(graph.dst, graph.src, n, n)
        room = max(_SHORTEST_TAIL, int(graph.edge_count * _TAIL_SHARE))
        self._tail: Ints = np.zeros((room, 2), np.int64)
        #: 1 for an added edge; -1 for a removed one, which is in the index or earlier in the tail.
        self._sign: Small = np.zeros(room, np.int8)
        self._length = 0

    def apply(self, change: Change) -> None:
        """Record the changes of a batch that the graph has applied."""
        added, removed = len(change.added_src), len(change.removed_src)
        begin, end = self._length, self._length + added + removed
        if end > len(self._sign):
            self._index()
            return
        self._tail[begin:end, 0], self._tail[begin:end, 1] = change.sources, change.targets
        self._sign[begin : begin + added], self._sign[begin + added : end] = 1, -1
        self._length = end

    def send(self, rows: Ints, difference: Doubles, sums: Doubles, targets: Ints, mark: Ints) -> Ints:
        """Add the difference of each row to the sums of its destinations.

        Returns the distinct rows among `rows`, their destinations and `targets`.
        """
        tail, sign = self._tail[: self._length], self._sign[: self._length]
        reached = np.empty(_degree(rows, self._begins) + len(rows) + len(targets) + len(tail), np.int64)
        count = _send(
            rows, difference, self._begins, self._targets, tail, sign, targets, mark, sums, reached
        )  # fmt: skip
        return reached[:count]


@compiled
def _degree(rows: Ints, begins: Ints32) -> int:
    total = 0
    for v in rows:
        if v < len(begins) - 1:
            total += begins[v + 1] - begins[v]
    return total


@lean
def _add_row(to: int, difference: Doubles, i: int, sign: int, sums: Doubles) -> None:
    for k in range(difference.shape[1]):
        sums[to, k] += sign * difference[i, k]


@lean
def _reach(v: int, mark: Ints, reached: Ints, count: int) -> int:
    """Append v to `reached` unless it is marked; the new count."""
    if mark[v] & 1:
        return count
    mark[v] |= 1
    reached[count] = v
    return count + 1


@compiled
def _send(
    rows: Ints, difference: Doubles, begins: Ints32, targets: Ints32, tail: Ints, sign: Small,
    more: Ints, mark: Ints, sums: Doubles, reached: Ints,
) -> int:  # fmt: skip
    """Implements `_OutEdges.send`.

    `mark` is 0 between calls. During a call, bit 0 marks reached vertices, and the other bits hold the
    position of a row in `rows` plus 1.
    """
    count = 0
    for i in range(len(rows)):
        mark[rows[i]] = 2 * (i + 1)
    for i in range(len(rows)):
        count = _reach(rows[i], mark, reached, count)
        if rows[i] < len(begins) - 1:
            for at in range(begins[rows[i]], begins[rows[i] + 1]):
                _add_row(targets[at], difference, i, 1, sums)
                count = _reach(targets[at], mark, reached, count)
    for at in range(len(tail)):
        i = (mark[tail[at, 0]] >> 1) - 1
        if i >= 0:
            _add_row(tail[at, 1], difference, i, sign[at], sums)
            count = _reach(tail[at, 1], mark, reached, count)
    for v in more:
        count = _reach(v, mark, reached, count)
    for at in range(count):
        mark[reached[at]] = 0
    return count


@compiled
def _add(src: Ints, dst: Ints, sent: Floats, sign: int, sums: Doubles) -> None:
    """Add the messages of edges to the sums, or retract them."""
    for i in range(len(src)):
        for k in range(sent.shape[1]):
            sums[dst[i], k] += sign * sent[src[i], k]


@compiled
def _sum_up(begins: Ints32, sources: Ints32, sent: Floats, sums: Doubles) -> None:
    for v in range(len(begins) - 1):
        for at in range(begins[v], begins[v + 1]):
            for k in range(sent.shape[1]):
                sums[v, k] += sent[sources[at], k]
