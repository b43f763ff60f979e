"""The training loop: steps over batches of labels, the same on every rank."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from d3gnn.nn.model import GNN
from d3gnn.training.examples import Examples
from d3gnn.training.forward import forward
from d3gnn.training.rank_graph import RankGraph
from d3gnn.training.row_modules import RowModules
from d3gnn.training.settings import Training


class Epoch(NamedTuple):
    """What an epoch did: the mean loss of its steps, and scores of the training and the held-out labels."""

    number: int
    loss: float
    score: float
    holdout: float | None
    seconds: float


@dataclass
class TrainedModel:
    """The result of a training."""

    model: GNN
    epochs: list[Epoch] = field(default_factory=list)
    #: Labels, or edges, for each purpose.
    trained_on: int = 0
    held_out: int = 0
    tested_on: int = 0
    #: Scores on the held-out labels, or without any on the training labels: of the old and of the new model.
    before: float = 0.0
    after: float = 0.0
    #: On the labels for testing; None without any.
    test: float | None = None
    seconds: float = 0.0

    @property
    def is_better(self) -> bool:
        """Whether the new model scores no worse than the old one."""
        return self.after >= self.before


def train_model(
    model: GNN,
    graph: RankGraph,
    examples: Examples,
    settings: Training,
    progress: Callable[[Epoch], None] | None = None,
) -> TrainedModel:
    """Train a copy of a model. All ranks call this with the same model and settings."""
    loop = TrainingLoop(copy.deepcopy(model), graph, examples, settings)
    try:
        return loop.run(progress)
    finally:
        loop.modules.restore()


class TrainingLoop:
    """A model in training, which it changes. `modules.restore` ends it."""

    def __init__(self, model: GNN, graph: RankGraph, examples: Examples, settings: Training) -> None:
        self.model, self.graph, self.examples, self.settings = model, graph, examples, settings
        self.ranks = graph.ranks
        self.modules = RowModules(
            model, graph.ranks, graph.hashes, dropout=settings.dropout, seed=settings.seed
        )
        self.parameters = [each for each in model.parameters() if each.requires_grad]
        if not self.parameters:
            raise ValueError("no weight of the model has requires_grad=True: there is nothing to train")
        decay = {"weight_decay": settings.weight_decay} if settings.weight_decay else {}
        self.optimizer = settings.optimizer(self.parameters, lr=settings.lr, **decay)
        self.schedule = None if settings.schedule is None else settings.schedule(self.optimizer)
        self.step = 0

    def run(self, progress: Callable[[Epoch], None] | None) -> TrainedModel:
        begun, settings, examples = time.perf_counter(), self.settings, self.examples
        result = TrainedModel(self.model, [], *examples.counts)
        if not result.trained_on:
            raise ValueError(
                "there is nothing to train on: no label of an existing vertex is a training label. Send "
                "labels as events (d3gnn.events.label), or change test= and holdout="
            )
        watched = "holdout" if result.held_out else "train"
        result.before = self.evaluate(watched)
        best, best_weights, waited = result.before, None, 0
        for number in range(1, settings.epochs + 1):
            epoch = self.epoch(number)
            result.epochs.append(epoch)
            if progress is not None and self.ranks.rank == 0:
                progress(epoch)
            if settings.patience is None or epoch.holdout is None:
                continue
            if epoch.holdout > best:
                best, best_weights, waited = epoch.holdout, copy.deepcopy(self.model.state_dict()), 0
            else:
                waited += 1
                if waited >= settings.patience:
                    break
        if best_weights is not None:
            self.model.load_state_dict(best_weights)
        result.after = self.evaluate(watched)
        result.test = self.evaluate("test") if result.tested_on else None
        self.model.eval()
        result.seconds = time.perf_counter() - begun
        return result

    def epoch(self, number: int) -> Epoch:
        """One pass over the labels; epochs count from 1."""
        begun = time.perf_counter()
        totals = torch.zeros(2 + self.examples.task.width, dtype=torch.float64)
        for rows in self._batches(number):
            totals += self._step(number, rows)
        if self.schedule is not None:
            self.schedule.step()
        loss, weight = totals[:2].tolist()
        holdout = self.evaluate("holdout") if self.examples.counts[1] else None
        score = self.examples.task.score(totals[2:])
        return Epoch(number, loss / max(weight, 1e-30), score, holdout, time.perf_counter() - begun)

    def _batches(self, number: int) -> Iterator[np.ndarray]:
        return self.examples.batches(number, self.settings.batch_size)

    def _step(self, number: int, rows: np.ndarray) -> Tensor:
        """One step of the optimiser; returns the sums of losses, of weights, and those of the score."""
        self.step += 1
        self.modules.begin(self.step)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        embedding = forward(self.model, self.graph, self.modules)
        losses, weights, sums = self.examples.losses(self.model, embedding, rows, number)
        total = torch.stack([(losses * weights).sum().detach().double(), weights.sum().double()])
        totals = self.ranks.add_up(torch.cat([total, sums]))
        # Also without labels here: every rank takes part in every exchange of the backward pass.
        loss = (losses * weights).sum() / float(totals[1].clamp(min=1e-30))
        loss.backward()  # type: ignore[no-untyped-call]
        self._add_gradients()
        if self.settings.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.clip)
        self.optimizer.step()
        return totals

    def _add_gradients(self) -> None:
        """The gradient of the whole graph, on every rank: the sum of those of all ranks."""
        if self.ranks.size == 1:
            return
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        flat = self.ranks.add_up(torch.cat([grad.reshape(-1) for grad in grads]))
        pieces = torch.split(flat, [grad.numel() for grad in grads])
        for parameter, grad in zip(self.parameters, pieces, strict=True):
            parameter.grad = grad.view_as(parameter).clone()

    @torch.no_grad()
    def evaluate(self, purpose: str) -> float:
        """The score of the current weights on some of the labels."""
        self.model.eval()
        embedding = forward(self.model, self.graph)
        sums = self.ranks.add_up(self.examples.sums(self.model, embedding, purpose))
        return self.examples.task.score(sums)
