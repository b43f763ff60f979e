"""The batch protocol: how every host runs one operator over the parts that it has."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import Any

from d3gnn.kernel.blocks import Block
from d3gnn.kernel.operators.base import IMMEDIATE, BatchContext, Operator
from d3gnn.kernel.topology import Topology, apart

#: A part, and the blocks of a batch for it: the topology, and all others.
PartInput = tuple[int, Topology, list[Block]]


def run_operator(
    operator: Operator[Any],
    inputs: Iterable[PartInput],
    context: BatchContext,
    source: int = 0,
    seconds: list[float] | None = None,
) -> list[Block]:
    """Run one batch of an operator: a step for each part, then one flush of what the parts put into shared
    send buffers. Returns the blocks to send, without the topology.

    source:
        The sender of the flushed blocks: the part, where a host runs parts one by one.
    seconds:
        The time of each part is added to its entry.
    """
    sent: list[Block] = []
    try:
        if seconds is None:
            for part, topology, blocks in inputs:
                stepped = operator.step(part, topology, blocks, context)
                sent = sent + stepped if sent else stepped
        else:
            begun = perf_counter()
            for part, topology, blocks in inputs:
                sent += operator.step(part, topology, blocks, context)
                ended = perf_counter()
                seconds[part] += ended - begun
                begun = ended
    finally:  # also after an error: the next batch must not find blocks of this one
        if operator.buffers:
            sent += operator.flush(source)
    return sent


def run_part(
    operator: Operator[Any], part: int, blocks: Iterable[Block], context: BatchContext = IMMEDIATE
) -> list[Block]:
    """Run one batch of one part over its blocks; returns the blocks to send, the topology first."""
    topology, rest = apart(blocks)
    sent = run_operator(operator, [(part, topology, rest)], context, part)
    return [*topology.blocks, *sent] if operator.passes_on else sent
