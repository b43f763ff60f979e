"""Vertex l: the masters of x(l). Combines partial aggregates, renews values, sends them to replicas."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch

from d3gnn.events.keys import Keys
from d3gnn.kernel.blocks import PARTIALS, ROOTS, VALUES, Block, BlockKind, by_kind, key_columns
from d3gnn.kernel.compiled import lean
from d3gnn.kernel.operators.base import BatchContext, OpenState, Operator, OperatorId
from d3gnn.kernel.operators.config import OperatorConfig
from d3gnn.kernel.operators.master_lists import drop, link, take_partials
from d3gnn.kernel.operators.send_buffers import SendBuffers
from d3gnn.kernel.operators.sharing import APART, Near
from d3gnn.kernel.operators.vertex_state import Changes, VertexState
from d3gnn.kernel.part_state import PartState
from d3gnn.kernel.topology import Topology
from d3gnn.kernel.touched import size, touch_rows
from d3gnn.kernel.windows.pending import Pending
from d3gnn.nn.layer import Layer
from d3gnn.types import INT32, Array, Bytes, Floats, Ints32

_NONE32 = np.zeros(0, np.int32)


class Vertex(Operator[VertexState]):
    """The masters after a layer: what the input, the layers and the output have in common.

    A batch goes through `step` in this order: topology, received blocks, window, renewed values, messages to
    the replicas that are sources of edges, output. Subclasses renew values (`renew`) and produce output
    (`_emit`). `following` is the layer that takes the values, None at the end of the chain.
    """

    #: Whether a batch can have nothing for a part, and whether there is output: a call takes longer to find
    #: out.
    _may_idle = False
    _has_output = False

    def __init__(
        self,
        id: OperatorId,
        width: int,
        root_width: int,
        partial_width: int,
        following: Layer | None,
        open_state: OpenState,
        config: OperatorConfig,
        near: Near = APART,
    ) -> None:
        super().__init__(id, open_state, config.forward)
        self.config, self.parts, self.width, self.following = config, config.parts, width, following
        self.passes_on = following is not None
        self._widths, self._near = (width, root_width, partial_width), near
        # With one part, all messages go to the part itself.
        buffered = following is not None and self.parts > 1
        self.buffers = buffered
        self._send_buffers = SendBuffers(self.parts, following.message_width) if buffered else None  # type: ignore[union-attr]

    def open(self, part_state: PartState, part: int) -> VertexState:
        return VertexState(part_state, *self._widths, self.open_window(part_state), *self._open_near(part))

    def _open_near(self, part: int) -> tuple[PartState | None, PartState | None]:
        """The states that roots and partials of a part are read from; None where they are kept."""
        roots, partials = self._near
        return None if roots is None else roots(part), None if partials is None else partials(part)

    def pending(self, part: int) -> Pending | None:
        return self.state(part).pending

    def flush(self, source: int = 0) -> list[Block]:
        return [] if self._send_buffers is None else self._send_buffers.take(source)

    def step(self, part: int, topology: Topology, blocks: list[Block], context: BatchContext) -> list[Block]:
        if self._may_idle and not (
            blocks or topology.vertices or topology.sources or topology.vertex_deletes
        ):
            return []  # new edges between known vertices, for example
        return self.update(self.take_topology(part, topology), part, topology, blocks, context)

    def take_topology(self, part: int, topology: Topology) -> VertexState:
        """Apply a batch's new and deleted masters; the state of the part."""
        state = self.state(part)
        state.follow()
        if topology.vertices is not None or topology.vertex_deletes is not None:
            self._apply_topology(state, topology)
        return state

    def update(
        self, state: VertexState, part: int, topology: Topology, blocks: list[Block], context: BatchContext
    ) -> list[Block]:
        """Take in what Edge l sends, and renew the masters that are due; returns the blocks to send."""
        self._receive(state, by_kind(blocks))
        due = size(state.touched) if state.pending is None else self._due(state, context, topology)
        return self.pass_on(state, part, topology, self.renew(state, due), context)

    def pass_on(
        self, state: VertexState, part: int, topology: Topology, changes: Changes, context: BatchContext
    ) -> list[Block]:
        """The blocks to send: messages to replicas that are sources, and output."""
        n = len(changes[0])
        self.metrics["touched"] += n
        out: list[Block] = []
        if self.following is not None and (n or topology.sources is not None):
            out = self._send(state, part, topology.sources, self.following, changes)
        return self._emit(state, part, topology, changes, context, out) if self._has_output else out

    def values(self, part: int, rows: Array) -> Floats:
        """x(l) of masters, by row."""
        state = self.state(part)
        state.follow()
        return state.rows.value[rows]

    # ------------------------------------------------------------------ steps of a batch

    def _apply_topology(self, state: VertexState, topology: Topology) -> None:
        """New masters, and deleted ones."""
        vertices, deletes = topology.vertices, topology.vertex_deletes
        if vertices is not None:
            state.reserve_rows(vertices.extent)
            self._settle(state, vertices)
        if deletes is not None:
            deleted, rows = deletes.columns[0], state.rows
            first_partial, partials, _ = state.partials
            drop(deleted, *state.links, first_partial, partials, state.counters)
            rows.value[deleted], rows.root[deleted], rows.unsent[deleted] = 0, 0, 0

    def _settle(self, state: VertexState, vertices: Block) -> None:
        """Give new masters their rows."""
        row, slot = vertices.columns[:2]
        take_rows(row, slot, state.rows.slot, state.rows.unsent)

    def _receive(self, state: VertexState, found: list[list[Block]]) -> None:
        """Keep roots and partials, and touch their masters."""
        for block in found[ROOTS]:
            row, time, arrival, root = block.columns
            touch_rows(state.touched, row, time, arrival, root, state.rows.root)
        received = found[PARTIALS]
        if received:
            state.reserve_partials(sum(map(len, received)))
            kept, counters, touched = state.partials, state.counters, state.touched
            for block in received:
                row, count, time, arrival, partial = block.columns
                take_partials(
                    block.source, block.full, row, count, time, arrival, partial, *kept, counters, touched
                )

    def _due(self, state: VertexState, context: BatchContext, topology: Topology) -> int:
        """Replace the touched masters by those that are due, and return how many these are. A first value is
        never delayed.
        """
        assert state.pending is not None
        if topology.vertex_deletes is not None:
            state.pending.cancel(topology.vertex_deletes.columns[0])
        # New masters were touched by their first value.
        new = 0 if topology.vertices is None else len(topology.vertices)
        return self.hold(state.pending, state.touched, context, state.rows.unsent, new)

    @abstractmethod
    def renew(self, state: VertexState, due: int) -> Changes:
        """Compute and store the values of the `due` touched masters; those that changed. Empties the set."""

    def _emit(
        self,
        state: VertexState,
        part: int,
        topology: Topology,
        changes: Changes,
        context: BatchContext,
        out: list[Block],
    ) -> list[Block]:
        """The blocks that the batch sends, `out`, with the output of the model behind them."""
        return out

    # ------------------------------------------------------------------ messages to replicas

    def _send(
        self, state: VertexState, part: int, sources: Block | None, following: Layer, changes: Changes
    ) -> list[Block]:
        """Changed values to every replica that is a source; to new sources, their value, changed or not."""
        row, value, time, arrival = changes
        message = self._message(following, value)
        blocks: list[Block] = []
        if self._send_buffers is None:  # all sources are masters: every row goes to its own slot
            blocks.append(Block(VALUES, part, part, (state.rows.slot[row], time, arrival, message)))
        else:
            new = self._new_sources(state, sources, following)
            changed = (row, time, arrival, message)
            self._send_buffers.write(part, changed, new, state.rows.slot, state.links)
        if sources is not None:
            new_row, new_part, new_slot = sources.columns
            blocks += self._name_sources(state, part, new_row, new_part, new_slot)
            state.reserve_links(len(sources))
            link(new_row, new_part, new_slot, *state.links, state.counters)
        if not following.sends_input and len(row):
            with torch.inference_mode():
                root = following.root(torch.from_numpy(value)).numpy()
            blocks.append(Block(ROOTS, part, part, (row, time, arrival, root)))
        return blocks

    def _name_sources(
        self, state: VertexState, part: int, row: Ints32, to_part: Ints32, slot: Ints32
    ) -> list[Block]:
        """Ids for replicas that are sources now, where the next operator needs them."""
        return []

    def _message(self, following: Layer, value: Floats) -> Floats:
        """The messages of values; a layer that sends the value itself has nothing to compute."""
        if following.sends_input:
            return value
        with torch.inference_mode():
            message: Floats = following.message(torch.from_numpy(value)).numpy()
            return message

    def _new_sources(
        self, state: VertexState, sources: Block | None, following: Layer
    ) -> tuple[Ints32, Ints32, Ints32, Floats]:
        """Parts and slots of replicas that are sources now, and which rows of which messages are theirs."""
        values: Floats = state.rows.value
        if sources is None:
            return _NONE32, _NONE32, _NONE32, values
        row, part, slot = sources.columns
        if following.sends_input:
            return part, slot, row, values
        return part, slot, np.arange(len(row), dtype=INT32), self._message(following, values[row])


def blocks_by_part(
    kind: BlockKind, source: int, target: Ints32, columns: tuple[Array, ...], keys: Keys
) -> list[Block]:
    """One block with keys for each part among the targets."""
    blocks = []
    for to in np.unique(target).tolist():
        rows = np.flatnonzero(target == to)
        key, blob = key_columns(keys.take(rows))
        blocks.append(Block(kind, source, to, (*(column[rows] for column in columns), key), blob=blob))
    return blocks


@lean
def take_rows(which: Ints32, slots: Ints32, slot: Ints32, unsent: Bytes) -> None:
    """New masters take their rows."""
    for i in range(len(which)):
        slot[which[i]], unsent[which[i]] = slots[i], 1
