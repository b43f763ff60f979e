"""Which worker and which coordinator a plan needs."""

from __future__ import annotations

from functools import cache

from d3gnn.runtime.chain_worker import ChainWorker
from d3gnn.runtime.cluster_coordinator import ClusterCoordinator
from d3gnn.runtime.cluster_worker import ClusterWorker
from d3gnn.runtime.log_coordinator import LogCoordinator
from d3gnn.runtime.plan import Plan
from d3gnn.runtime.worker import Worker


def worker_of(plan: Plan, query: str) -> Worker:
    """The worker of a query in this process."""
    if plan.homes:
        return ClusterWorker.of(plan, query)
    return ChainWorker.of(plan, query) if plan.in_one_task else Worker.of(plan, query)


@cache
def coordinator_of(plan: Plan, query: str) -> LogCoordinator:
    """The coordinator of a query in this process; it remembers what it has read of the store."""
    worker = worker_of(plan, query)
    return ClusterCoordinator(worker) if isinstance(worker, ClusterWorker) else LogCoordinator(worker)
