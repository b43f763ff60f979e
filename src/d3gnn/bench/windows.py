"""What windows save and what they cost: the same stream under every window, against none."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from d3gnn.bench.check import hold_against, recompute
from d3gnn.bench.result import Around, BenchResult
from d3gnn.bench.settings import at_least_one, known_partitioner
from d3gnn.bench.throughput import for_the_oracle
from d3gnn.bench.warm_up import warm_up
from d3gnn.bench.workload import Workload
from d3gnn.events import EventBatch
from d3gnn.kernel.local import LocalEngine
from d3gnn.kernel.operators import Operator
from d3gnn.kernel.windows import AdaptiveSession, Count, Session, Tumbling, Windows
from d3gnn.kernel.windows.sketch import SKETCH_BYTES
from d3gnn.nn import GNN, GraphSAGE
from d3gnn.spark.metrics import weighted_percentiles

_SECOND = 1_000_000


@dataclass(frozen=True)
class WindowsSettings:
    """Batches come every so many seconds, on a clock that is set by hand; windows last some of them."""

    batch: int = 500
    parts: int = 4
    #: Batches that anything waits for at most, in each operator.
    window: int = 20
    #: Seconds between batches.
    every: float = 0.1
    partitioner: str = "hdrf"
    layers: int = 2
    width: int = 64
    threads: int = 1
    seed: int = 0
    #: The policies take turns. In every round the same batches do the same work, and other processes slow
    #: down some of them: of each batch, the fastest round counts.
    rounds: int = 5

    def __post_init__(self) -> None:
        at_least_one(self, "batch", "parts", "window", "layers", "width", "threads", "rounds")
        if not 0 < self.every < float("inf"):
            raise ValueError(f"every={self.every}: more than 0 seconds, please")
        known_partitioner(self.partitioner)

    @property
    def longest(self) -> float:
        """Seconds that anything waits at most, in each operator."""
        return self.window * self.every

    def policies(self) -> dict[str, Windows]:
        """One window of each kind, all with the same longest delay, and one at Edge operators alone.

        Deadlines of many vertices fall together: what they set off further on is then merged, too.
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
    """What came of each policy, by name; times are those of `LocalEngine.apply`.

    Each has: `window`, `delay_s` (the most that anything waits in one operator), `seconds` (of all batches,
    each in the round in which it was fastest), `rounds_s` (of each round as it was), `edges_per_second`,
    `layers` (messages, bytes to Edge, bytes to Vertex and forwards of each; `merged_per_reduce`, the edges
    that each partial aggregate brought along beside the first, and `forwards_saved`, the changes of a value
    that were sent along with another), `topology_bytes`, `forwards` (values that Vertex operators renewed
    and sent), `merged` (changes that were sent along with another, in all operators),
    `p50_ms`, `p99_ms`, `max_ms` (from the arrival of the oldest event behind an output until it is out:
    waiting on the clock, and the time of its batch), `imbalance` (busiest part over the mean),
    `bookkeeping_share` (of the run time), `sketch_bytes`, `memory_bytes`, and `max_relative_error` when all
    is drained.
    """

    bench = "windows"
    policies: dict[str, dict[str, Any]]
    #: Times fewer bytes of the last layer than without a window, and times less run time.
    fewer_bytes: dict[str, float]
    less_time: dict[str, float]
    events: int
    vertices: int
    batch: int
    parts: int


def measure_windows(
    workload: Workload, settings: WindowsSettings | None = None, *, around: Around = lambda _: nullcontext()
) -> WindowsResult:
    """Run a workload through one engine for each policy, and hold each end against recomputation."""
    import torch

    settings = settings or WindowsSettings()
    torch.set_num_threads(settings.threads)
    widths = [workload.schema.width or settings.width] + [settings.width] * settings.layers
    model = GraphSAGE(widths, seed=settings.seed)
    workload = workload.held()
    with around("recomputation"):
        schema = workload.schema.for_model(model.in_width)
        expected = recompute(model, schema, for_the_oracle(workload, settings.batch))
    found: dict[str, dict[str, Any]] = {}
    times: dict[str, list[np.ndarray]] = {name: [] for name in settings.policies()}
    edges = workload.edges()
    for number in range(1, settings.rounds + 1):
        for name, window in settings.policies().items():
            with around(f"{name}, round {number} of {settings.rounds}"):
                run = _Run(workload, model, settings, window)
                run.go()
                times[name].append(np.array(run.times))
                if number == settings.rounds:
                    error = hold_against(run.engine, expected).max_relative_error
                    found[name] = {**run.report(edges, times[name]), "max_relative_error": error}
                del run  # its memory is for the next
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
        fewer_bytes={
            name: _over(last_layer_bytes(nothing), last_layer_bytes(of)) for name, of in found.items()
        },
        less_time={name: _over(nothing["seconds"], of["seconds"]) for name, of in found.items()},
        events=workload.events,
        vertices=len(expected),
        batch=settings.batch,
        parts=settings.parts,
    )


