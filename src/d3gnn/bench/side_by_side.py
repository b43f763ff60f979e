"""The same batches through d3gnn and through what one would take instead, one system after the other."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from d3gnn.bench.live_graph import LiveGraph
from d3gnn.bench.peers import PEERS, make_peer
from d3gnn.bench.result import BenchResult
from d3gnn.bench.settings import at_least_one
from d3gnn.bench.throughput import messages
from d3gnn.bench.warm_up import warm_up
from d3gnn.bench.workload import Workload
from d3gnn.events import Element, EventBatch, Keys
from d3gnn.kernel.local import LocalEngine
from d3gnn.kernel.reference import forward
from d3gnn.nn import GNN, GraphSAGE
from d3gnn.types import Doubles, Floats

OURS = ("local", "spark")
SYSTEMS = (*PEERS, *OURS)
#: Events that are loaded at once before the clock starts.
LOAD = 5_000_000
#: A system that recomputes everything takes the same time for each batch: so many are timed.
_FULL_TIMED = 5
#: Rows that are compared at once.
_CHECKED = 1 << 16
#: Batches of each block that are taken in before its clock starts: what a load has left just full grows then.
_SETTLE = 20
#: At least so much of the stream is loaded before the first timed batch.
_LOADED_SHARE = 0.5


@dataclass(frozen=True)
class PeersSettings:
    """What runs the stream: a GraphSAGE model of `layers` layers, all `width` wide; checked when made."""

    batch: int = 2000
    #: Batches that are timed; 0 chooses by the size of the batch.
    timed: int = 0
    systems: tuple[str, ...] = SYSTEMS
    threads: int = 2
    #: Parts of the pipeline on Spark; the local engine has one.
    parts: int = 2
    partitioner: str = "hdrf"
    layers: int = 2
    width: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        at_least_one(self, "batch", "threads", "parts", "layers", "width")
        if self.timed < 0:
            raise ValueError(f"timed={self.timed}: a number of batches, or 0 to choose one")
        unknown = [name for name in self.systems if name not in SYSTEMS]
        if unknown or not self.systems:
            raise ValueError(f"systems={','.join(unknown)!r}: choose some of {', '.join(SYSTEMS)}")


@dataclass(frozen=True)
class PeersResult(BenchResult):
    """Every system has the same graph before, takes in the same batches, with the same weights and threads.

    The local engine runs on one thread, whatever the others have. The bookkeeping that turns ids into rows of
    a matrix is not counted for the peers; for d3gnn it is.
    """

    bench = "peers"
    batch: int
    timed_batches: int
    #: Edges and vertices that there were before the first timed batch.
    stored_edges: int
    vertices: int
    threads: int
    parts: int
    #: Messages that d3gnn sends along edges in all layers, per edge created or deleted.
    messages_per_edge: float | None
    #: By system: seconds_per_batch, edges_per_second, max_relative_error, and the batches that were timed.
    systems: dict[str, dict[str, float]]
    #: How many times as fast as each peer d3gnn is: `local_over` and `spark_over`, by peer.
    speedup: dict[str, dict[str, float]]


class Block(NamedTuple):
    """Batches of one size: some that are not timed, then some that are."""

    batch: int
    settle: int
    timed: int

    @property
    def batches(self) -> int:
        return self.settle + self.timed


class Timed(NamedTuple):
    """What a system did in a block."""

    #: Of each timed batch.
    seconds: Doubles
    edges: int
    error: float
    messages: int | None = None


def measure_peers(
    workload: Workload,
    settings: PeersSettings | None = None,
    *,
    batches: Sequence[int] = (),
    around: Callable[[str], AbstractContextManager[None]] = lambda name: nullcontext(),
) -> list[PeersResult]:
    """Measure all systems, at the settings' batch size or at each of `batches`; a result for each size.

    `around` makes what surrounds each step, by its name: to show what is being done.
    """
    settings = settings or PeersSettings()
    torch.set_num_threads(settings.threads)
    blocks = _blocks(workload, batches or (settings.batch,), settings.timed)
    stored = workload.events - sum(block.batch * block.batches for block in blocks)
    model = GraphSAGE(
        [workload.schema.width or settings.width] + [settings.width] * settings.layers, seed=settings.seed
    )
    stream = _Stream(workload.held(), stored, blocks)
    with tempfile.TemporaryDirectory(prefix="d3gnn-expected-") as folder:
        with around("the graph"):
            expected = _Expected(model, stream, Path(folder))
        found: dict[str, list[Timed]] = {}
        # Ours first: on a large graph they need all the memory that there is.
        for name in sorted(settings.systems, key=lambda name: name not in OURS):
            torch.set_num_threads(1 if name == "local" else settings.threads)
            with around(name):
                if name == "spark":
                    found[name] = _on_spark(model, stream, expected, settings)
                elif name == "local":
                    found[name] = _locally(model, stream, expected)
                else:
                    found[name] = _peer(name, model, stream, expected)
                gc.collect()
    results = []
    for i, block in enumerate(blocks):
        block_found = {name: found[name][i] for name in settings.systems}
        results.append(_result(workload, model, settings, block, expected.before, block_found))
    return results


# ------------------------------------------------------------------ the stream, cut into blocks


def _blocks(workload: Workload, batches: Sequence[int], timed: int) -> list[Block]:
    """How many batches of each size are timed, at the end of the stream."""
    room = int(workload.events * (1 - _LOADED_SHARE)) // len(batches)
    blocks = []
    for batch in batches:
        most = room // batch
        if most < 1:
            raise ValueError(
                f"batch={batch}: half of the stream's {workload.events:,} events are loaded before the clock "
                "starts, and the rest has no such batch; take a longer stream or a smaller batch"
            )
        count = min(most, timed or min(200, max(10, 20_000 // batch)))
        blocks.append(Block(batch, min(most - count, _SETTLE), count))
    return blocks


@dataclass(frozen=True)
class _Stream:
    """A workload in batches of several sizes: first what is loaded, then the blocks."""

    workload: Workload
    stored: int
    blocks: list[Block]

    def graph(self, model: GNN) -> LiveGraph:
        """The graph before the clock starts."""
        graph = LiveGraph(self.workload.schema.for_model(model.in_width))
        for batch in self.load():
            graph.apply(batch)
        return graph

    def load(self) -> Iterator[EventBatch]:
        """What comes before the clock starts."""
        whole = self._whole()
        for begin in range(0, self.stored, LOAD):
            yield whole.between(begin, min(begin + LOAD, self.stored))

    def timed(self) -> Iterator[list[EventBatch]]:
        """The batches of each block."""
        whole, begin = self._whole(), self.stored
        for block in self.blocks:
            ends = range(begin + block.batch, begin + block.batch * block.batches + 1, block.batch)
            yield [whole.between(end - block.batch, end) for end in ends]
            begin = ends[-1]

    def first(self, batches: int) -> Iterator[EventBatch]:
        """The stream's beginning, in small batches."""
        return islice(self.workload.batches(min(self.blocks[0].batch, 2000)), batches)

    def _whole(self) -> EventBatch:
        return next(self.workload.batches(self.workload.events))


