"""A worker process that runs the whole chain of operators in one task, over mapped arrays.

The state of the chain has one version, that of Partition: it is stamped once, when the output of the batch is
in the outbox. The other parts carry a mark and the epoch, so that files that were deleted and made again are
not taken for an empty graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from d3gnn.kernel.blocks import Block
from d3gnn.kernel.mapped_state import MappedPartState
from d3gnn.kernel.operators import PARTITION, Operator, OperatorId
from d3gnn.kernel.operators.sharing import ADJACENCIES
from d3gnn.runtime.chain import Chain
from d3gnn.runtime.damaged_arrays import COMPUTE_ERRORS, arrays_failed
from d3gnn.runtime.packets import Packets
from d3gnn.runtime.rebuild_progress import OPERATORS, RebuildProgress
from d3gnn.runtime.version import BatchVersion
from d3gnn.runtime.worker import INTERRUPTED, OperatorMetrics, Worker

#: Stands for a batch in the versions of parts that share the version of Partition.
SHARED = -2


class ChainWorker(Worker):
    """All operators of a plan in one worker process."""

    @cached_property
    def chain(self) -> Chain:
        """The operators behind Partition."""
        return Chain(self.model, self.plan.config, self.state.open, self.plan.threads)

    @cached_property
    def rebuild(self) -> RebuildProgress:
        return RebuildProgress(self.folder, [OPERATORS])

    def close(self) -> None:
        self._drop_chain()
        super().close()

    def versions(self) -> list[tuple[int, int]]:
        """The version of Partition, and the same one for each part that belongs to it."""
        partition = self.state.open(PARTITION, 0)
        epoch, batch = version = partition.version
        expected = (epoch, SHARED) if batch else (0, 0)  # before the first batch there is no state
        versions = [(epoch, INTERRUPTED) if partition.dirty else version]
        for state in self.states_behind():
            state.remap_grown()
            versions.append(version if state.version == expected else (state.version[0], INTERRUPTED))
        return versions

    def kept_output(
        self, name: OperatorId, part: int, state: MappedPartState, version: BatchVersion
    ) -> Packets | None:
        return super().kept_output(self.plan.chain.output, 0, state, version)

    def send(
        self,
        name: OperatorId,
        part: int,
        state: MappedPartState,
        version: BatchVersion,
        blocks: Iterable[Block],
    ) -> Packets:
        """Run the chain on what Partition sends, keep its output, and stamp the version, in this order."""
        if version.refresh:
            self.rebuild.step(OPERATORS)
            for id in (*ADJACENCIES.values(), *self.plan.chain.operators):
                for number in range(self.plan.parts):
                    self.state.reopen_changed(id, number)
        parts = list(self.states_behind())
        if version.refresh:
            for each in parts:
                each.reset()
        _ = self.model  # its errors are not those of arrays
        try:
            before = self._totals()
            sent = self.chain.run(list(blocks), version)
        except COMPUTE_ERRORS as error:
            raise arrays_failed(self.state.folder(PARTITION, 0).parents[1], error) from error
        self._write_timers()
        packets = self.keep(self.plan.chain.output, 0, version, sent)
        for each in parts:
            if each.version != (version.epoch, SHARED):
                each.commit(version.epoch, SHARED)
        state.commit(version.epoch, version.batch + 1)
        if version.refresh:
            self.rebuild.end()
        self._metrics = self._metrics_since(before, version)
        return packets

    def batch_metrics(self) -> OperatorMetrics:
        """The metrics of the operators in the last batch, a row for each lane."""
        return self._metrics

    def states_behind(self) -> Iterator[MappedPartState]:
        # Both adjacencies, as a model that is deployed later may need the other one.
        for id in ADJACENCIES.values():
            for part in range(self.plan.parts):
                yield self.state.open(id, part)
        yield from super().states_behind()

    def _drop_operator(self, id: OperatorId) -> None:
        super()._drop_operator(id)
        self._drop_chain()

    def _drop_operators(self) -> None:
        super()._drop_operators()
        self._drop_chain()

    def _drop_chain(self) -> None:
        chain = self.__dict__.pop("chain", None)
        if chain is not None:
            chain.close()

    def _write_timers(self) -> None:
        for lane in self.chain.lanes:
            for operator in lane.operators:
                for part in lane.parts:
                    if (window := operator.pending(part)) is not None:
                        self.timers.write(operator.id, part, window)

    def _totals(self) -> list[list[Counter[str]]]:
        """What each operator has counted so far, in each lane."""
        chain = self.chain
        totals = [[_totals(operator, lane.parts) for operator in lane.operators] for lane in chain.lanes]
        for total, seconds, received in zip(totals[0], chain.seconds, chain.received, strict=True):
            total["busy_us"], total["bytes"] = int(seconds * 1e6), received
        return totals

    def _metrics_since(self, before: list[list[Counter[str]]], version: BatchVersion) -> OperatorMetrics:
        rows: OperatorMetrics = {}
        for lane, old, new in zip(self.chain.lanes, before, self._totals(), strict=True):
            for i, operator in enumerate(lane.operators):
                row = {"part": lane.parts.start} | {name: new[i][name] - old[i][name] for name in new[i]}
                windows = [window for part in lane.parts if (window := operator.pending(part)) is not None]
                if windows:
                    row["pending"] = sum(map(len, windows))
                    row["oldest_ms"] = max(window.age_ms(version.clock) for window in windows)
                rows.setdefault(str(operator.id), []).append(row)
        return rows


def _totals(operator: Operator[Any], parts: range) -> Counter[str]:
    total = operator.metrics.copy()
    for part in parts:
        if (window := operator.pending(part)) is not None:
            total["merged"] += window.merged
    return total
