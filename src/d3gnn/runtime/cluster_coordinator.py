"""The coordinator of a query on a cluster: epochs come from the store, and state may be lost anywhere.

Partition sees only the state of its own task. Other parts check theirs when a batch reaches them; one that
has lost it marks the epoch in the store (`ClusterWorker`), and Partition starts the next epoch.
"""

from __future__ import annotations

import logging

from d3gnn.events import EventBatch
from d3gnn.private import NotPrivate
from d3gnn.runtime.cluster_worker import ClusterWorker
from d3gnn.runtime.coordinator import PlannedBatch
from d3gnn.runtime.log_coordinator import LogCoordinator
from d3gnn.runtime.version import BatchVersion
from d3gnn.runtime.worker import PartResult
from d3gnn.store.epochs import StoreUnreachable

log = logging.getLogger("d3gnn")


class ClusterCoordinator(LogCoordinator):
    """Commits every batch to the graph log, and starts a new epoch where state was lost."""

    def __init__(self, worker: ClusterWorker) -> None:
        super().__init__(worker)
        self._epochs = worker.epochs

    def run(self, batch: int, events: EventBatch | None, commands: set[str]) -> PartResult:
        try:
            self._epochs.require_store()
            return super().run(batch, events, commands)
        except (NotPrivate, FileNotFoundError):
            raise
        except OSError as error:
            if error.errno is not None and error.filename is not None:  # a local file, which says enough
                raise
            raise StoreUnreachable(f"the store {self._plan.store} cannot be reached: {error}") from error

    def _is_whole(self, version: BatchVersion) -> bool:
        return self._epochs.is_current(version.epoch) and super()._is_whole(version)

    def _is_newest(self, version: BatchVersion) -> bool:
        return self._epochs.is_current(version.epoch) and super()._is_newest(version)

    def _next_epoch(self, batch: int) -> int:
        newest = self._epochs.newest()
        if newest is not None:
            why = self._epochs.why_lost(newest.value) or "the task of Partition has no state of it"
            log.warning("batch %d rebuilds all state: epoch %d is over: %s", batch, newest.number, why)
        return self._epochs.begin(batch, self._worker.query_run.number, self._wanted).value

    def _send(self, planned: PlannedBatch, begun: float, is_settled: bool = True) -> PartResult:
        sent = super()._send(planned, begun, is_settled)
        if not is_settled:
            self._epochs.lose(planned.version.epoch, "it was replayed with another model")
        return sent
