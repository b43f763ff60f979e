"""The operators behind Partition in one process: blocks pass in memory, parts run side by side on threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from time import perf_counter
from typing import Any

import torch

from d3gnn.kernel.blocks import LAST_TOPOLOGY, Block
from d3gnn.kernel.operators import (
    PARTITION,
    ChainSpec,
    Operator,
    OperatorConfig,
    OperatorId,
    build_operator,
)
from d3gnn.kernel.operators.base import BatchContext, OpenState
from d3gnn.kernel.operators.layer_step import LayerStep
from d3gnn.kernel.operators.sharing import Shared
from d3gnn.kernel.topology import NO_TOPOLOGY, Topology
from d3gnn.nn.model import GNN
from d3gnn.runtime.batch import run_operator
from d3gnn.runtime.transport import MemoryTransport
from d3gnn.runtime.version import BatchVersion
from d3gnn.whole_numbers import check_whole

#: An operator that receives fewer bytes than this runs on the calling thread: handing parts to threads takes
#: longer than the work.
SMALLEST_PARALLEL = 1 << 17


class Lane:
    """The parts that one thread runs, and operators of its own for them.

    Operators of different lanes share the model and nothing that changes: scratch memory, counts and send
    buffers belong to an operator.
    """

    def __init__(self, parts: range, operators: list[Operator[Any]], seconds: list[float]) -> None:
        self.parts, self.operators, self._seconds = parts, operators, seconds
        self._alone = len(seconds) == 1  # the one part of the graph, whose time is that of the operators

    def step(
        self, i: int, topology: list[Topology], blocks: list[list[Block]], context: BatchContext
    ) -> list[Block]:
        """Run a batch of operator i for the parts of this lane; returns the blocks to send."""
        operator, first = self.operators[i], self.parts.start
        if self._alone and not operator.buffers:  # then a step is the whole batch
            return operator.step(first, topology[first], blocks[first], context)
        parts: Iterable[int] = self.parts
        if operator.window is None:  # a part that receives nothing has nothing to do
            parts = [part for part in parts if blocks[part] or topology[part] is not NO_TOPOLOGY]
        inputs = [(part, topology[part], blocks[part]) for part in parts]
        return run_operator(operator, inputs, context, first, self._seconds)


class Chain:
    """Runs the operators of a model one after the other, each over all parts.

    With several threads, the parts are divided among them. The values do not depend on the number of threads,
    bit for bit: blocks are joined in the order of the parts.
    """

    def __init__(self, model: GNN, config: OperatorConfig, open_state: OpenState, threads: int = 1) -> None:
        check_whole("threads", threads)
        self.spec, parts = ChainSpec.of(model), config.parts
        lanes = min(threads, parts)
        bounds = [parts * lane // lanes for lane in range(lanes + 1)]
        #: Seconds of each part, in all operators, since the chain was made. One part is not timed.
        self.part_seconds = [0.0] * parts
        self.lanes = []
        for begin, end in pairwise(bounds):
            shared = Shared(open_state)  # the operators of a lane run one after the other
            operators = [build_operator(id, model, config, open_state, shared) for id in self.spec.operators]
            self.lanes.append(Lane(range(begin, end), operators, self.part_seconds))
        #: Those of the first lane: they show the state of all parts, and the counts of their own.
        self.operators = self.lanes[0].operators
        #: By operator: an Edge that takes small batches together with the Vertex behind it.
        self._layers = [
            LayerStep.of(edge, vertex, parts) for edge, vertex in pairwise([*self.operators, None])
        ]
        self._transport = MemoryTransport(parts)
        self._pool: ThreadPoolExecutor | None = None
        # Busy seconds of each operator; bytes of the topology, which every operator receives, and of the
        # other blocks that each receives. Lists: they change in every step of a small batch.
        self.seconds, self.received = [0.0] * len(self.operators), [0] * len(self.operators)
        self.topology_bytes = 0

    def counts(self, id: OperatorId) -> Counter[str]:
        """The counts of an operator since the chain was made, over all lanes."""
        i = self.spec.operators.index(id)
        return sum((lane.operators[i].metrics for lane in self.lanes), Counter())

    def run(self, blocks: Sequence[Block], version: BatchVersion) -> list[Block]:
        """Run a batch, given the blocks that Partition sends; returns the blocks that leave the chain."""
        transport, context = self._transport, version.context
        topology_blocks: list[Block] = []
        sent: list[Block] = []
        for block in blocks:
            (topology_blocks if block.kind <= LAST_TOPOLOGY else sent).append(block)
        # Every operator receives the same topology: it is sent once.
        received, shared = transport.send(PARTITION, 0, version, topology_blocks)
        topology = [Topology(each) if each else NO_TOPOLOGY for each in received]
        self.topology_bytes += shared
        sender: OperatorId = PARTITION
        begun, i = perf_counter(), 0
        while i < len(self.operators):
            received, nbytes = transport.send(sender, 0, version, sent)
            layer, first = self._layers[i], i
            if layer is not None and layer.takes(topology[0], received[0]):
                sent = layer.step(topology[0], received[0], context)
                i += 1
            elif len(self.lanes) == 1:
                sent = self.lanes[0].step(i, topology, received, context)
            else:
                sent = self._step_lanes(i, topology, received, context, shared + nbytes)
            ended = perf_counter()
            self.seconds[first] += ended - begun
            self.received[first] += nbytes
            begun, sender = ended, self.operators[i].id
            i += 1
        return sent

    def _step_lanes(
        self,
        i: int,
        topology: list[Topology],
        received: list[list[Block]],
        context: BatchContext,
        nbytes: int,
    ) -> list[Block]:
        if nbytes < SMALLEST_PARALLEL:
            return [block for lane in self.lanes for block in lane.step(i, topology, received, context)]
        if self._pool is None:
            # All lanes run on threads of the pool, in which torch is limited to one: the threads are the
            # parallelism, and the caller's own torch must not be changed.
            self._pool = ThreadPoolExecutor(
                len(self.lanes), "d3gnn-part", initializer=torch.set_num_threads, initargs=(1,)
            )
        steps = [self._pool.submit(lane.step, i, topology, received, context) for lane in self.lanes]
        wait(steps)  # also after an error: no thread may go on into the next batch
        return [block for step in steps for block in step.result()]

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
