"""An epoch of full-graph training, compared with DGL and PyG: the same model, weights, labels and threads."""

from __future__ import annotations

import copy
import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from d3gnn.bench.peers.base import import_library
from d3gnn.bench.result import BenchResult, OnProgress, no_progress
from d3gnn.bench.settings import check_at_least_one
from d3gnn.events import Element, EventBatch, GraphSchema, Op
from d3gnn.events.keys import IntKeys
from d3gnn.nn import GNN, Classifier, GraphSAGE, SAGEConv
from d3gnn.runtime.local import LocalEngine
from d3gnn.training.examples import LabelledVertices
from d3gnn.training.loop import TrainingLoop
from d3gnn.training.rank_graph import RankGraph
from d3gnn.training.ranks import OneRank
from d3gnn.training.settings import Training
from d3gnn.types import Floats, Ints

#: Rounds at the beginning that are not timed: they compile.
_SETTLE = 2


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of the training benchmark; checked on construction.

    data:
        A folder with `edges_by_year.csv.gz` (src, dst) and `node-label.csv.gz` (one class a line), as
        ogbn-arxiv's. Without it, a random graph.
    """

    data: Path | None = None
    vertices: int = 20_000
    edges_each: int = 7
    rounds: int = 5
    parts: int = 1
    width: int = 64
    threads: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least_one(self, "vertices", "edges_each", "rounds", "parts", "width", "threads")


@dataclass(frozen=True)
class TrainingBenchResult(BenchResult):
    """Medians over the rounds, in which all take turns."""

    bench = "training"
    vertices: int
    edges: int
    parts: int
    #: Elapsed seconds of an epoch, by library.
    seconds: dict[str, float]
    #: CPU seconds of an epoch, over all threads: less disturbed by other processes.
    cpu_seconds: dict[str, float]
    #: Ours divided by theirs: the median over rounds, of elapsed and of CPU time.
    ratio: dict[str, float]
    cpu_ratio: dict[str, float]
    #: The largest difference between a loss of ours and one of theirs, relative.
    max_relative_difference: float
    settings: dict[str, object]


class _Data:
    """A graph with random features and a class for each vertex."""

    def __init__(self, settings: TrainingSettings) -> None:
        random = np.random.default_rng(settings.seed)
        if settings.data is None:
            n, m = settings.vertices, settings.vertices * settings.edges_each
            self.src, self.dst = (random.integers(0, n, m) for _ in range(2))
            self.classes = random.integers(0, 40, n)
        else:
            edges = pd.read_csv(settings.data / "edges_by_year.csv.gz")
            self.src, self.dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
            self.classes = pd.read_csv(settings.data / "node-label.csv.gz", header=None)[0].to_numpy()
            n = len(self.classes)
        self.x = random.standard_normal((n, settings.width)).astype(np.float32)

    def engine(self, model: GNN, parts: int) -> LocalEngine:
        """An engine that holds the graph."""
        schema = GraphSchema(edges="multi", features={"x": self.x.shape[1]})
        engine = LocalEngine(model, parts=parts, schema=schema)
        every = np.arange(len(self.x))
        engine.apply(values_of(Element.FEATURE, self.x, every, 1))
        engine.apply(values_of(Element.LABEL, self.classes[:, None].astype(np.float32), every, 1))
        engine.apply(EventBatch.edges(self.src, self.dst, time=np.full(len(self.src), 2)))
        return engine


def values_of(element: Element, values: Floats, vertices: Ints, time: int) -> EventBatch:
    """Events that set a feature or the label of vertices."""
    n, width = values.shape
    return EventBatch(
        op=np.full(n, Op.CREATE, np.int8), element=np.full(n, element, np.int8), src=IntKeys(vertices),
        time=np.full(n, time, np.int64), values=values.reshape(-1), value_offsets=np.arange(n + 1) * width,
    )  # fmt: skip


def measure_training(
    settings: TrainingSettings | None = None, *, on_rounds: OnProgress = no_progress
) -> TrainingBenchResult:
    """Train the same model in each library, epoch by epoch in turns."""
    settings = settings or TrainingSettings()
    torch.set_num_threads(settings.threads)
    data = _Data(settings)
    model = GraphSAGE(
        settings.width, settings.width, 2, int(data.classes.max()) + 1, seed=settings.seed, head=Classifier()
    )
    epochs = {"d3gnn": _ours(data, model, settings), "dgl": _dgl(data, model), "pyg": _pyg(data, model)}
    seconds: dict[str, list[float]] = {name: [] for name in epochs}
    cpu: dict[str, list[float]] = {name: [] for name in epochs}
    difference = 0.0
    gc.collect()
    for number in range(_SETTLE + settings.rounds):
        losses = {}
        for name, epoch in epochs.items():
            began, busy = time.perf_counter(), time.process_time()
            losses[name] = epoch()
            if number >= _SETTLE:
                seconds[name].append(time.perf_counter() - began)
                cpu[name].append(time.process_time() - busy)
        ours = losses["d3gnn"]
        difference = max(difference, *(abs(ours - loss) / abs(ours) for loss in losses.values()))
        on_rounds(1)
    others = [name for name in epochs if name != "d3gnn"]
    return TrainingBenchResult(
        vertices=len(data.x), edges=len(data.src), parts=settings.parts,
        seconds=_medians(seconds), cpu_seconds=_medians(cpu),
        ratio={name: _ratio(seconds, name) for name in others},
        cpu_ratio={name: _ratio(cpu, name) for name in others},
        max_relative_difference=difference,
        settings=asdict(settings) | {"data": settings.data and settings.data.name},
    )  # fmt: skip


def _medians(times: dict[str, list[float]]) -> dict[str, float]:
    return {name: float(np.median(values)) for name, values in times.items()}


def _ratio(times: dict[str, list[float]], name: str) -> float:
    return float(np.median(np.array(times["d3gnn"]) / np.array(times[name])))


def _ours(data: _Data, model: GNN, settings: TrainingSettings) -> Callable[[], float]:
    live = data.engine(model, settings.parts).live_graph()
    graph = RankGraph([live.part(part) for part in range(settings.parts)], OneRank())
    training = Training(holdout=0.0)
    loop = TrainingLoop(
        copy.deepcopy(model), graph, LabelledVertices(model, graph, live.labels(), training), training
    )
    numbers = count(1)
    return lambda: loop.epoch(next(numbers)).loss


def _dgl(data: _Data, model: GNN) -> Callable[[], float]:
    library = import_library("dgl")
    library.utils.set_num_threads(torch.get_num_threads())
    sage_conv = import_library("dgl.nn.pytorch").SAGEConv
    graph = library.graph((torch.from_numpy(data.src), torch.from_numpy(data.dst)), num_nodes=len(data.x))
    convs = nn.ModuleList()
    for layer in _sage_layers(model):
        conv = sage_conv(layer.in_channels, layer.out_channels, "mean")
        with torch.no_grad():
            conv.fc_neigh.weight.copy_(layer.lin_l.weight)
            conv.fc_self.weight.copy_(layer.lin_r.weight)
            conv.fc_self.bias.copy_(layer.lin_l.bias)
        convs.append(conv)
    return _trained_by_torch(convs, graph, data)


def _pyg(data: _Data, model: GNN) -> Callable[[], float]:
    sage_conv = import_library("torch_geometric.nn").SAGEConv
    convs = nn.ModuleList()
    for layer in _sage_layers(model):
        conv = sage_conv(layer.in_channels, layer.out_channels, "mean")
        conv.load_state_dict(layer.state_dict())
        convs.append(conv)
    return _trained_by_torch(convs, torch.from_numpy(np.stack([data.src, data.dst])), data)


def _sage_layers(model: GNN) -> list[SAGEConv]:
    return [layer for layer in model.layers if isinstance(layer, SAGEConv)]


def _trained_by_torch(convs: nn.ModuleList, graph: Any, data: _Data) -> Callable[[], float]:
    """Epochs of a library whose layers take (graph, x), as DGL's, or (x, edges), as PyG's."""
    x, classes = torch.from_numpy(data.x), torch.from_numpy(data.classes)
    optimizer = torch.optim.Adam(convs.parameters(), lr=0.01)
    graph_first = not isinstance(graph, Tensor)

    def epoch() -> float:
        optimizer.zero_grad()
        out = x
        for i, conv in enumerate(convs):
            out = conv(graph, out) if graph_first else conv(out, graph)
            out = out.relu() if i + 1 < len(convs) else out
        loss = nn.functional.cross_entropy(out, classes)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item()

    return epoch
