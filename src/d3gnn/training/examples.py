"""What is trained on: labelled vertices of this rank, in batches that do not depend on the parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from d3gnn.nn.model import GNN
from d3gnn.training.part_graph import Labels
from d3gnn.training.rank_graph import RankGraph
from d3gnn.training.row_modules import mix
from d3gnn.training.settings import Training
from d3gnn.training.split import split, targets
from d3gnn.training.tasks import Task, predictions, task_of
from d3gnn.types import Hashes, Ints


class Examples(ABC):
    """Training examples of a rank."""

    task: Task
    #: Over all ranks: for training, held out, and for testing.
    counts: tuple[int, int, int]

    @abstractmethod
    def batches(self, epoch: int, size: int | None) -> Iterator[Ints]:
        """The examples of this rank in each batch; every rank has the same number of batches."""

    @abstractmethod
    def losses(self, model: GNN, embedding: Tensor, rows: Ints, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        """The loss and the weight of each example, and the sums of the task's score."""

    @abstractmethod
    def sums(self, model: GNN, embedding: Tensor, purpose: str) -> Tensor:
        """The sums of the task's score over the examples for `train`, `holdout` or `test`."""


class LabelledVertices(Examples):
    """Vertices with labels. `labels` may contain those of other ranks."""

    def __init__(self, model: GNN, graph: RankGraph, labels: Labels, settings: Training) -> None:
        rows, index = graph.own(labels)
        if settings.newest is not None:
            recent = _newest(labels.time[rows], settings.newest, graph)
            rows, index = rows[recent], index[recent]
        own = labels.take(rows)
        self._rows = split(own, settings)._asdict()
        self._index, self._targets = torch.from_numpy(index), torch.from_numpy(targets(own, settings))
        ranks = graph.ranks
        counts = ranks.add_up(torch.tensor([len(rows) for rows in self._rows.values()]))
        self.counts = tuple(counts.tolist())
        train = self._rows["train"]
        self.task = task_of(model, settings, self._targets[torch.from_numpy(train)], ranks)
        self._batches = ShuffledBatches(
            own.hashes[train],
            [each.numpy() for each in ranks.join(_signed(own.hashes[train]))],
            settings.seed,
        )

    def batches(self, epoch: int, size: int | None) -> Iterator[Ints]:
        for batch in self._batches.of(epoch, size):
            yield self._rows["train"][batch]

    def losses(self, model: GNN, embedding: Tensor, rows: Ints, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        predicted, wanted = self._pairs(model, embedding, rows)
        with torch.no_grad():
            sums = self.task.sums(predicted.detach(), wanted)
        return *self.task.losses(predicted, wanted), sums

    def sums(self, model: GNN, embedding: Tensor, purpose: str) -> Tensor:
        return self.task.sums(*self._pairs(model, embedding, self._rows[purpose]))

    def _pairs(self, model: GNN, embedding: Tensor, rows: Ints) -> tuple[Tensor, Tensor]:
        chosen = torch.from_numpy(rows)
        return predictions(model, distinct_rows(embedding, self._index[chosen])), self._targets[chosen]


def _newest(time: Ints, count: int, graph: RankGraph) -> Ints:
    """The labels of this rank that are among the newest of all ranks; more where times are equal."""
    every = np.concatenate([each.numpy() for each in graph.ranks.join(torch.from_numpy(time))])
    if len(every) <= count:
        return np.arange(len(time))
    return np.flatnonzero(time >= np.partition(every, -count)[-count])


def distinct_rows(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x, each at most once: then the gradient is a copy instead of a sum."""
    if len(index) == len(x) and torch.equal(index, torch.arange(len(x))):
        return x
    return cast(Tensor, _DistinctRows.apply(x, index))  # type: ignore[no-untyped-call]


class _DistinctRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        ctx.rows = len(x)
        ctx.save_for_backward(index)
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        out = grads[0].new_zeros((ctx.rows, *grads[0].shape[1:]))
        return out.index_copy_(0, index, grads[0]), None


class ShuffledBatches:
    """Divides examples among batches, in an order that depends on their hashes, the seed and the epoch.

    own, every:
        The hashes of this rank's examples, and those of all ranks, as signed integers.
    """

    def __init__(self, own: Hashes, every: list[Ints], seed: int) -> None:
        self._own, self._every, self._seed = own, np.concatenate(every).view(np.uint64), seed

    def of(self, epoch: int, size: int | None) -> Iterator[Ints]:
        """The examples in each batch of an epoch."""
        n = len(self._every)
        if size is None or size >= n:
            yield np.arange(len(self._own))
            return
        salt = np.uint64((self._seed * 65_537 + epoch) * 0x9E3779B97F4A7C15 % 2**64)
        drawn, every = mix(self._own ^ salt), np.sort(mix(self._every ^ salt))
        place = np.searchsorted(every, drawn)
        for begin in range(0, n, size):
            yield np.flatnonzero((place >= begin) & (place < begin + size))


def _signed(hashes: Hashes) -> Tensor:
    """Hashes for an exchange; torch has no unsigned integers that gloo sends."""
    return torch.from_numpy(np.ascontiguousarray(hashes).view(np.int64))
