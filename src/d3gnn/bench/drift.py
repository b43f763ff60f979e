"""Accuracy over time on a stream that drifts: a model that is trained once, and ones that are trained again.

All policies see the same stream. Each label scores the prediction that was current when it arrived.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from d3gnn.bench.result import BenchResult, OnProgress, no_progress
from d3gnn.bench.settings import check_at_least_one
from d3gnn.bench.training import values_of
from d3gnn.events import Element, EventBatch, GraphSchema
from d3gnn.nn import GNN, Classifier, GraphSAGE
from d3gnn.runtime.local import LocalEngine
from d3gnn.training.scoring import Scoring
from d3gnn.training.settings import Training
from d3gnn.training.triggers import AfterLabels, OnDrift, Trigger
from d3gnn.types import Floats, Ints

#: Columns of the synthetic features, and classes.
_WIDTH, _CLASSES, _CONCEPTS = 8, 2, 3


@dataclass(frozen=True)
class DriftSettings:
    """Settings of the drift benchmark; checked on construction.

    data:
        Folder of pubmed-temporal. Without it, a random stream whose concept changes twice.
    first, every:
        Labels before the first training, and between trainings of the periodic policy.
    newest:
        Labels that a later training uses.
    """

    data: Path | None = None
    vertices: int = 6000
    steps: int = 30
    first: int = 500
    every: int = 500
    newest: int = 300
    window: int = 500
    epochs: int = 40
    width: int = 32
    detector: str = "adwin"
    seed: int = 0

    def __post_init__(self) -> None:
        names = ("vertices", "steps", "first", "every", "newest", "window", "epochs", "width")
        check_at_least_one(self, *names)


@dataclass(frozen=True)
class DriftResult(BenchResult):
    """For each policy (`frozen`, `on drift`, `periodic`): accuracy in total, windowed accuracy by the number
    of scored labels, and trainings.
    """

    bench = "drift"
    accuracy: dict[str, float]
    windowed: dict[str, list[tuple[int, float]]]
    trainings: dict[str, int]
    training_seconds: dict[str, float]
    #: Why the policy `on drift` trained.
    reasons: list[str]
    #: Accuracy of a model that is trained on the final graph, on a tenth of its labels that it did not see.
    ceiling: float
    labels: int
    settings: dict[str, object]


@dataclass
class _Stream:
    """Vertices in the order of their time steps, with features, classes and edges."""

    x: Floats
    classes: Ints
    step: Ints  # of each vertex
    src: Ints
    dst: Ints
    edge_step: Ints

    def batches(self) -> Iterator[list[EventBatch]]:
        """For each step: vertices and edges; and then the labels, which score their predictions."""
        for step in range(int(self.step.max()) + 1):
            new = np.flatnonzero(self.step == step)
            edges = np.flatnonzero(self.edge_step == step)
            time = np.full(len(edges), 2 * step)
            yield [
                values_of(Element.FEATURE, self.x[new], new, 2 * step),
                EventBatch.edges(self.src[edges], self.dst[edges], time=time),
                values_of(Element.LABEL, self.classes[new, None].astype(np.float32), new, 2 * step + 1),
            ]


def _synthetic(settings: DriftSettings) -> _Stream:
    """Neighbours have features of one direction, and the class of a direction depends on the concept."""
    random, n = np.random.default_rng(settings.seed), settings.vertices
    step = np.arange(n) * settings.steps // n
    kind = random.integers(0, 4, n)
    centres = 1.5 * random.standard_normal((4, _WIDTH))
    x = centres[kind] + 2.0 * random.standard_normal((n, _WIDTH))
    of_kind = np.array([[0, 0, 1, 1], [0, 1, 1, 0], [1, 1, 0, 0]])  # by concept
    concept = np.arange(n) * _CONCEPTS // n
    src, dst = [], []
    for v in range(1, n):
        others = np.arange(max(0, v - 200), v)
        same = others[kind[others] == kind[v]]
        if len(same):
            src.append(random.choice(same, 3))
            dst.append(np.full(3, v))
    edges = np.concatenate(src), np.concatenate(dst)
    return _Stream(x.astype(np.float32), of_kind[concept, kind], step, *edges, step[edges[1]])


def _pubmed(folder: Path) -> _Stream:
    """A vertex appears with its first edge."""
    edges, labels = pd.read_csv(folder / "edges.csv.gz"), pd.read_csv(folder / "labels.csv.gz")
    n = len(labels)
    x = np.zeros((n, 500), np.float32)
    lines = pd.read_csv(folder / "features.svm.gz", header=None, sep="\0")[0]
    for row, line in enumerate(lines):
        for pair in line.split()[1:]:
            place, _, value = pair.partition(":")
            x[row, int(place) % 500] = float(value)
    classes = labels.sort_values("node")["label"].to_numpy()
    step = np.full(n, int(edges["t"].max()))
    for column in ("u", "v"):
        np.minimum.at(step, edges[column].to_numpy(), edges["t"].to_numpy())
    return _Stream(
        x, classes - classes.min(), step, edges["u"].to_numpy(), edges["v"].to_numpy(), edges["t"].to_numpy()
    )


@dataclass
class _Policy:
    engine: LocalEngine
    trigger: Trigger | None
    #: After the first training.
    trained: int = 0
    seconds: float = 0.0
    reasons: list[str] = field(default_factory=list)
    windowed: list[tuple[int, float]] = field(default_factory=list)

    def train(self, training: Training, reason: str) -> None:
        began = time.perf_counter()
        self.engine.train(training)
        self.seconds += time.perf_counter() - began
        self.trained += 1
        self.reasons.append(reason)


def measure_drift(
    settings: DriftSettings | None = None, *, on_steps: OnProgress = no_progress
) -> DriftResult:
    """Stream the same events through one engine for each policy."""
    settings = settings or DriftSettings()
    torch.set_num_threads(1)  # the graphs are small
    stream = _synthetic(settings) if settings.data is None else _pubmed(settings.data)
    schema = GraphSchema(features={"x": stream.x.shape[1]}, directed=False)

    def model() -> GNN:
        return GraphSAGE(
            stream.x.shape[1], settings.width, 2, int(stream.classes.max()) + 1, seed=settings.seed,
            head=Classifier(),
        )  # fmt: skip

    triggers: dict[str, Trigger | None] = {
        "frozen": None, "on drift": OnDrift(settings.detector), "periodic": AfterLabels(settings.every),
    }  # fmt: skip
    policies = {
        name: _Policy(
            LocalEngine(model(), schema=schema, scoring=Scoring(settings.window, trigger=trigger)), trigger
        )
        for name, trigger in triggers.items()
    }
    first = Training(epochs=settings.epochs, holdout=0.0, weight_decay=5e-4, seed=settings.seed)
    again = Training(
        epochs=settings.epochs, holdout=0.0, weight_decay=5e-4, seed=settings.seed, newest=settings.newest
    )
    labels = 0
    for batches in stream.batches():
        labels += len(batches[-1])
        for policy in policies.values():
            _run(policy, batches, labels, settings, first, again)
        on_steps(1)
    engines = {name: policy.engine for name, policy in policies.items()}
    return DriftResult(
        accuracy={name: float(each.scores()["total"]["accuracy"] or 0.0) for name, each in engines.items()},
        windowed={name: policy.windowed for name, policy in policies.items()},
        trainings={name: policy.trained for name, policy in policies.items()},
        training_seconds={name: policy.seconds for name, policy in policies.items()},
        reasons=policies["on drift"].reasons,
        ceiling=_ceiling(engines["frozen"], model(), settings),
        labels=labels,
        settings=asdict(settings) | {"data": settings.data and settings.data.name},
    )


def _run(
    policy: _Policy, batches: list[EventBatch], labels: int, settings: DriftSettings, first: Training,
    again: Training,
) -> None:  # fmt: skip
    engine = policy.engine
    for batch in batches:
        if len(batch):
            engine.apply(batch)
    scores = engine.scores()
    if policy.trained and scores["recent"]["accuracy"] is not None:
        policy.windowed.append((labels, scores["recent"]["accuracy"]))
    if not policy.trained:
        if labels >= settings.first:
            policy.train(first, f"{labels} labels")
    elif policy.trigger is not None and (reason := engine.training_due()):
        policy.train(again, f"at label {labels}: {reason}")


def _ceiling(engine: LocalEngine, model: GNN, settings: DriftSettings) -> float:
    """Trains on nine tenths of all labels, on the final graph."""
    engine.use(model)
    torch.manual_seed(settings.seed)
    training = Training(
        epochs=2 * settings.epochs, holdout=0.0, test=0.1, weight_decay=5e-4, seed=settings.seed
    )
    return float(engine.train(training).trained.test or 0.0)
