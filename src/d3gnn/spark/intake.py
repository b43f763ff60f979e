"""Partition's task: the graph log is its commit point, and it decides when everything begins anew.

Entry b of the log is made before anything of batch b is sent on; a batch that is run again reads it instead
of deciding again. Partition runs first in every batch and can see the versions of all operators' arrays on
the host: if any of them is neither at this batch nor one behind, it rebuilds the graph from the log and sends
it whole, in a new epoch, through the same chain.
"""

from __future__ import annotations

import io
import time
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from d3gnn.events import EventBatch, Reason
from d3gnn.kernel.arrays import MappedSpace
from d3gnn.kernel.log import compact
from d3gnn.kernel.operators.partition import Partitioned
from d3gnn.kernel.windows import newest_event
from d3gnn.spark.gone import Gone
from d3gnn.spark.graph_log import EntryMeta, GraphLog
from d3gnn.spark.made_with import MadeWith
from d3gnn.spark.parcels import Stamp
from d3gnn.spark.runtime import Done, Plan, Runtime
from d3gnn.spark.store import Store

#: Counters of Partition's space: the clocks after the last batch. Those between are of `MadeWith`.
_CLOCK, _NEWEST_EVENT = 101, 103


class DeadLetterFound(RuntimeError):
    """An event could not be applied, and the pipeline was told to stop at such events."""


@cache
def intake_of(plan: Plan, query: str) -> Intake:
    """The one of a query in this process: it knows what it has seen of the store."""
    return Intake(Runtime.of(plan, query))


class Clocks(NamedTuple):
    """When a batch is taken in, and the newest event time so far; neither goes back."""

    batch: int
    event: int


