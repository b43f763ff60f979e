"""Vertex L: the last one. It knows ids, applies the model's head, and emits what observers select."""

from __future__ import annotations

import numpy as np
import torch

from d3gnn.kernel.blocks import (
    ENDS,
    NAMES,
    NO_TOMBSTONE,
    OUTPUT,
    SURE_TOMBSTONE,
    Block,
    block_keys,
    key_columns,
)
from d3gnn.kernel.ids import KeyColumn
from d3gnn.kernel.observers import AlertFilter, Observer, Predicted
from d3gnn.kernel.operators.base import BatchContext, OpenState, OperatorId
from d3gnn.kernel.operators.config import OperatorConfig
from d3gnn.kernel.operators.layer_vertex import LayerVertex
from d3gnn.kernel.operators.send_buffers import FEW, OutputBuffer
from d3gnn.kernel.operators.sharing import APART, Near
from d3gnn.kernel.operators.vertex import blocks_by_part
from d3gnn.kernel.operators.vertex_state import Changes, VertexState
from d3gnn.kernel.part_state import PartState
from d3gnn.kernel.topology import Topology
from d3gnn.nn.heads import Head
from d3gnn.nn.layer import Layer
from d3gnn.types import Array, Bools, Floats, Ints32


class OutputState(VertexState):
    """Masters with their ids, and the observers of a part."""

    keys: KeyColumn
    observers: list[Observer]