def _over(one: float, other: float) -> float:
    return round(one / other, 3) if other else 0.0


def _merged_per_reduce(said: dict[str, int] | None) -> float:
    return 0.0 if said is None else _over(said["merged"], said["forwards"])


def last_layer_bytes(policy: dict[str, Any]) -> int:
    """Bytes of the last layer: values on their way to Edge, partial aggregates on their way to Vertex."""
    last = policy["layers"][-1]
    return int(last["bytes_to_edge"] + last["bytes_to_vertex"])


class _Run:
    """A stream through an engine with a window, batch by batch, and on until nothing waits."""

    def __init__(self, workload: Workload, model: GNN, settings: WindowsSettings, window: Windows) -> None:
        self.workload, self.settings, self.window = workload, settings, window
        sample = islice(workload.batches(min(settings.batch, 1000)), 3)
        warm_up(model, workload.schema, settings.parts, settings.partitioner, sample, window)
        self.engine = LocalEngine(model, settings.parts, settings.partitioner, workload.schema, window=window)
        #: Seconds of each batch.
        self.times: list[float] = []
        #: How old the outputs of each batch were on the clock: milliseconds, and how many of them.
        self._ages: list[tuple[np.ndarray, np.ndarray]] = []

    def go(self) -> None:
        gc.collect()
        gc.freeze()
        try:
            step = round(self.settings.every * _SECOND)
            for number, batch in enumerate(self._batches(), start=1):
                now = number * step
                begun = time.perf_counter()
                updates = self.engine.apply(batch, clock=now)
                self.times.append(time.perf_counter() - begun)
                self._ages.append(np.unique((now - updates.arrival) / 1e3, return_counts=True))
        finally:
            gc.unfreeze()

    def _batches(self) -> Iterator[EventBatch]:
        for batch in self.workload.batches(self.settings.batch):
            yield replace(batch, arrival=None)  # they arrive when they are taken in
        nothing = EventBatch.of([])
        while any(self.engine.pending().values()):
            yield nothing

    def report(self, edges: int, rounds: list[np.ndarray]) -> dict[str, Any]:
        """Of this round, which is the last; times are those of all `rounds`, by batch."""
        engine, window, took = self.engine, self.window, np.min(rounds, axis=0)
        seconds = float(took.sum())
        ages = np.concatenate([age + took[i] * 1e3 for i, (age, _) in enumerate(self._ages)])
        counts = np.concatenate([counts for _, counts in self._ages])
        p50, p99, largest = weighted_percentiles(ages, counts, (50, 99, 100))
        operators: list[Operator[Any]] = [*engine.vertices, *engine.edges]
        held = sum(operator.metrics["window_ns"] for operator in operators) / 1e9
        sketches = sum(isinstance(operator.window, AdaptiveSession) for operator in operators) * engine.parts
        said = engine.window_metrics()
        delays = [each.longest for each in engine.windows if each is not None]
        return {
            "window": "no window" if window is None else repr(window),
            "delay_s": max(delays, default=0.0),
            "seconds": round(seconds, 4),
            "rounds_s": [round(float(each.sum()), 4) for each in rounds],
            "edges_per_second": round(edges / seconds, 1),
            "layers": [
                {
                    "messages": edge.metrics["messages"],
                    "bytes_to_edge": engine.metrics[f"{edge.name}_bytes"],
                    "bytes_to_vertex": engine.metrics[f"{vertex.name}_bytes"],
                    "forwards": vertex.metrics["touched"],
                    "merged_per_reduce": _merged_per_reduce(said.get(edge.name)),
                    "forwards_saved": said.get(vertex.name, {}).get("merged", 0),
                }
                for edge, vertex in zip(engine.edges, engine.vertices[1:], strict=True)
            ],
            "topology_bytes": engine.metrics["topology_bytes"],
            "forwards": sum(vertex.metrics["touched"] for vertex in engine.vertices),
            "merged": sum(each["merged"] for each in said.values()),
            "p50_ms": round(p50, 3),
            "p99_ms": round(p99, 3),
            "max_ms": round(largest, 3),
            "imbalance": round(engine.imbalance, 4),
            "bookkeeping_share": round(held / sum(self.times), 4),
            "sketch_bytes": sketches * SKETCH_BYTES,
            "memory_bytes": sum(engine.memory().values()),
        }