def _edges(batches: Iterable[EventBatch]) -> int:
    return sum(int(np.count_nonzero(batch.element == Element.EDGE)) for batch in batches)


class _Expected:
    """After each block: all vertices, and their embeddings by a static forward pass.

    They lie in files: on a large graph, memory is what there is least of.
    """

    def __init__(self, model: GNN, stream: _Stream, folder: Path) -> None:
        self._folder = folder
        self._keys: list[Keys] = []
        graph = stream.graph(model)
        #: Edges and vertices before the first block.
        self.before = (graph.edge_count, len(graph))
        for batches in stream.timed():
            for batch in batches:
                graph.apply(batch)
            np.save(self._path(len(self._keys)), forward(model, graph.inputs, graph.src, graph.dst))
            self._keys.append(graph.keys())

    def _path(self, block: int) -> Path:
        return self._folder / f"{block}.npy"

    def error(self, block: int, embeddings: Callable[[Keys, slice], Floats]) -> float:
        """The largest relative error after a block, of the embeddings of these ids and rows."""
        expected = np.load(self._path(block), mmap_mode="r")
        furthest = largest = 0.0
        for begin in range(0, len(expected), _CHECKED):
            rows = slice(begin, begin + _CHECKED)
            got = embeddings(self._keys[block].take(np.arange(len(expected))[rows]), rows)
            if not np.isfinite(got).all():
                raise RuntimeError("there are embeddings that are not finite, or missing")
            furthest = max(furthest, float(np.abs(got - expected[rows].astype(np.float64)).max()))
            largest = max(largest, float(np.abs(expected[rows]).max()))
        return furthest / largest if largest else furthest


# ------------------------------------------------------------------ the systems


