"""A new aggregator, a new window and a new observer are one class each, defined outside of d3gnn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from d3gnn import GraphSchema, LocalEngine
from d3gnn.kernel.adjacency import BEGIN, LENGTH, OTHER, Side
from d3gnn.kernel.aggregators import Aggregator, EdgeArrays, Messages
from d3gnn.kernel.aggregators.base import _KNOWN as AGGREGATORS
from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.touched import touch_all
from d3gnn.kernel.windows.base import _KNOWN as WINDOWS
from d3gnn.kernel.windows.base import microseconds
from d3gnn.nn import GNN, Head, Layer, SAGEConv
from d3gnn.nn.aggregation import unregister_aggregation
from d3gnn.testing import OracleChecker, random_batches
from d3gnn.types import Doubles, Floats, Ints, Ints32
from d3gnn.windows import Window

SCHEMA = GraphSchema(features={"x": 3}, edges="multi", missing="hash")


@pytest.fixture
def energy() -> Iterator[type[Aggregator]]:
    """The root of the mean square of the messages; its state is not as wide as its aggregate."""

    class Energy(Aggregator):
        name = "energy"
        invertible = True

        @staticmethod
        @inlined
        def merge(is_first: bool, partial: Floats, total: Doubles, params: Ints) -> None:
            for k in range(len(total)):
                total[k] += partial[k]

        @staticmethod
        @inlined
        def finish(count: int, total: Doubles, params: Ints, aggregate: Floats) -> None:
            for k in range(len(aggregate)):
                aggregate[k] = np.sqrt(max(0.0, total[2 * k]) / max(1, count)) + total[2 * k + 1]

        @staticmethod
        def aggregate(messages: torch.Tensor, index: torch.Tensor, size: int) -> torch.Tensor:
            zero = messages.new_zeros((size, messages.shape[1]))
            count = torch.bincount(index, minlength=size).clamp(min=1).unsqueeze(1)
            squares = zero.index_add(0, index, messages**2) / count
            return squares.sqrt() + zero.index_add(0, index, messages)

        def state_width(self, message_width: int) -> int:
            return 2 * message_width

        def _change(self, sign: float, values: Floats, dst: Ints32, arrays: EdgeArrays) -> None:
            pairs = np.stack([values.astype(np.float64) ** 2, values.astype(np.float64)], 2)
            np.add.at(arrays.state, dst, sign * pairs.reshape(len(dst), 2 * values.shape[1]))

        def add(self, edges: Messages, arrays: EdgeArrays, touched: Ints, invalidated: Ints) -> None:
            self._change(1.0, arrays.values[edges.src], edges.dst, arrays)
            np.add.at(arrays.counts, edges.dst, 1)
            touch_all(touched, edges.dst, edges.time, edges.arrival)

        def retract(self, edges: Messages, arrays: EdgeArrays, touched: Ints, invalidated: Ints) -> None:
            self._change(-1.0, arrays.values[edges.src], edges.dst, arrays)
            np.subtract.at(arrays.counts, edges.dst, 1)
            arrays.state[edges.dst[arrays.counts[edges.dst] == 0]] = 0.0
            touch_all(touched, edges.dst, edges.time, edges.arrival)

        def replace(
            self, sources: Ints32, fresh: Floats, time: Ints, arrival: Ints, arrays: EdgeArrays, out: Side,
            touched: Ints, invalidated: Ints,
        ) -> int:  # fmt: skip
            changed = 0
            for i, u in enumerate(sources.tolist()):
                begin, length = out.segments[u, BEGIN], out.segments[u, LENGTH]
                dst = out.pool[begin : begin + length, OTHER]
                if length and (fresh[i] != arrays.values[u]).any():
                    self._change(-1.0, np.repeat(arrays.values[u : u + 1], length, 0), dst, arrays)
                    self._change(1.0, np.repeat(fresh[i : i + 1], length, 0), dst, arrays)
                    touch_all(touched, dst, np.full(length, time[i]), np.full(length, arrival[i]))
                    changed += length
                arrays.values[u] = fresh[i]
            return changed

        def recompute(self, destinations: Ints32, arrays: EdgeArrays, into: Side) -> None:
            for v in destinations.tolist():
                begin, length = into.segments[v, BEGIN], into.segments[v, LENGTH]
                src = into.pool[begin : begin + length, OTHER]
                arrays.state[v], arrays.counts[v] = 0.0, length
                self._change(1.0, arrays.values[src], np.full(length, v, np.int32), arrays)

    yield Energy
    del AGGREGATORS["energy"]
    unregister_aggregation("energy")


@pytest.mark.parametrize("parts", [1, 3])
def test_an_aggregator_is_one_class(energy: type[Aggregator], parts: int) -> None:
    model = GNN([SAGEConv(3, 4, "energy", act="relu"), SAGEConv(4, 2, "energy")])
    checker = OracleChecker(LocalEngine(model, parts=parts, schema=SCHEMA))
    for batch in random_batches(SCHEMA, seed=3, n_batches=12, batch_size=60, n_vertices=25):
        checker.apply(batch)
    checker.refresh()
    assert any(type(edge.aggregator) is energy for edge in checker.engine.edges)


@pytest.fixture
def every_other() -> Iterator[type[Window]]:
    """Sends a vertex at once when it was touched an even number of times, else after a pause."""

    @inlined
    def due_at(vertex: int, touches: int, total: int, now: int, numbers: Doubles, sketch: Ints32) -> int:
        return now if total % 2 == 0 else now + int(numbers[0])

    step = due_at

    @dataclass(frozen=True)
    class EveryOther(Window):
        pause: float = 1.0
        name = "every_other"
        due_at = staticmethod(step)

        @property
        def numbers(self) -> tuple[float, ...]:
            return (microseconds(self.pause),)

        @property
        def longest(self) -> float:
            return self.pause

    yield EveryOther
    del WINDOWS["every_other"]


def test_a_window_is_one_class(every_other: type[Window]) -> None:
    model = GNN([SAGEConv(3, 4, act="relu"), SAGEConv(4, 2)])
    engine = LocalEngine(model, parts=2, schema=SCHEMA, window=every_other(coalesce=0))
    checker, clock, pending = OracleChecker(engine), 0, 0
    for batch in random_batches(SCHEMA, seed=4, n_batches=12, batch_size=60, n_vertices=25):
        clock += 100_000
        checker.apply(batch, clock=clock)
        pending += sum(engine.pending().values())
    assert pending > 0, "the window was used"
    merged = sum(each["merged"] for each in engine.window_metrics().values())
    assert merged > 0
    checker.drain(clock=clock)


def test_a_name_belongs_to_one_class() -> None:
    """Another class of the same name would replace it in every model that is made or loaded afterwards."""
    with pytest.raises(TypeError, match="'mean' is taken by d3gnn"):

        class Mean(Aggregator):
            name = "mean"

    with pytest.raises(TypeError, match="'tumbling' is taken by d3gnn"):

        class Fast(Window):
            name = "tumbling"

    with pytest.raises(TypeError, match="'GATConv' is taken by d3gnn"):

        class GATConv(Layer):
            pass

    with pytest.raises(TypeError, match="'Classifier' is taken by d3gnn"):

        class Classifier(Head):
            pass
