"""Reproducible benchmarks, run by `d3gnn bench`."""

from d3gnn.bench.comparison import PeersResult, PeersSettings, measure_peers
from d3gnn.bench.growth import GrowthResult, measure_growth
from d3gnn.bench.interleaved import ModelsResult, ModelsSettings, measure_models
from d3gnn.bench.partitioners import PartitionerResult, measure_partitioner
from d3gnn.bench.recovery import RecoveryResult, RecoverySettings, measure_recovery
from d3gnn.bench.result import BenchResult
from d3gnn.bench.throughput import ThroughputResult, ThroughputSettings, measure_throughput
from d3gnn.bench.windows import WindowsResult, WindowsSettings, measure_windows
from d3gnn.bench.workload import Workload, file_workload, synthetic_workload

__all__ = [
    "BenchResult",
    "GrowthResult",
    "ModelsResult",
    "ModelsSettings",
    "PartitionerResult",
    "PeersResult",
    "PeersSettings",
    "RecoveryResult",
    "RecoverySettings",
    "ThroughputResult",
    "ThroughputSettings",
    "WindowsResult",
    "WindowsSettings",
    "Workload",
    "file_workload",
    "measure_growth",
    "measure_models",
    "measure_partitioner",
    "measure_peers",
    "measure_recovery",
    "measure_throughput",
    "measure_windows",
    "synthetic_workload",
]