def _peer(name: str, model: GNN, stream: _Stream, expected: _Expected) -> list[Timed]:
    graph = stream.graph(model)
    peer = make_peer(name, model, graph)
    peer.load()
    found = []
    for k, (block, batches) in enumerate(zip(stream.blocks, stream.timed(), strict=True)):
        counted = set(range(block.settle, len(batches)))
        if peer.recomputes_all:
            # The last is among them, so that the embeddings are those of the block's end.
            some = np.linspace(len(batches) - 1, block.settle, min(block.timed, _FULL_TIMED))
            counted = set(some.astype(int).tolist())
        seconds, edges = [], 0
        for i, batch in enumerate(batches):
            change = graph.apply(batch)
            if i < block.settle and not peer.recomputes_all:
                peer.apply(change)
            elif i in counted:
                begun = time.perf_counter()
                peer.apply(change)
                seconds.append(time.perf_counter() - begun)
                edges += _edges([batch])
        error = expected.error(k, lambda _, rows: peer.embeddings()[rows])
        found.append(Timed(np.array(seconds), edges, error))
    return found


def _locally(model: GNN, stream: _Stream, expected: _Expected) -> list[Timed]:
    workload = stream.workload
    warm_up(model, workload.schema, 1, "hdrf", stream.first(3))
    engine = LocalEngine(model, 1, "hdrf", workload.schema)
    for batch in stream.load():
        engine.apply(batch)
    gc.collect()
    found = []
    for k, (block, batches) in enumerate(zip(stream.blocks, stream.timed(), strict=True)):
        for batch in batches[: block.settle]:
            engine.apply(batch)
        seconds, before = [], messages(engine)
        for batch in batches[block.settle :]:
            begun = time.perf_counter()
            engine.apply(batch)
            seconds.append(time.perf_counter() - begun)
        sent = messages(engine) - before
        edges = _edges(batches[block.settle :])
        error = expected.error(k, lambda ids, _: engine.embeddings(ids))
        found.append(Timed(np.array(seconds), edges, error, sent))
    return found


def _on_spark(model: GNN, stream: _Stream, expected: _Expected, settings: PeersSettings) -> list[Timed]:
    from d3gnn.bench.spark import WARM_UP_BATCHES, SparkPipeline, SparkRun, bench_session

    kind = (stream.workload.schema, model, settings.parts, settings.partitioner)
    found = []
    with bench_session() as spark:
        with SparkPipeline(spark, *kind) as warm:
            warm.feed(stream.first(WARM_UP_BATCHES))
        with SparkPipeline(spark, *kind) as pipeline:
            # What is loaded goes in with the first block, in one query: no timed batch is its first.
            before: Iterable[EventBatch] = stream.load()
            for k, (block, batches) in enumerate(zip(stream.blocks, stream.timed(), strict=True)):
                progress = pipeline.feed(chain(before, batches))[-block.timed :]
                edges = _edges(batches[block.settle :])
                with closing(SparkRun(pipeline.plan, model, progress)) as run:
                    error = expected.error(k, lambda ids, _: run.embeddings(ids))
                    found.append(Timed(run.times, edges, error, run.messages))
                before = []
    return found


# ------------------------------------------------------------------ what came of it


def _result(
    workload: Workload, model: GNN, settings: PeersSettings, block: Block, stored: tuple[int, int],
    found: dict[str, Timed],
) -> PeersResult:  # fmt: skip
    systems = {
        name: {
            "seconds_per_batch": float(f"{timed.seconds.mean():.6g}"),
            "edges_per_second": round(timed.edges / timed.seconds.sum(), 2),
            "max_relative_error": timed.error,
            "batches": len(timed.seconds),
        }
        for name, timed in found.items()
    }
    sent = next((timed.messages for timed in found.values() if timed.messages is not None), None)
    changed = next((found[name].edges for name in OURS if name in found), 0)
    return PeersResult(
        settings={
            "workload": workload.name,
            "edges": workload.schema.edges,
            "directed": workload.schema.directed,
            "model": repr(model),
            **asdict(settings),
            "batch": block.batch,
        },
        batch=block.batch,
        timed_batches=block.timed,
        stored_edges=stored[0],
        vertices=stored[1],
        threads=settings.threads,
        parts=settings.parts,
        messages_per_edge=None if sent is None else round(sent / max(1, changed), 2),
        systems=systems,
        speedup={
            f"{ours}_over": {
                peer: float(f"{systems[peer]['seconds_per_batch'] / systems[ours]['seconds_per_batch']:.4g}")
                for peer in systems
                if peer not in OURS
            }
            for ours in OURS
            if ours in systems
        },
    )
