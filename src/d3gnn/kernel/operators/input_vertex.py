"""Vertex 0: the masters of the model's input: vertex features and, where the model needs them, degrees."""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.aggregators import Degrees
from d3gnn.kernel.blocks import FEATURES, Block, joined
from d3gnn.kernel.compiled import compiled, specialised
from d3gnn.kernel.hashing import fill_initial
from d3gnn.kernel.operators.base import OpenState, OperatorId
from d3gnn.kernel.operators.config import OperatorConfig
from d3gnn.kernel.operators.master_loops import collect, combine_into_rows
from d3gnn.kernel.operators.vertex import Vertex, take_rows
from d3gnn.kernel.operators.vertex_state import Changes, VertexState, allocate_changes
from d3gnn.kernel.touched import touch, touch_all
from d3gnn.nn.layer import DEGREE_WIDTH, Layer
from d3gnn.types import Bytes, Floats, Hashes, Ints, Ints32


class InputVertex(Vertex):
    """Keeps x(0): the features of the schema side by side, and behind them what Edge 0 counts.

    A vertex without a feature has there what the schema says (`GraphSchema.missing`).
    """

    def __init__(
        self,
        id: OperatorId,
        following: Layer,
        open_state: OpenState,
        config: OperatorConfig,
        *,
        degrees: bool = False,
    ) -> None:
        schema = config.schema
        aggregator = Degrees() if degrees else None
        width = schema.width + (DEGREE_WIDTH if degrees else 0)
        super().__init__(id, width, 0, DEGREE_WIDTH if degrees else 0, following, open_state, config)
        self._aggregator, self._features = aggregator, schema.width
        self._may_idle = self.window is None
        if aggregator is not None:
            self._combine = specialised(combine_into_rows, aggregator.steps_name, **aggregator.steps)
        self._partial, self._total = np.empty(DEGREE_WIDTH, np.float32), np.empty(DEGREE_WIDTH)
        ends = np.cumsum([0, *schema.features.values()])
        missing = schema.missing_values()
        #: The input of a vertex without features; empty if it is a hash of the id.
        self._missing = np.array(() if missing is None else missing, np.float32)
        self._feature_ends = np.stack([ends[:-1], ends[1:]], 1).astype(np.int64)

    def _settle(self, state: VertexState, vertices: Block) -> None:
        row, slot, seeds, time, arrival = vertices.columns[:5]
        rows = state.rows
        columns = (rows.slot, rows.unsent, rows.seed, rows.value)
        _start(row, slot, seeds, time, arrival, self._features, self._missing, *columns, state.touched)

    def _receive(self, state: VertexState, found: list[list[Block]]) -> None:
        features = joined(found[FEATURES])
        if features is not None:
            row, feature, time, arrival, value = features.columns
            _take_features(
                row, feature, value, self._features, self._missing, self._feature_ends, state.rows.seed,
                state.rows.value,
            )  # fmt: skip
            touch_all(state.touched, row, time, arrival)
        super()._receive(state, found)

    def renew(self, state: VertexState, due: int) -> Changes:
        rows = state.rows
        if self._aggregator is not None:
            params = self._aggregator.params
            self._combine(
                state.touched, *state.partials, rows.slot, state.sums, params, self._partial, self._total,
                self._features, rows.value,
            )  # fmt: skip
        changes = allocate_changes(due, self.width)
        collect(state.touched, rows.value, rows.unsent, *changes)
        return changes


@compiled
def _fill_missing(seed: np.uint64, missing: Floats, row: Floats) -> None:
    """The input of a vertex without features: given numbers, or else a hash of its id."""
    if len(missing):
        for k in range(len(row)):
            row[k] = missing[k]
    else:
        fill_initial(seed, row)


@compiled
def _start(
    which: Ints32, slots: Ints32, seeds: Hashes, time: Ints, arrival: Ints, width: int, missing: Floats,
    slot: Ints32, unsent: Bytes, seed: Hashes, value: Floats, touched: Ints,
) -> None:  # fmt: skip
    """New masters get their rows and the input of a vertex without features, in the first `width` numbers,
    and are touched.
    """
    take_rows(which, slots, slot, unsent)
    for i in range(len(which)):
        touch(touched, which[i], time[i], arrival[i])
        seed[which[i]] = seeds[i]
        _fill_missing(seeds[i], missing, value[which[i], :width])


@compiled
def _take_features(
    which: Ints32, feature: Ints32, given: Floats, width: int, missing: Floats, ends: Ints, seed: Hashes,
    value: Floats,
) -> None:  # fmt: skip
    """Write features into x(0), or what a vertex without it has where a feature was deleted, in order."""
    initial = np.empty(width, np.float32)
    for i in range(len(which)):
        row = which[i]
        if feature[i] >= 0:
            begin, end = ends[feature[i], 0], ends[feature[i], 1]
            value[row, begin:end] = given[i, : end - begin]
        else:
            begin, end = ends[-1 - feature[i], 0], ends[-1 - feature[i], 1]
            _fill_missing(seed[row], missing, initial)
            value[row, begin:end] = initial[begin:end]
