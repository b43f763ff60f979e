"""Compare d3gnn with other systems on the same batches; the systems run one after another."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from d3gnn.bench.peers import PEERS, make_peer
from d3gnn.bench.result import BenchResult, StepContext
from d3gnn.bench.settings import check_at_least_one
from d3gnn.bench.throughput import messages
from d3gnn.bench.timed_blocks import Block, BlockStream, ExpectedEmbeddings, count_edges, plan_blocks
from d3gnn.bench.warm_up import warm_up
from d3gnn.bench.workload import Workload
from d3gnn.events import EventBatch
from d3gnn.nn import GNN, GraphSAGE
from d3gnn.runtime.local import LocalEngine
from d3gnn.types import Doubles

OURS = ("local", "spark")
SYSTEMS = (*PEERS, *OURS)
#: Measurement batches of a system that recomputes all embeddings: its time does not depend on the batch.
_FULL_TIMED = 5


@dataclass(frozen=True)
class PeersSettings:
    """Settings of the peers benchmark; checked on construction.

    The model is GraphSAGE-mean with `layers` layers, all `width` wide.
    """

    batch: int = 2000
    #: Number of timed batches; 0 chooses it by the batch size.
    timed: int = 0
    systems: tuple[str, ...] = SYSTEMS
    threads: int = 2
    #: Parts of the pipeline on Spark; LocalEngine has one.
    parts: int = 2
    partitioner: str = "hdrf"
    layers: int = 2
    width: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least_one(self, "batch", "threads", "parts", "layers", "width")
        if self.timed < 0:
            raise ValueError(f"timed={self.timed}: must be at least 0; 0 chooses a number")
        unknown = [name for name in self.systems if name not in SYSTEMS]
        if unknown or not self.systems:
            raise ValueError(f"systems={','.join(unknown)!r}: choose some of {', '.join(SYSTEMS)}")


@dataclass(frozen=True)
class PeersResult(BenchResult):
    """Measurements of all systems at one batch size.

    Every system starts with the same graph and processes the same batches with the same weights. LocalEngine
    uses one thread, the others use `threads`. The time to map ids to rows of a matrix counts for d3gnn, but
    not for the peers.
    """

    bench = "peers"
    batch: int
    timed_batches: int
    #: Edges and vertices stored before the first timed batch.
    stored_edges: int
    vertices: int
    threads: int
    parts: int
    #: Messages that d3gnn sends along edges in all layers, per edge created or deleted.
    messages_per_edge: float | None
    #: By system: seconds_per_batch, edges_per_second, max_relative_error, and batches (the number timed).
    systems: dict[str, dict[str, float]]
    #: Time of each peer divided by that of d3gnn: `local_over` and `spark_over`, by peer.
    speedup: dict[str, dict[str, float]]


class Measurement(NamedTuple):
    """The measurements of one system in one block."""

    #: Seconds of each timed batch.
    seconds: Doubles
    edges: int
    error: float
    messages: int | None = None


def measure_peers(
    workload: Workload,
    settings: PeersSettings | None = None,
    *,
    batches: Sequence[int] = (),
    on_step: StepContext = lambda _: nullcontext(),
) -> list[PeersResult]:
    """Measure all systems at each of the batch sizes `batches` (default: that of the settings)."""
    settings = settings or PeersSettings()
    torch.set_num_threads(settings.threads)
    blocks = plan_blocks(workload, batches or (settings.batch,), settings.timed)
    stored = workload.events - sum(block.batch * block.batches for block in blocks)
    model = GraphSAGE(
        workload.schema.width or settings.width, settings.width, settings.layers, seed=settings.seed
    )
    stream = BlockStream(workload.cached(), stored, blocks)
    with tempfile.TemporaryDirectory(prefix="d3gnn-expected-") as folder:
        with on_step("load the graph, compute expected embeddings"):
            expected = ExpectedEmbeddings(model, stream, Path(folder))
        found: dict[str, list[Measurement]] = {}
        # d3gnn first: on a large graph it needs most of the memory.
        for name in sorted(settings.systems, key=lambda name: name not in OURS):
            torch.set_num_threads(1 if name == "local" else settings.threads)
            with on_step(name):
                if name == "spark":
                    found[name] = _run_on_spark(model, stream, expected, settings)
                elif name == "local":
                    found[name] = _run_local(model, stream, expected)
                else:
                    found[name] = _run_peer(name, model, stream, expected)
                gc.collect()
    results = []
    for i, block in enumerate(blocks):
        block_found = {name: found[name][i] for name in settings.systems}
        results.append(_result(workload, model, settings, block, expected.stored, block_found))
    return results


def _run_peer(name: str, model: GNN, stream: BlockStream, expected: ExpectedEmbeddings) -> list[Measurement]:
    graph = stream.graph(model)
    peer = make_peer(name, model, graph)
    peer.load()
    found = []
    for k, (block, batches) in enumerate(zip(stream.blocks, stream.timed(), strict=True)):
        counted = set(range(block.settle, len(batches)))
        if peer.recomputes_all:
            # The last batch is one of them: the embeddings are compared at the end of the block.
            chosen = np.linspace(len(batches) - 1, block.settle, min(block.timed, _FULL_TIMED))
            counted = set(chosen.astype(int).tolist())
        seconds, edges = [], 0
        for i, batch in enumerate(batches):
            change = graph.apply(batch)
            if i < block.settle and not peer.recomputes_all:
                peer.apply(change)
            elif i in counted:
                start = time.perf_counter()
                peer.apply(change)
                seconds.append(time.perf_counter() - start)
                edges += count_edges([batch])
        error = expected.error(k, lambda _, rows: peer.embeddings()[rows])
        found.append(Measurement(np.array(seconds), edges, error))
    return found


def _run_local(model: GNN, stream: BlockStream, expected: ExpectedEmbeddings) -> list[Measurement]:
    workload = stream.workload
    warm_up(model, workload.schema, 1, "hdrf", stream.first(3))
    engine = LocalEngine(model, parts=1, partitioner="hdrf", schema=workload.schema)
    for batch in stream.load():
        engine.apply(batch)
    gc.collect()
    found = []
    for k, (block, batches) in enumerate(zip(stream.blocks, stream.timed(), strict=True)):
        for batch in batches[: block.settle]:
            engine.apply(batch)
        seconds, before = [], messages(engine)
        for batch in batches[block.settle :]:
            start = time.perf_counter()
            engine.apply(batch)
            seconds.append(time.perf_counter() - start)
        sent = messages(engine) - before
        edges = count_edges(batches[block.settle :])
        error = expected.error(k, lambda ids, _: engine.embeddings(ids))
        found.append(Measurement(np.array(seconds), edges, error, sent))
    return found


def _run_on_spark(
    model: GNN, stream: BlockStream, expected: ExpectedEmbeddings, settings: PeersSettings
) -> list[Measurement]:
    from d3gnn.bench.spark import WARM_UP_BATCHES, SparkPipeline, SparkRun, bench_session

    options = (stream.workload.schema, model, settings.parts, settings.partitioner)
    found = []
    with bench_session() as spark:
        with SparkPipeline(spark, *options) as warm:
            warm.feed(stream.first(WARM_UP_BATCHES))
        with SparkPipeline(spark, *options) as pipeline:
            # The load and the first block run in one query: its slow first batch is not timed.
            before: Iterable[EventBatch] = stream.load()
            for k, (block, batches) in enumerate(zip(stream.blocks, stream.timed(), strict=True)):
                progress = pipeline.feed(chain(before, batches))[-block.timed :]
                edges = count_edges(batches[block.settle :])
                with closing(SparkRun(pipeline.plan, model, progress)) as run:
                    error = expected.error(k, lambda ids, _: run.embeddings(ids))
                    found.append(Measurement(run.times, edges, error, run.messages))
                before = []
    return found


def _result(
    workload: Workload, model: GNN, settings: PeersSettings, block: Block, stored: tuple[int, int],
    found: dict[str, Measurement],
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
