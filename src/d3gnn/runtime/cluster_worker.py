"""A worker process on a cluster: the operators of a task, whose neighbours run on other machines.

Packets for parts on the same host stay in the outbox; those for other hosts travel with their blocks. State
that is missing or out of date is marked in the store, where Partition finds the mark.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property

from d3gnn.kernel.blocks import Block
from d3gnn.kernel.mapped_state import MappedPartState, StateLost
from d3gnn.kernel.operators import PARTITION, OperatorId
from d3gnn.runtime.host_folder import host_folder_id
from d3gnn.runtime.packets import MAX_BYTES, Bytes, Inbox, PacketHeader, Packets
from d3gnn.runtime.plan import Plan
from d3gnn.runtime.store_timers import StoreTimers
from d3gnn.runtime.transport import OutboxTransport
from d3gnn.runtime.version import BatchVersion
from d3gnn.runtime.worker import PartResult, Worker
from d3gnn.store.epochs import Epochs
from d3gnn.store.runs import Run

log = logging.getLogger("d3gnn")


class ClusterWorker(Worker):
    """Some operators of a plan in one worker process of a cluster."""

    def __init__(self, plan: Plan, query: str, query_run: Run | None = None) -> None:
        super().__init__(plan, query, query_run)
        self.epochs = Epochs(self.store)
        self._outbox = NearAndFarTransport(plan, self.outbox)

    @cached_property
    def timers(self) -> StoreTimers:  # type: ignore[override]
        """The timers of the query, in the store."""
        return StoreTimers(self.store)

    def write_next_expiry(self, time: int) -> None:
        self.timers.write_next_expiry(time)

    def versions(self) -> list[tuple[int, int]]:
        """The versions of the parts in the task of Partition; those of others are on other machines."""
        return self._versions_of([PARTITION, *self.plan.chain.inputs])

    def states_behind(self) -> Iterator[MappedPartState]:
        for id in self.plan.chain.inputs:
            for part in range(self.plan.parts):
                yield self.state.open(id, part)

    def run(self, name: OperatorId, part: int, packets: Iterable[Bytes], sources: int) -> PartResult:
        packets = list(packets)
        try:
            return super().run(name, part, packets, sources)
        except Exception as error:
            self._report_loss(name, part, packets, error)
            raise

    def _report_loss(self, name: OperatorId, part: int, packets: list[Bytes], error: Exception) -> None:
        """Mark the epoch of a batch that failed as lost, if the state of this part is no longer whole."""
        if not packets:
            return
        epoch = PacketHeader.of(packets[0]).version.epoch
        if isinstance(error, StateLost) or self.state.open(name, part).dirty:
            self.epochs.require_store()
            where = f"{name}, part {part}, on {socket.gethostname()}"
            self.epochs.lose(epoch, f"{where}: {type(error).__name__}: {error}")


class NearAndFarTransport(OutboxTransport):
    """Blocks stay in the outbox of their operator part; to other hosts, packets carry a copy of them."""

    def __init__(self, plan: Plan, outbox) -> None:  # type: ignore[no-untyped-def]
        super().__init__(plan.parts, outbox, limit=MAX_BYTES)
        self._plan = plan

    def send(self, sender: OperatorId, part: int, version: BatchVersion, blocks: Iterable[Block]) -> Packets:
        return self._placed(sender, part, super().send(sender, part, version, blocks))

    def kept(self, sender: OperatorId, part: int, version: BatchVersion) -> Packets | None:
        kept = super().kept(sender, part, version)
        return None if kept is None else self._placed(sender, part, kept)

    def receive(self, received: Inbox) -> list[Block]:
        """The blocks; raises `StateLost` if they were left on another host."""
        if folders := received.folders():
            here = host_folder_id(self._plan.arrays)
            if folders != {here}:
                raise StateLost(
                    f"packets of batch {received.version.batch} are in files of another host than "
                    f"{socket.gethostname()}: this task does not run at its home. The next run rebuilds the "
                    "state from the graph log"
                )
        return super().receive(received)

    def _placed(self, sender: OperatorId, part: int, packets: Packets) -> Packets:
        near = self._plan.near(sender, part)
        return replace(packets, near=near, folder=host_folder_id(self._plan.arrays))