class OutputVertex(LayerVertex):
    """Emits embeddings, predictions and tombstones; answers queries with the embeddings of their ends.

    Changes go to the observers first. With `emit="head"`, only rows that all of them select are emitted; with
    `emit="all"`, all rows are, with a column that says whether they are selected. In models whose head scores
    pairs, `emits` is whether vertices are emitted at all.
    """

    _has_output = True

    def __init__(
        self,
        id: OperatorId,
        layer: Layer,
        following: Layer | None,
        open_state: OpenState,
        config: OperatorConfig,
        near: Near = APART,
        head: Head | None = None,
        *,
        emits: bool = True,
    ) -> None:
        super().__init__(id, layer, following, open_state, config, near)
        self.head, self._emits = head, emits
        self.alerts = config.alerts if head is not None else None
        self._marks = self.alerts is not None and config.emit == "all"
        plain = emits and head is None and self.parts > 1
        self._output_buffer = OutputBuffer(self.width) if plain else None
        self.buffers = self.buffers or plain

    def open(self, part_state: PartState, part: int) -> OutputState:
        state = OutputState(part_state, *self._widths, self.open_window(part_state), *self._open_near(part))
        state.keys = KeyColumn(part_state, "key")
        state.observers = [] if self.alerts is None else [AlertFilter(self.alerts, part_state)]
        return state

    def flush(self, source: int = 0) -> list[Block]:
        blocks = super().flush(source)
        return blocks if self._output_buffer is None else blocks + self._output_buffer.take(source)

    def _settle(self, state: VertexState, vertices: Block) -> None:
        super()._settle(state, vertices)
        assert isinstance(state, OutputState)
        state.keys.put(vertices.columns[0], block_keys(vertices), vertices.extent)

    def _name_sources(
        self, state: VertexState, part: int, row: Ints32, to_part: Ints32, slot: Ints32
    ) -> list[Block]:
        assert isinstance(state, OutputState)
        return blocks_by_part(NAMES, part, to_part, (slot,), state.keys.take(row))

    def _emit(
        self,
        state: VertexState,
        part: int,
        topology: Topology,
        changes: Changes,
        context: BatchContext,
        out: list[Block],
    ) -> list[Block]:
        assert isinstance(state, OutputState)
        if self._emits:
            if len(changes[0]) or topology.vertex_deletes is not None:
                out += self._output(state, part, topology.vertex_deletes, changes, context.rebuild)
            if tombstones := topology.vertex_tombstones:
                out.append(self._tombstones(part, tombstones))
        if queries := topology.queries:
            out += self._ends(state, part, queries)
        return out

    def _output(
        self, state: OutputState, part: int, deletes: Block | None, changes: Changes, rebuild: bool
    ) -> list[Block]:
        """Rows of changed masters, and tombstones of deleted ones."""
        row, value, time, arrival = changes
        buffer, keys = self._output_buffer, state.keys.ints
        if buffer is not None and keys is not None and deletes is None and len(row) <= FEW:
            buffer.write(row, value, time, arrival, keys)
            return []
        if self.head is None and deletes is None:
            key, blob = key_columns(state.keys.take(row)) if keys is None else (keys.take(row), None)
            plain = (np.zeros(len(row), np.uint8), time, arrival, value, key)
            return [Block(OUTPUT, part, part, plain, blob=blob)]
        prediction = None if self.head is None else self._predict(self.head, value)
        selected = None
        if state.observers:
            selected = _select(state.observers, Predicted(*changes, prediction), rebuild)
        if selected is not None and not self._marks:
            row, value, time, arrival = row[selected], value[selected], time[selected], arrival[selected]
            prediction = None if prediction is None else prediction[selected]
        deleted = np.zeros(len(row), np.uint8)
        if deletes is not None:
            ever = _ever_selected(state.observers, deletes, everything=self._marks)
            gone, tombstone, when, came = (column[ever] for column in deletes.columns)
            row, deleted = np.concatenate([row, gone]), np.concatenate([deleted, tombstone > NO_TOMBSTONE])
            time, arrival = np.concatenate([time, when]), np.concatenate([arrival, came])
            value = np.concatenate([value, np.zeros((len(gone), self.width), np.float32)])
            if prediction is not None:
                prediction = np.concatenate([prediction, _no_prediction(len(gone))])
        if not len(row):
            return []
        columns: tuple[Array, ...] = (deleted, time, arrival, value)
        if prediction is not None:
            columns = (*columns, prediction)
        if self._marks and selected is not None:
            marks = np.zeros(len(row), np.uint8)  # a tombstone is no alert
            marks[: len(selected)] = selected
            columns = (*columns, marks)
        key, blob = key_columns(state.keys.take(row))
        return [Block(OUTPUT, part, part, (*columns, key), blob=blob)]

    def _predict(self, head: Head, embedding: Floats) -> Floats:
        with torch.inference_mode():
            prediction: Floats = head.predict(torch.from_numpy(embedding)).numpy()
            return prediction

    def _tombstones(self, part: int, deleted: Block) -> Block:
        """For vertices that are known here by nothing but their ids."""
        time, arrival, keys = deleted.columns
        n = len(deleted)
        columns: tuple[Array, ...] = (
            np.ones(n, np.uint8), time, arrival, np.zeros((n, self.width), np.float32),
        )  # fmt: skip
        if self.head is not None:
            columns = (*columns, _no_prediction(n))
        if self._marks:
            columns = (*columns, np.zeros(n, np.uint8))
        return Block(OUTPUT, part, part, (*columns, keys), blob=deleted.blob)

    def _ends(self, state: OutputState, part: int, queries: Block) -> list[Block]:
        """The embeddings of the ends of queries, for the parts that answer them."""
        row, number, is_second, answering, time, arrival = queries.columns
        columns = (number, is_second, time, arrival, state.rows.value[row])
        return blocks_by_part(ENDS, part, answering, columns, state.keys.take(row))


def _select(observers: list[Observer], changes: Predicted, rebuild: bool) -> Bools | None:
    """The rows that all observers select; None if none of them selects."""
    selected: Bools | None = None
    for observer in observers:
        chosen = observer.changed(changes, rebuild)
        if chosen is not None:
            selected = chosen if selected is None else selected & chosen
    return selected


def _ever_selected(observers: list[Observer], deletes: Block, *, everything: bool) -> Bools:
    """The deleted masters whose readers must learn of it."""
    tombstone = deletes.columns[1]
    ever: Bools = tombstone > NO_TOMBSTONE
    for observer in observers:
        chosen = observer.deleted(deletes.columns[0])
        if chosen is not None and not everything:
            ever &= chosen | (tombstone == SURE_TOMBSTONE)
    return ever


def _no_prediction(n: int) -> Floats:
    return np.full((n, 2), np.nan, np.float32)