class Intake:
    """Takes the events of each batch into the log and the chain."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._plan = runtime, runtime.plan
        self._store = Store(runtime.plan.store)
        self._log = GraphLog(self._store)

    def run(self, batch: int, events: EventBatch | None, commands: set[str]) -> Done:
        """Take in batch number `batch` of the query."""
        begun = time.perf_counter()
        self._store.bind(self._runtime.query)
        if batch == 0:
            self._runtime.sweep()
        space = self._runtime.space("partition", 0)
        assert isinstance(space, MappedSpace)
        with space.locked():
            stamp = Stamp(space.version[0], batch, False)
            if "refresh" not in commands and self._same_plan(space, batch) and self._all_whole(stamp):
                sent = self._runtime.sent("partition", 0, space, stamp)
                if sent is not None:
                    return Done(sent, {"kept": 1})
                if not space.dirty and space.version == (stamp.epoch, batch):
                    space.begin()
                    if batch == 0:  # what another query has left there is nothing to wait for
                        self._runtime.board.clear()
                    result, clocks = self._next(_clocks(space), batch, events)
                    # A run that is to end asks in every batch for the end; it is there when no events are.
                    drain = "drain" in commands or ("finish" in commands and events is None)
                    stamp = stamp._replace(clock=self._now(clocks), drain=drain)
                    return self._finish(space, stamp, clocks, result, begun)
            self._log.check_next(batch)
            epoch = 1 + max(version[0] for version in self._versions())
            space.begin()
            refreshed, clocks = self._rebuild(space, batch, events)
            # What is pending from now on, operators say anew; those that had a window may have none any more.
            self._runtime.board.clear()
            stamp = Stamp(epoch, batch, True, self._now(clocks))
            return self._finish(space, stamp, clocks, refreshed, begun)

    def _same_plan(self, space: MappedSpace, batch: int) -> bool:
        """Whether the arrays were made with this model, and sent by these rules; before the first batch there
        are none.

        What waits in a window that is no more would wait for ever; what was too small a change, or not worth
        an alert, would never be told.
        """
        is_first = batch == 0 and space.version[1] == 0
        return is_first or MadeWith.read(space.counters) == self._plan.made_with

    def _now(self, clocks: Clocks) -> int:
        """What the windows tell the time by."""
        return clocks.event if self._plan.clock == "event" else clocks.batch

    def _finish(
        self, space: MappedSpace, stamp: Stamp, clocks: Clocks, result: Partitioned, begun: float
    ) -> Done:
        self._plan.made_with.write(space.counters)
        space.counters[_CLOCK], space.counters[_NEWEST_EVENT] = clocks
        parcels = self._runtime.send("partition", 0, space, stamp, result.blocks)
        status, (vertices, replicas) = result.status, self._runtime.partition.made
        metrics = {
            "busy_us": int((time.perf_counter() - begun) * 1e6),
            "applied": int((status == Reason.APPLIED).sum()),
            "repeated": int((status == Reason.REPEATED).sum()),
            "late": int((status == Reason.LATE).sum()),
            "dead": int((status >= Reason.NULL_ID).sum()),
            "refreshed": int(stamp.refresh),
            "vertices": vertices,
            "replicas": replicas,
        }
        self._runtime.settle("partition")
        return Done(parcels, metrics)

    def _next(self, last: Clocks, batch: int, events: EventBatch | None) -> tuple[Partitioned, Clocks]:
        """The usual case: decide the batch and log it; or, where it was logged before, do the same again.

        `last` are the clocks after the last batch; those of this one come with it.
        """
        batch_events = _NO_EVENTS if events is None else events
        logged = self._log.read(batch)
        if logged is not None:
            entry, meta = logged
            self._log.same_input(meta, batch_events)
            partition = self._runtime.partition
            result = partition.process(entry.events, 0, replay=entry.part)
            result.blocks += partition.queries(batch_events, meta.clock)  # of which the log knows nothing
            return result, _logged_clocks(meta)
        self._log.check_next(batch)
        clock = max(time.time_ns() // 1000, last.batch)
        result = self._runtime.partition.process(batch_events, clock)
        self._dead_letters(batch, batch_events, result)
        newest = max(last.event, newest_event(batch_events, result.status, clock))
        meta = EntryMeta.of(
            batch, batch_events, result.status, model_version=self._plan.model_version, clock=clock,
            newest_event=newest,
        )  # fmt: skip
        if not self._log.create(batch, result.entry, meta):
            raise RuntimeError(
                f"batch {batch} was logged by another process meanwhile: is the query running twice?"
            )
        return result, Clocks(clock, newest)

    def _rebuild(
        self, space: MappedSpace, batch: int, events: EventBatch | None
    ) -> tuple[Partitioned, Clocks]:
        """Everything up to and with this batch, as one batch."""
        partition, plan = self._runtime.partition, self._plan
        events = _NO_EVENTS if events is None else events
        gone = Gone(events, plan.schema.directed, edges=self._runtime.model.scores_edges)
        meta = self._log.meta(batch)
        if meta is not None and not gone:
            self._log.same_input(meta, events)
            clocks = _logged_clocks(meta)
        else:
            last = self._log.meta(batch - 1) if batch else None
            space.reset()
            before = compact(self._log.entries(batch - 1), plan.schema, plan.parts)
            if before is not None:
                partition.process(before.events, 0, replay=before.part)
            gone.see(partition, before)
            _, clocks = self._next(_logged_clocks(last) if last else Clocks(0, 0), batch, events)
        space.reset()
        self._log.compact(batch, plan.schema, plan.parts)
        whole = next(iter(self._log.entries(batch)), None)  # the snapshot that was just made
        if whole is None:
            result = partition.process(_NO_EVENTS, 0)
        else:
            result = partition.process(whole.events, 0, replay=whole.part)
        result.blocks += gone.blocks(partition, whole, time.time_ns() // 1000)
        result.blocks += partition.queries(events, clocks.batch)
        return result, clocks

    def _all_whole(self, stamp: Stamp) -> bool:
        """Whether every operator part is at this batch, or one behind."""
        fine = {(stamp.epoch, stamp.batch), (stamp.epoch, stamp.batch + 1)}
        return all(version in fine for version in self._versions())

    def _versions(self) -> list[tuple[int, int]]:
        """The versions of all operator parts; (0, -1) for one that somebody died in."""
        plan, versions = self._plan, []
        for name in ["partition", *plan.operators]:
            for part in range(1 if name == "partition" else plan.parts):
                space = self._runtime.space(name, part)
                if space.dirty and name != "partition":
                    with space.locked():  # waits for a worker of an earlier run, if there is one
                        pass
                versions.append((space.version[0], -1) if space.dirty else space.version)
        return versions

    def _dead_letters(self, batch: int, events: EventBatch, result: Partitioned) -> None:
        """Write the bad events of a batch, with their reasons, beside the log; once, whoever is first."""
        bad = (result.status >= Reason.NULL_ID).nonzero()[0]
        if not len(bad):
            return
        reasons = [Reason(int(status)) for status in result.status[bad]]
        if self._plan.stop_on_dead_letter:
            raise DeadLetterFound(f"batch {batch}: {events.row(int(bad[0]))}: {reasons[0].text}")
        table = replace(events.take(bad), origin=None).to_arrow()
        table = table.append_column("reason", pa.array([reason.text for reason in reasons]))
        table = table.append_column("batch", pa.array([batch] * len(bad), pa.int64()))
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        self._store.create(f"dead_letters/{batch:012d}.parquet", buffer.getvalue())


_NO_EVENTS = EventBatch.of([])


def _clocks(space: MappedSpace) -> Clocks:
    return Clocks(*space.counters[[_CLOCK, _NEWEST_EVENT]].tolist())


def _logged_clocks(meta: EntryMeta) -> Clocks:
    return Clocks(meta.clock, meta.newest_event)
