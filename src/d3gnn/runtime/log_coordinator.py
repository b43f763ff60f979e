"""The coordinator of a query on Spark: the graph log is its commit point.

Entry b of the log is created before anything of batch b is sent; a replayed batch reads it instead of
deciding again. Partition runs first in every batch and sees the versions of all operator parts on the host.
If one of them is neither at this batch nor one behind, the coordinator rebuilds the graph from the log and
sends it whole, in a new epoch, through the same chain: a refresh. Its output is kept: the same batch again
in the same run, or again after a refresh that reached Partition's stamp, sends the same.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from d3gnn.events import EventBatch, Reason
from d3gnn.kernel.mapped_state import MappedPartState, StateLost
from d3gnn.kernel.operators import PARTITION
from d3gnn.kernel.operators.partition import PartitionedBatch
from d3gnn.kernel.windows.clock import Clocks
from d3gnn.runtime import rebuild_progress
from d3gnn.runtime.config_fingerprint import ConfigFingerprint
from d3gnn.runtime.coordinator import NO_EVENTS, Coordinator, PlannedBatch
from d3gnn.runtime.damaged_arrays import COMPUTE_ERRORS, arrays_failed
from d3gnn.runtime.finishing import finishing
from d3gnn.runtime.log_position import is_of_log, write_position
from d3gnn.runtime.tombstones import TombstoneFinder
from d3gnn.runtime.version import BatchVersion
from d3gnn.runtime.whole_graph import WholeGraph
from d3gnn.runtime.worker import PartResult, Worker
from d3gnn.store.dead_letters import DeadLetterFound, put_dead_letters
from d3gnn.store.deployments import last_deployment
from d3gnn.store.entry import EntryMeta
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.names import entry_path
from d3gnn.store.owners import Owners
from d3gnn.store.runs import RunIsOver
from d3gnn.types import Ints


class Applied(NamedTuple):
    """How the last batch in the state of Partition was applied."""

    #: The number of the run that did it.
    run: int
    refresh: int

    @staticmethod
    def view(state: MappedPartState) -> Ints:
        """The counters that hold it."""
        return state.counters("applied", len(Applied._fields))


class LogCoordinator(Coordinator):
    """Commits every batch to the graph log, and rebuilds state that is missing or out of date."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._plan = worker, worker.plan
        self._store = worker.store
        self._log = GraphLog(self._store)
        self._owners = Owners(self._store, self._log)
        #: The model and the settings that the batch needs.
        self._wanted = self._planned = worker.plan.config_fingerprint
        # Of Partition, opened once a batch: if its files are deleted meanwhile, the version must not be
        # stamped on new, empty ones.
        self._state: MappedPartState

    def run(self, batch: int, events: EventBatch | None, commands: set[str]) -> PartResult:
        """Process batch number `batch` of the query, with the commands of the control source.

        From here on a batch has its number in the log, which differs from the query's own if another query
        owned the store before.
        """
        begun = time.perf_counter()
        worker = self._worker
        offset = self._owners.bind(worker.query, adopt=self._plan.adopt)
        if batch == 0:
            worker.sweep()
        batch += offset
        state = self._state = worker.state.open(PARTITION, 0)
        batch_events, now = NO_EVENTS if events is None else events, time.time_ns() // 1000
        with state.locked(), finishing():
            worker.begin_run(state)
            self._wanted = self._newest(state, reread="deploy" in commands)
            worker.use_model(self._wanted.model)
            version = BatchVersion(state.version[0], batch, False)
            same_settings, refresh = self._same_settings(state, batch), "refresh" in commands
            if state.version[1] == batch + 1:
                if self._answers(version, batch_events, same_settings, refresh):
                    kept = worker.kept_output(PARTITION, 0, state, version)
                    if kept is not None:
                        return PartResult(kept, {"kept": 1, "model_version": self._wanted.model})
            elif same_settings and not refresh and self._is_one_behind(version):
                state.begin()
                if batch == 0:  # timers of another query on this folder
                    worker.timers.clear()
                # A run that is to end asks for it in every batch; it drains in the first without events.
                drain = "drain" in commands or ("finish" in commands and events is None)
                try:
                    planned = self.next_batch(batch, batch_events, now, drain)
                except COMPUTE_ERRORS as error:
                    raise arrays_failed(state.folder, error) from error
                return self._send(planned, begun)
            self._log.look_again()
            self._check_rebuild(batch)
            self._log.check_next(batch)
            state.begin()
            self._wanted = self._newest(state, reread=True)
            worker.use_model(self._wanted.model)
            logged = self._log.meta(batch)
            planned = self.rebuild(batch, batch_events, now)
            # Operators write their timers again; some that had a window may have none now.
            worker.timers.clear()
            # A sink that has the rows of this batch from an earlier run, of another model, drops these.
            is_settled = logged is None or logged.model_version == self._wanted.model
            return self._send(planned, begun, is_settled)

    def next_batch(self, batch: int, events: EventBatch, time: int, drain: bool) -> PlannedBatch:
        state = self._state
        result, clocks = self._commit(_stored_clocks(state), batch, events, time)
        now = clocks.now(self._plan.config.clock)
        version = BatchVersion(state.version[0], batch, False, now, drain, self._wanted.model)
        return PlannedBatch(version, clocks, result)

    def rebuild(self, batch: int, events: EventBatch, time: int) -> PlannedBatch:
        worker, plan, state = self._worker, self._plan, self._state
        epoch = self._next_epoch(batch)
        partition = worker.partition
        deleted = TombstoneFinder(events, plan.config.schema.directed, edges=worker.model.scores_edges)
        meta = self._log.meta(batch)
        # Where edges expire, a batch may delete more than its events say.
        expires = plan.config.schema.ttl is not None
        state.reset()
        worker.rebuild.step(rebuild_progress.LOG)
        if meta is not None and self._log.is_replay(meta, events) and not deleted and not expires:
            clocks, watermark = _logged_clocks(meta), meta.watermark
            entries = self._log.entries(batch)
            worker.rebuild.step(rebuild_progress.PARTITION)
            whole = WholeGraph(entries, partition)
        else:
            last = self._log.meta(batch - 1) if batch else None
            entries = self._log.entries(batch - 1) if batch else []
            worker.rebuild.step(rebuild_progress.PARTITION)
            whole = WholeGraph(entries, partition)
            before = whole.snapshot if deleted or expires else None
            if last is not None:
                partition.watermark = last.watermark
            committed, clocks = self._commit(_logged_clocks(last) if last else Clocks(), batch, events, time)
            deleted = deleted.with_expired(committed.entry.events)
            deleted.record_before(before)
            watermark = partition.watermark
            if len(committed.entry):  # else what to send is known
                partition.reset()
                whole = WholeGraph([before or whole.entry, committed.entry], partition)
        self._log.compact(batch, graph=whole.snapshot)
        result = whole.send()
        partition.watermark = watermark
        result.blocks += deleted.tombstones(partition, whole.snapshot, time)
        result.blocks += partition.queries(events, clocks.batch)
        now = clocks.now(plan.config.clock)
        version = BatchVersion(epoch, batch, True, now, model=self._wanted.model)
        return PlannedBatch(version, clocks, result)

    def _next_epoch(self, batch: int) -> int:
        """An epoch that no part is at."""
        return 1 + max(version[0] for version in self._worker.versions())

    def _answers(self, version: BatchVersion, events: EventBatch, same_settings: bool, refresh: bool) -> bool:
        """Whether the last batch in the state is this one, as it is wanted; `refresh`: by a command."""
        applied = Applied(*Applied.view(self._state).tolist())
        # Within a run, a batch has one output, although the model may be changed meanwhile.
        in_this_run = 0 < applied.run == self._worker.query_run.number
        if not (in_this_run or (same_settings and (applied.refresh or not refresh))):
            return False
        # A refresh replaces whatever a stop has left of the parts behind.
        whole = self._is_newest(version) if applied.refresh else self._is_whole(version)
        return whole and not self._state.dirty and self._was_applied(version.batch, events)

    def _check_rebuild(self, batch: int) -> None:
        """Refuse to rebuild for a task that is out of date, and a second time for a batch of a run.

        A retried stage ends here: other tasks may have read what it sent before.
        """
        store, run = self._store, self._worker.query_run
        if not run.number:
            return
        run.check(store)
        if batch + 1 > run.last and store.exists(entry_path(batch + 1)):
            raise RunIsOver(
                f"batch {batch} is over: {entry_path(batch + 1)} in {store.uri} was written since run "
                f"{run.number} of the pipeline began. This task has changed nothing"
            )
        was_begun = batch > run.last and store.exists(entry_path(batch))
        if was_begun or not run.claim_rebuild(store, batch):
            raise StateLost(
                f"the arrays in {self._worker.folder} are lost, and were whole or rebuilt when run "
                f"{run.number} of the pipeline began batch {batch}. Start the query again: it will rebuild "
                "them from the graph log"
            )

    def _same_settings(self, state: MappedPartState, batch: int) -> bool:
        """Whether state was built with the current model and the settings of this plan.

        With a window removed, what is pending there would stay pending; with another threshold, changes that
        were not sent, or not worth an alert, would never be.
        """
        is_first = batch == 0 and state.version[1] == 0
        return is_first or ConfigFingerprint.read(state).covers(self._wanted)

    def _newest(self, state: MappedPartState, *, reread: bool) -> ConfigFingerprint:
        """The settings of the plan with the model that was deployed last, as far as this host knows it.

        The store is read again only for a command or a rebuild: a listing may be slow. Between them, the
        state shows what another process of the host has read.
        """
        newest, built_with = self._planned, ConfigFingerprint.read(state)
        if built_with.deployment > newest.deployment:
            newest = newest._replace(model=built_with.model, deployment=built_with.deployment)
        if reread and (last := last_deployment(self._store)) and last.number > newest.deployment:
            newest = newest._replace(model=last.model, deployment=last.number)
        return newest

    def _send(self, planned: PlannedBatch, begun: float, is_settled: bool = True) -> PartResult:
        worker, state, result = self._worker, self._state, planned.result
        (self._wanted if is_settled else self._wanted.unsettled()).write(state)
        state.counters("clocks", len(planned.clocks))[:] = planned.clocks
        digest = self._log.digest(planned.version.batch)
        assert digest is not None, "a batch is logged before it is sent"
        write_position(state, digest)
        Applied.view(state)[:] = Applied(self._worker.query_run.number, int(planned.version.refresh))
        if self._plan.config.schema.idle is not None:
            worker.write_next_expiry(worker.partition.next_expiry)
        packets = worker.send(PARTITION, 0, state, planned.version, result.blocks)
        status, (vertices, replicas) = result.status, worker.partition.created
        metrics = {
            "busy_us": int((time.perf_counter() - begun) * 1e6),
            "applied": int((status == Reason.APPLIED).sum()),
            "repeated": int((status == Reason.REPEATED).sum()),
            "late": int((status == Reason.LATE).sum()),
            "dead": int((status >= Reason.NULL_ID).sum()),
            "refreshed": int(planned.version.refresh),
            "expired": result.expired,
            "vertices": vertices,
            "replicas": replicas,
            "live": worker.partition.vertex_count,
            "lacking": worker.partition.lacking,
            "model_version": self._wanted.model,
            "deployed_us": self._deployed_at(planned.version),
        }
        worker.freeze_objects(PARTITION)
        return PartResult(packets, metrics, worker.batch_metrics())

    def _deployed_at(self, version: BatchVersion) -> int:
        """When the model was deployed, if this batch is the first one of that model; else 0."""
        if not version.refresh or not version.batch:
            return 0
        before, last = self._log.meta(version.batch - 1), last_deployment(self._store)
        is_first = last is not None and before is not None and before.model_version != version.model
        return last.at if is_first and last is not None and last.model == version.model else 0

    def _commit(
        self, last: Clocks, batch: int, events: EventBatch, time: int
    ) -> tuple[PartitionedBatch, Clocks]:
        """Apply a batch and log it; or, where it was logged before, apply its entry again.

        `last` are the clocks after the batch before; those after this one are returned.
        """
        partition, logged = self._worker.partition, self._log.read(batch)
        if logged is not None and self._log.is_replay(logged[1], events):
            entry, meta = logged
            result = partition.process(entry.events, 0, replay=entry.part)
            partition.watermark = meta.watermark
            result.blocks += partition.queries(events, meta.clock)  # queries are not logged
            return result, _logged_clocks(meta)
        self._log.check_new(batch)
        clocks = last.at(time)
        result = partition.process(events, clocks.batch)
        clocks = clocks.seen(events, result.status)
        self._keep_dead_letters(batch, events, result)
        meta = EntryMeta.of(
            batch, events, result.status, model_version=self._wanted.model, clock=clocks.batch,
            newest_event=clocks.event, watermark=partition.watermark,
        )  # fmt: skip
        if not self._log.create(batch, result.entry, meta):
            raise RuntimeError(
                f"batch {batch} was logged by another process at the same time: the query is running twice. "
                "Stop one of the two"
            )
        return result, clocks

    def _was_applied(self, batch: int, events: EventBatch) -> bool:
        """Whether these events are the batch that state contains as its last one, and the log as well."""
        if not is_of_log(self._state, self._log):
            return False
        meta = self._log.meta(batch)
        return meta is not None and self._log.is_replay(meta, events)

    def _is_one_behind(self, version: BatchVersion) -> bool:
        """Whether this batch follows on the state, which is whole."""
        state = self._state
        return not state.dirty and self._is_whole(version) and is_of_log(state, self._log)

    def _is_whole(self, version: BatchVersion) -> bool:
        """Whether every operator part is at this batch, or one behind."""
        expected = {(version.epoch, version.batch), (version.epoch, version.batch + 1)}
        return all(version in expected for version in self._worker.versions())

    def _is_newest(self, version: BatchVersion) -> bool:
        """Whether no operator part is of a later epoch."""
        return all(epoch <= version.epoch for epoch, _ in self._worker.versions())

    def _keep_dead_letters(self, batch: int, events: EventBatch, result: PartitionedBatch) -> None:
        if self._plan.stop_on_dead_letter and (result.status >= Reason.NULL_ID).any():
            raise DeadLetterFound.of(batch, events, result.status)
        put_dead_letters(self._store, batch, events, result.status)


def _stored_clocks(state: MappedPartState) -> Clocks:
    return Clocks(*state.counters("clocks", len(Clocks._fields)).tolist())


def _logged_clocks(meta: EntryMeta) -> Clocks:
    return Clocks(meta.clock, meta.newest_event)
