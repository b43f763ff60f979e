"""Vertex l behind a layer: its update renews the touched masters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from d3gnn.kernel.aggregators import aggregator_of
from d3gnn.kernel.compiled import specialised
from d3gnn.kernel.operators.base import OpenState, OperatorId
from d3gnn.kernel.operators.config import OperatorConfig
from d3gnn.kernel.operators.master_loops import combine_partials, renew, renew_few
from d3gnn.kernel.operators.sharing import APART, Near
from d3gnn.kernel.operators.vertex import Vertex
from d3gnn.kernel.operators.vertex_state import Changes, VertexState, allocate_changes
from d3gnn.kernel.touched import sort
from d3gnn.nn.layer import Layer
from d3gnn.types import FLOAT32, Doubles, Floats

#: Up to this many rows, an affine update does without torch, whose calls take longer than the arithmetic.
FEW = 16
#: Rows that are updated at once: as many as stay in the processor's caches.
_MOST = 4096


class _Scratch(NamedTuple):
    """Room for the roots and aggregates of some rows, as arrays and as tensors over them."""

    root: Floats
    aggregate: Floats
    partial: Floats  # one state
    total: Doubles  # one state
    fresh: Floats  # new values of a few rows
    tensors: tuple[torch.Tensor, torch.Tensor]


class LayerVertex(Vertex):
    """Keeps x(l) and the partial aggregates of its masters; renews them by the layer's update.

    In its window, changed masters wait to be renewed and sent. Changes of no more than `config.min_change`
    since a value was sent are not sent on.
    """

    def __init__(
        self,
        id: OperatorId,
        layer: Layer,
        following: Layer | None,
        open_state: OpenState,
        config: OperatorConfig,
        near: Near = APART,
    ) -> None:
        self.layer, self.min_change = layer, config.min_change
        aggregator = aggregator_of(layer)
        partial_width = aggregator.state_width(layer.message_width)
        super().__init__(
            id, layer.out_width, layer.root_width, partial_width, following, open_state, config, near
        )
        self._params, self._partial_width = aggregator.params, partial_width
        self._combine = specialised(combine_partials, aggregator.steps_name, **aggregator.steps)
        self._renew_few = specialised(renew_few, aggregator.steps_name, **aggregator.steps)
        self._scratches: dict[int, _Scratch] = {}

    def renew(self, state: VertexState, due: int) -> Changes:
        changes = allocate_changes(due, self.width)
        if not due:
            return changes
        rows, affine = state.rows, self.layer.affine
        if due <= FEW and affine is not None:
            root, aggregate, partial, total, fresh, _ = self._scratch(due)
            first, partials, states = state.partials
            left, right, bias, relu = affine
            row, value, time, arrival = changes
            kept = self._renew_few(
                state.touched, rows.root, first, partials, states, rows.slot, state.sums, self._params,
                root, aggregate, partial, total,
                left, right, bias, relu, fresh, self.min_change,
                rows.value, rows.unsent, row, value, time, arrival,
            )  # fmt: skip
        else:
            kept = self._renew_many(state, due, changes)
        if kept == due:
            return changes
        row, value, time, arrival = changes
        return row[:kept], value[:kept], time[:kept], arrival[:kept]

    def _renew_many(self, state: VertexState, due: int, changes: Changes) -> int:
        rows, touched, kept = state.rows, state.touched, 0
        sort(touched)
        for begin in range(0, due, _MOST):
            root, aggregate, partial, total, _, tensors = self._scratch(min(_MOST, due - begin))
            states = (*state.partials, rows.slot, state.sums, self._params)
            self._combine(begin, touched, rows.root, *states, root, aggregate, partial, total)
            with torch.inference_mode():
                fresh = self.layer.update(*tensors).numpy()
            kept = renew(begin, kept, fresh, self.min_change, rows.value, rows.unsent, touched, *changes)
        return kept

    def _scratch(self, rows: int) -> _Scratch:
        """Scratch for the most rows and for a few is kept: making it takes longer than a small update."""
        scratch = self._scratches.get(rows)
        if scratch is None:
            layer = self.layer
            root = np.empty((rows, layer.root_width), FLOAT32)
            aggregate = np.empty((rows, layer.aggregate_width), FLOAT32)
            fresh = np.empty((rows if rows <= FEW else 0, layer.out_width), FLOAT32)
            tensors = torch.from_numpy(root), torch.from_numpy(aggregate)
            states = np.empty(self._partial_width, FLOAT32), np.empty(self._partial_width)
            scratch = _Scratch(root, aggregate, *states, fresh, tensors)
            if rows <= FEW or rows == _MOST:
                self._scratches[rows] = scratch
        return scratch
