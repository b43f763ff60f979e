"""Which worker and which coordinator a plan needs."""

from __future__ import annotations

from functools import cache

from d3gnn.runtime.chain_worker import ChainWorker
from d3gnn.runtime.cluster_coordinator import ClusterCoordinator
from d3gnn.runtime.cluster_worker import ClusterWorker
from d3gnn.runtime.log_coordinator import LogCoordinator
from d3gnn.runtime.plan import Plan
from d3gnn.runtime.worker import Worker


def worker_class(plan: Plan) -> type[Worker]:
    """The class of the workers of a plan."""
    return ClusterWorker if plan.homes else ChainWorker if plan.in_one_task else Worker


@cache
def coordinator_of(worker: Worker) -> LogCoordinator:
    """The coordinator of a worker's query in this process; it remembers what it has read of the store."""
    return ClusterCoordinator(worker) if isinstance(worker, ClusterWorker) else LogCoordinator(worker)
