"""The batch protocol that all hosts share."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from d3gnn.kernel.blocks import Block, BlockKind
from d3gnn.kernel.operators import Operator
from d3gnn.kernel.operators.base import IMMEDIATE, BatchContext
from d3gnn.kernel.topology import Topology
from d3gnn.runtime.batch import PartInput, run_operator, run_part

NONE = Topology([])


def block(kind: BlockKind, source: int, target: int = 0) -> Block:
    return Block(kind, source, target, (np.zeros(1, np.int32),))


class Recorder:
    """An operator that sends a block per step, and flushes one more; fails at part `bad`."""

    passes_on = buffers = True

    def __init__(self, bad: int = -1) -> None:
        self.calls: list[tuple[str, int]] = []
        self.bad = bad

    def step(self, part: int, topology: Topology, blocks: list[Block], context: BatchContext) -> list[Block]:
        self.calls.append(("step", part))
        if part == self.bad:
            raise ValueError("bad part")
        return [block(BlockKind.VALUES, part)]

    def flush(self, source: int = 0) -> list[Block]:
        self.calls.append(("flush", source))
        return [block(BlockKind.PARTIALS, source)]


def run(recorder: Recorder, parts: int, **more: Any) -> list[Block]:
    inputs: list[PartInput] = [(part, NONE, []) for part in range(parts)]
    return run_operator(cast(Operator[Any], recorder), inputs, IMMEDIATE, **more)


def test_each_part_makes_a_step_and_all_are_flushed_once() -> None:
    recorder = Recorder()
    sent = run(recorder, 3)
    assert recorder.calls == [("step", 0), ("step", 1), ("step", 2), ("flush", 0)]
    assert [each.kind for each in sent] == [BlockKind.VALUES] * 3 + [BlockKind.PARTIALS]


def test_an_error_leaves_nothing_for_the_next_batch() -> None:
    recorder = Recorder(bad=1)
    with pytest.raises(ValueError, match="bad part"):
        run(recorder, 3)
    assert recorder.calls == [("step", 0), ("step", 1), ("flush", 0)]


def test_the_time_of_each_part_is_added() -> None:
    seconds = [1.0, 0.0]
    run(Recorder(), 2, seconds=seconds)
    assert seconds[0] > 1
    assert seconds[1] > 0


@pytest.mark.parametrize("passes_on", [True, False])
def test_one_part_sends_the_topology_on_if_an_operator_follows(passes_on: bool) -> None:
    recorder = Recorder()
    recorder.passes_on = passes_on
    topology = block(BlockKind.VERTEX_DELETES, 0)
    received = [block(BlockKind.VALUES, 0), topology]
    sent = run_part(cast(Operator[Any], recorder), 2, received)
    assert recorder.calls == [("step", 2), ("flush", 2)]
    assert [each.kind for each in sent] == [topology.kind] * passes_on + [
        BlockKind.VALUES,
        BlockKind.PARTIALS,
    ]
