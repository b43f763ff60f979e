"""Traffic, run time and latency of each window policy, compared with no window on the same stream."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from d3gnn.bench.check import compare_with, recompute
from d3gnn.bench.result import BenchResult, StepContext
from d3gnn.bench.settings import check_at_least_one, check_partitioner
from d3gnn.bench.throughput import oracle_batches
from d3gnn.bench.warm_up import warm_up
from d3gnn.bench.workload import Workload
from d3gnn.events import EventBatch
from d3gnn.kernel.operators import Operator
from d3gnn.kernel.windows import AdaptiveSession, Count, Session, Tumbling, Windows
from d3gnn.kernel.windows.sketch import SKETCH_BYTES
from d3gnn.nn import GNN, GraphSAGE
from d3gnn.runtime.local import LocalEngine
from d3gnn.runtime.metrics import weighted_percentiles

_SECOND = 1_000_000


@dataclass(frozen=True)
class WindowsSettings:
    """Settings of the windows benchmark; checked on construction.

    Batches arrive every `every` seconds of a simulated clock. The delay of a window is `window` batches.
    """

    batch: int = 500
    parts: int = 4
    #: Longest delay in each operator, in batches.
    window: int = 20
    #: Seconds between batches on the simulated clock.
    every: float = 0.1
    partitioner: str = "hdrf"
    layers: int = 2
    width: int = 64
    threads: int = 1
    seed: int = 0
    #: Every round runs all policies, interleaved. A batch does the same work in every round, and other
    #: processes slow down some of them: the fastest round of each batch counts.
    rounds: int = 5

    def __post_init__(self) -> None:
        check_at_least_one(self, "batch", "parts", "window", "layers", "width", "threads", "rounds")
        if not 0 < self.every < float("inf"):
            raise ValueError(f"every={self.every}: must be above 0 seconds")
        check_partitioner(self.partitioner)

    @property
    def longest(self) -> float:
        """The longest delay in each operator, in seconds."""
        return self.window * self.every

    def policies(self) -> dict[str, Windows]:
        """One window of each kind with the same longest delay, and one at the Edge operators only.

        `coalesce` lets many vertices share a deadline, so that their cascades are merged in later layers too.
        """
        longest = self.longest
        return {
            "none": None,
            "tumbling": Tumbling(longest, coalesce=longest),
            "tumbling, edges only": (Tumbling(longest, coalesce=longest), None),
            "session": Session(longest / 4, max_delay=longest, coalesce=longest / 2),
            "adaptive": AdaptiveSession(
                shortest=min(self.every, longest),
                widest=longest,
                period=10 * self.every,
                max_delay=longest,
                coalesce=longest / 2,
            ),
            "count": Count(self.window, max_delay=longest, coalesce=longest / 2),
        }


@dataclass(frozen=True)
class WindowsResult(BenchResult):
    """Measurements of each policy, by name; times are those of `LocalEngine.apply`.

    Each policy has

    - `window`, and `max_delay_s`: the longest delay in one operator;
    - `seconds`: the sum over all batches, each in its fastest round; `rounds_s`: the total of each round;
      `edges_per_second`;
    - `layers`: messages, bytes_to_edge, bytes_to_vertex and forwards of each layer; `merged_per_reduce`, the
      further edges that each partial aggregate covers; `forwards_saved`, the updates of a value merged into a
      later one;
    - `topology_bytes`; `forwards`: values that Vertex operators updated and sent; `merged`: changes merged
      into a later one, in all operators;
    - `p50_ms`, `p99_ms`, `max_ms`: latency from the arrival of the oldest event behind an output row to its
      emission, which is the delay on the simulated clock plus the time of the batch;
    - `imbalance`: busiest part divided by the mean; `bookkeeping_share`: time spent in windows, as a fraction
      of the run time; `sketch_bytes`; `memory_bytes`;
    - `max_relative_error` against recomputation, after a drain.
    """

    bench = "windows"
    policies: dict[str, dict[str, Any]]
    #: Without a window divided by with it: bytes of the last layer, and run time.
    traffic_reduction: dict[str, float]
    speedup: dict[str, float]
    events: int
    vertices: int
    batch: int
    parts: int


def measure_windows(
    workload: Workload,
    settings: WindowsSettings | None = None,
    *,
    on_step: StepContext = lambda _: nullcontext(),
) -> WindowsResult:
    """Run a workload under each policy, and compare the final embeddings with recomputation."""
    import torch

    settings = settings or WindowsSettings()
    torch.set_num_threads(settings.threads)
    in_channels = workload.schema.width or settings.width
    model = GraphSAGE(in_channels, settings.width, settings.layers, seed=settings.seed)
    workload = workload.cached()
    with on_step("recomputation"):
        schema = workload.schema.for_model(model.in_channels)
        expected = recompute(model, schema, oracle_batches(workload, settings.batch))
    found: dict[str, dict[str, Any]] = {}
    times: dict[str, list[np.ndarray]] = {name: [] for name in settings.policies()}
    edges = workload.edges()
    for number in range(1, settings.rounds + 1):
        for name, window in settings.policies().items():
            with on_step(f"{name}, round {number} of {settings.rounds}"):
                run = _Run(workload, model, settings, window)
                run.run()
                times[name].append(np.array(run.times))
                if number == settings.rounds:
                    error = compare_with(run.engine, expected).max_relative_error
                    found[name] = {**run.report(edges, times[name]), "max_relative_error": error}
                del run  # free its memory before the next run
    nothing = found["none"]
    return WindowsResult(
        settings={
            "workload": workload.name,
            "edges": workload.schema.edges,
            "directed": workload.schema.directed,
            "model": repr(model),
            **asdict(settings),
        },
        policies=found,
        traffic_reduction={
            name: _ratio(last_layer_bytes(nothing), last_layer_bytes(of)) for name, of in found.items()
        },
        speedup={name: _ratio(nothing["seconds"], of["seconds"]) for name, of in found.items()},
        events=workload.events,
        vertices=len(expected),
        batch=settings.batch,
        parts=settings.parts,
    )


def _ratio(numerator: float, denominator: float) -> float:
    return round(numerator / denominator, 3) if denominator else 0.0


def _merged_per_reduce(counts: dict[str, int] | None) -> float:
    return 0.0 if counts is None else _ratio(counts["merged"], counts["forwards"])


def last_layer_bytes(policy: dict[str, Any]) -> int:
    """Bytes sent in the last layer: values to Edge operators, partial aggregates to Vertex operators."""
    last = policy["layers"][-1]
    return int(last["bytes_to_edge"] + last["bytes_to_vertex"])


class _Run:
    """One run of the stream through an engine with a window, until nothing is pending."""

    def __init__(self, workload: Workload, model: GNN, settings: WindowsSettings, window: Windows) -> None:
        self.workload, self.settings, self.window = workload, settings, window
        sample = islice(workload.batches(min(settings.batch, 1000)), 3)
        warm_up(model, workload.schema, settings.parts, settings.partitioner, sample, window)
        self.engine = LocalEngine(
            model,
            parts=settings.parts,
            partitioner=settings.partitioner,
            schema=workload.schema,
            window=window,
        )
        #: Seconds of each batch.
        self.times: list[float] = []
        #: Ages of the outputs of each batch on the simulated clock: milliseconds, and counts.
        self._ages: list[tuple[np.ndarray, np.ndarray]] = []

    def run(self) -> None:
        gc.collect()
        gc.freeze()
        try:
            step = round(self.settings.every * _SECOND)
            for number, batch in enumerate(self._batches(), start=1):
                now = number * step
                start = time.perf_counter()
                updates = self.engine.apply(batch, clock=now)
                self.times.append(time.perf_counter() - start)
                self._ages.append(np.unique((now - updates.arrival) / 1e3, return_counts=True))
        finally:
            gc.unfreeze()

    def _batches(self) -> Iterator[EventBatch]:
        for batch in self.workload.batches(self.settings.batch):
            yield replace(batch, arrival=None)  # an event arrives when its batch is applied
        nothing = EventBatch.of([])
        while any(self.engine.pending().values()):
            yield nothing

    def report(self, edges: int, rounds: list[np.ndarray]) -> dict[str, Any]:
        """The measurements of this run; batch times are the minimum over all `rounds`."""
        engine, window, took = self.engine, self.window, np.min(rounds, axis=0)
        seconds = float(took.sum())
        ages = np.concatenate([age + took[i] * 1e3 for i, (age, _) in enumerate(self._ages)])
        counts = np.concatenate([counts for _, counts in self._ages])
        p50, p99, largest = weighted_percentiles(ages, counts, (50, 99, 100))
        operators: list[Operator[Any]] = [*engine.vertices, *engine.edges]
        in_windows = sum(operator.metrics["window_ns"] for operator in operators) / 1e9
        sketches = sum(isinstance(operator.window, AdaptiveSession) for operator in operators) * engine.parts
        window_metrics = engine.window_metrics()
        delays = [each.longest for each in engine.config.windows if each is not None]
        return {
            "window": "no window" if window is None else repr(window),
            "max_delay_s": max(delays, default=0.0),
            "seconds": round(seconds, 4),
            "rounds_s": [round(float(each.sum()), 4) for each in rounds],
            "edges_per_second": round(edges / seconds, 1),
            "layers": [
                {
                    "messages": edge.metrics["messages"],
                    "bytes_to_edge": engine.metrics[f"{edge.name}_bytes"],
                    "bytes_to_vertex": engine.metrics[f"{vertex.name}_bytes"],
                    "forwards": vertex.metrics["touched"],
                    "merged_per_reduce": _merged_per_reduce(window_metrics.get(edge.name)),
                    "forwards_saved": window_metrics.get(vertex.name, {}).get("merged", 0),
                }
                for edge, vertex in zip(engine.edges, engine.vertices[1:], strict=True)
            ],
            "topology_bytes": engine.metrics["topology_bytes"],
            "forwards": sum(vertex.metrics["touched"] for vertex in engine.vertices),
            "merged": sum(each["merged"] for each in window_metrics.values()),
            "p50_ms": round(p50, 3),
            "p99_ms": round(p99, 3),
            "max_ms": round(largest, 3),
            "imbalance": round(engine.imbalance, 4),
            "bookkeeping_share": round(in_windows / sum(self.times), 4),
            "sketch_bytes": sketches * SKETCH_BYTES,
            "memory_bytes": sum(engine.memory().values()),
        }
