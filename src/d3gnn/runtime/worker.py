"""A worker process on Spark: operators over mapped arrays, each batch applied exactly once.

The arrays of an operator part are files local to the host, so that any worker process can continue where
another one stopped. Their version decides what happens with a batch:

- one batch behind: process it, put the output into the outbox, stamp the version;
- at this batch already (a retried stage, a second action): send the output in the outbox again;
- anything else, or a batch that was begun and not finished: lost. The next run rebuilds them in a new epoch.

A refresh replaces any state, and its output is kept like that of every batch. A task of a run of the query
that is over is refused before it changes anything.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch

from d3gnn.kernel.blocks import Block
from d3gnn.kernel.mapped_state import MappedPartState, StateLost
from d3gnn.kernel.operators import PARTITION, Operator, OperatorId, Partition, build_operator
from d3gnn.nn.model import GNN
from d3gnn.private import private_folder
from d3gnn.runtime.batch import run_part
from d3gnn.runtime.damaged_arrays import COMPUTE_ERRORS, arrays_failed
from d3gnn.runtime.finishing import finishing
from d3gnn.runtime.in_use import InUse
from d3gnn.runtime.leftovers import sweep
from d3gnn.runtime.outbox import Outbox
from d3gnn.runtime.packets import Bytes, Inbox, Packets
from d3gnn.runtime.plan import Plan
from d3gnn.runtime.rebuild_progress import RebuildProgress
from d3gnn.runtime.state_backend import MappedBackend
from d3gnn.runtime.timers import Timers, write_next_expiry
from d3gnn.runtime.transport import OutboxTransport
from d3gnn.runtime.version import BatchVersion
from d3gnn.store.models import find_model, get_model
from d3gnn.store.runs import Run
from d3gnn.store.store import Store

#: Stands for the batch in the version of a part whose last batch was interrupted.
INTERRUPTED = -1
#: By operator: the metrics of its parts in a batch.
OperatorMetrics = dict[str, list[dict[str, Any]]]


class PartResult(NamedTuple):
    """The output of an operator part in a batch, and its metrics."""

    packets: Packets
    metrics: dict[str, int]
    #: Those of the operators behind it, if they ran in the same task.
    behind: OperatorMetrics = {}  # noqa: RUF012  # of a tuple, which does not change


class Worker:
    """The operators of one plan in one worker process."""

    _instances: dict[tuple[Plan, str], Worker] = {}  # noqa: RUF012  # by plan and query, in this process

    @classmethod
    def of(cls, plan: Plan, query: str, query_run: Run) -> Self:
        """The worker of a query in this process, for a task of this run."""
        worker = Worker._instances.get((plan, query))
        if worker is None:
            worker = Worker._instances[plan, query] = cls(plan, query)
        assert isinstance(worker, cls)
        worker.query_run = query_run
        return worker

    def __init__(self, plan: Plan, query: str, query_run: Run | None = None) -> None:
        self.plan, self.query = plan, query
        self.query_run, self.store = query_run or Run(), Store(plan.store)
        self.model_version = plan.model_version
        torch.set_num_threads(1)  # the tasks are the parallelism
        # Each query has a folder of its own: arrays of an earlier query, whose checkpoint was deleted, must
        # not be taken for this one's.
        self.folder = Path(plan.arrays) / query
        self.state = MappedBackend(
            self.folder, root=plan.arrays, in_use=InUse(self.folder, plan.store), on_open=self._drop_operator
        )
        self._outbox = OutboxTransport(plan.parts, self.outbox)
        self._operators: dict[OperatorId, Operator[Any]] = {}
        self._frozen: set[OperatorId] = set()

    def close(self) -> None:
        """Release all files. There are hundreds, and Spark's callbacks need low file descriptors."""
        self._operators.clear()
        self.__dict__.pop("partition", None)
        self.state.close()

    @cached_property
    def model(self) -> GNN:
        """The model, from the store."""
        self.plan.register_plugins()
        path = self.plan.model
        if self.model_version != self.plan.model_version:
            path = find_model(self.store, self.model_version).path
        return get_model(self.store, path).prepared()

    def use_model(self, version: int) -> None:
        """Compute with this version of the model, 0 for that of the plan, from now on."""
        version = version or self.plan.model_version
        if version != self.model_version:
            self.model_version = version
            self.__dict__.pop("model", None)
            self._drop_operators()
            self.state.close_operators()  # rows of another model have other widths

    def _drop_operators(self) -> None:
        """Drop all operators behind Partition."""
        self._operators.clear()

    @cached_property
    def partition(self) -> Partition:
        """The operator Partition."""
        plan = self.plan
        state = self.state.open(PARTITION, 0)
        chain = plan.chain
        return Partition(
            plan.config.schema, plan.parts, plan.partitioner, state, chain.destinations, chain.pairs
        )

    @cached_property
    def timers(self) -> Timers:
        """The timers of the query on this host."""
        return Timers(self.folder, self.plan.chain.operators, self.plan.parts)

    @cached_property
    def rebuild(self) -> RebuildProgress:
        """The progress of a rebuild."""
        return RebuildProgress(self.folder, list(map(str, self.plan.chain.operators)))

    def write_next_expiry(self, time: int) -> None:
        """Record a time, in microseconds, before which no edge expires by the clock."""
        write_next_expiry(self.folder, time)

    def operator(self, id: OperatorId) -> Operator[Any]:
        """An operator behind Partition."""
        operator = self._operators.get(id)
        if operator is None:
            operator = build_operator(id, self.model, self.plan.config, self.state.open)
            self._operators[id] = operator
        return operator

    def _drop_operator(self, id: OperatorId) -> None:
        """Its state was opened: an object over earlier files is of no use."""
        self._operators.pop(id, None)
        if id == PARTITION:
            self.__dict__.pop("partition", None)

    def outbox(self, operator: OperatorId, part: int) -> Outbox:
        """The outbox of an operator part."""
        large = self.plan.large / self.query / str(operator) / str(part)
        return Outbox(self.state.folder(operator, part), large, self._make_large)

    def _make_large(self, folder: Path) -> None:
        """Make a folder for large files, which has a place that all users share."""
        private_folder(self.plan.large)
        private_folder(self.plan.large / self.query, tighten=True)
        private_folder(folder)

    def sweep(self) -> None:
        """Remove arrays that no start can use again, also those of earlier queries of this store."""
        sweep(Path(self.plan.arrays), self.plan.store, self.query)

    def batch_metrics(self) -> OperatorMetrics:
        """The metrics of operators that ran when Partition's output was sent."""
        return {}

    def admit(self, state: MappedPartState) -> None:
        """Refuse a task of a run that is over. Called under the lock of the state, before any change."""
        if state.run != self.query_run.number:
            self.query_run.check(self.store)
            state.run = self.query_run.number

    def begin_run(self, partition: MappedPartState) -> None:
        """As `admit`, for Partition: no part on this host accepts a task of an earlier run from now on."""
        if partition.run != self.query_run.number:
            self.query_run.check(self.store)
            for state in self.states_behind():
                with state.locked():  # waits for a worker of an earlier run that is still in its batch
                    state.run = self.query_run.number
            self.admit(partition)

    def states_behind(self) -> Iterator[MappedPartState]:
        """The states of all parts behind Partition."""
        for id in self.plan.chain.operators:
            for part in range(self.plan.parts):
                yield self.state.open(id, part)

    def versions(self) -> list[tuple[int, int]]:
        """The versions of all operator parts; where one was interrupted, its batch is `INTERRUPTED`."""
        return self._versions_of([PARTITION, *self.plan.chain.operators])

    def _versions_of(self, operators: Iterable[OperatorId]) -> list[tuple[int, int]]:
        versions = []
        for name in operators:
            for part in range(1 if name == PARTITION else self.plan.parts):
                state = self.state.open(name, part)
                if state.dirty and name != PARTITION:
                    with state.locked():  # waits for a worker of an earlier run that is still in its batch
                        pass
                versions.append((state.version[0], INTERRUPTED) if state.dirty else state.version)
        return versions

    def run(self, name: OperatorId, part: int, packets: Iterable[Bytes], sources: int) -> PartResult:
        """Run one batch of an operator part over its packets from this many source parts."""
        inbox = Inbox.of(packets, sources)
        version = inbox.version
        self.use_model(version.model)
        if version.refresh:
            self.state.reopen_changed(name, part)
        state = self.state.open(name, part)
        operator = self.operator(name)
        with state.locked(), finishing():
            self.admit(state)
            if (kept := self.kept_output(name, part, state, version)) is not None:
                return PartResult(kept, {"kept": 1, "packets": len(kept), "bytes": kept.nbytes})
            if version.refresh:
                self._check_epoch(name, part, state, version)
                self.rebuild.step(str(name))
            else:
                self._check_version(name, part, state, version)
            begun = time.perf_counter()
            before = operator.metrics.copy()
            state.begin()
            if version.refresh:
                state.reset()
            window = operator.pending(part)
            merged_before = 0 if window is None else window.merged
            # Read only now: before the check of the version, a later batch may overwrite what was sent.
            blocks = self._outbox.receive(inbox)
            try:
                output = run_part(operator, part, blocks, version.context)
            except COMPUTE_ERRORS as error:
                raise arrays_failed(state.folder, error) from error
            metrics = {key: operator.metrics[key] - before[key] for key in operator.metrics}
            if window is not None:
                # Before the version is stamped: the timers then show every batch that was applied, also
                # after a kill.
                self.timers.write(name, part, window)
                metrics |= {"pending": len(window), "oldest_ms": window.age_ms(version.clock)}
                metrics["merged"] = window.merged - merged_before
            sent = self.send(name, part, state, version, output)
            metrics["busy_us"] = int((time.perf_counter() - begun) * 1e6)
            metrics |= {"packets": len(sent), "bytes": sent.nbytes}
            if version.refresh and name == self.plan.chain.output:
                self.rebuild.end()
        self.freeze_objects(name)
        return PartResult(sent, metrics)

    def freeze_objects(self, name: OperatorId) -> None:
        """After an operator's first batch in this process, exclude all present objects from collection.

        Spark collects garbage after every task, and would visit all of them each time.
        """
        if name not in self._frozen:
            self._frozen.add(name)
            gc.collect()
            gc.freeze()

    def kept_output(
        self, name: OperatorId, part: int, state: MappedPartState, version: BatchVersion
    ) -> Packets | None:
        """The output of this batch, if it was applied already; None for other batches."""
        if state.dirty or state.version != (version.epoch, version.batch + 1):
            return None
        return self._outbox.kept(name, part, version)

    def _check_version(
        self, name: OperatorId, part: int, state: MappedPartState, version: BatchVersion
    ) -> None:
        """The arrays must be whole and one batch behind."""
        if not state.dirty and state.version == (version.epoch, version.batch + 1):
            state.begin()  # the output is lost, with the state that made it: the next run rebuilds both
        if state.dirty or state.version != (version.epoch, version.batch):
            found = "a batch that was begun and not finished" if state.dirty else f"{state.version}"
            raise StateLost(
                f"{name}, part {part}: the arrays in {self.state.folder(name, part)} hold {found}, but batch "
                f"{version.batch} of epoch {version.epoch} needs {(version.epoch, version.batch)}. Start the "
                "query again: it will rebuild them from the graph log."
            )

    def _check_epoch(
        self, name: OperatorId, part: int, state: MappedPartState, version: BatchVersion
    ) -> None:
        """A task that a stopped run has left behind must not overwrite what a later run has rebuilt."""
        if state.version[0] > version.epoch:
            raise StateLost(
                f"{name}, part {part}: epoch {state.version[0]} has begun in "
                f"{self.state.folder(name, part)}, but this task belongs to epoch {version.epoch}, which is "
                "over"
            )

    def send(
        self,
        name: OperatorId,
        part: int,
        state: MappedPartState,
        version: BatchVersion,
        blocks: Iterable[Block],
    ) -> Packets:
        """Put the blocks of this batch into the outbox, then stamp the version, in this order."""
        packets = self.keep(name, part, version, blocks)
        state.commit(version.epoch, version.batch + 1)
        return packets

    def keep(self, sender: OperatorId, part: int, version: BatchVersion, blocks: Iterable[Block]) -> Packets:
        """Put the blocks of this batch into the outbox."""
        if version.refresh:
            self._outbox.clear(sender, part)  # the files of earlier epochs
        return self._outbox.send(sender, part, version, blocks)
