"""Training for links: edges of the graph against sampled pairs, which do not depend on the parts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from d3gnn.nn.heads import PairHead
from d3gnn.nn.model import GNN
from d3gnn.training.examples import Examples, LabelledVertices, ShuffledBatches
from d3gnn.training.halo import Halo
from d3gnn.training.part_graph import Labels
from d3gnn.training.rank_graph import RankGraph
from d3gnn.training.row_modules import mix
from d3gnn.training.settings import Training
from d3gnn.training.split import chosen
from d3gnn.training.tasks import Task, loss_name
from d3gnn.types import Hashes, Ints

_ODD = 0x9E3779B97F4A7C15


class LinkTask(Task):
    """Cross-entropy of edges against sampled pairs; the score is how often an edge scores above them (AUC).

    Predictions are logits: of the edge, then of its sampled pairs.
    """

    width = 2

    def losses(self, predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        softplus = nn.functional.softplus
        losses = (softplus(-predicted[:, 0]) + softplus(predicted[:, 1:]).sum(1)) / predicted.shape[1]
        return losses, torch.ones_like(losses)

    def sums(self, predicted: Tensor, target: Tensor) -> Tensor:
        edge, others = predicted[:, :1], predicted[:, 1:]
        wins = (edge > others).double() + 0.5 * (edge == others).double()
        return torch.stack([wins.sum(), torch.tensor(float(wins.numel()), dtype=torch.float64)])

    def score(self, sums: Tensor) -> float:
        return float(sums[0] / sums[1].clamp(min=1))


class _Sampled:
    """Other destinations for each edge, chosen by the hashes of its ends, the seed and the epoch."""

    def __init__(self, halo: Halo, row: Tensor) -> None:
        self.halo, self.row = halo, row  # [edges, negatives]


class GraphEdges(Examples):
    """The edges that this rank's parts hold. Held-out edges still carry messages."""

    def __init__(self, graph: RankGraph, settings: Training) -> None:
        self._graph, self._settings, ranks = graph, settings, graph.ranks
        self.task = LinkTask()
        on = graph.edges(loops=True, reads_destination=True)
        self._halo, (self._src, self._dst) = on.sources, on.ends
        own = torch.from_numpy(np.ascontiguousarray(graph.hashes).view(np.int64)).unsqueeze(1)
        hashes = self._halo.to_replicas(own)[:, 0].numpy().view(np.uint64)
        #: By edge: a hash of both ends.
        self._hashes: Hashes = mix(hashes[self._src.numpy()] ^ mix(hashes[self._dst.numpy()]))
        every = [each[:, 0].numpy() for each in ranks.join(own)]
        keys = [graph.key(rank, np.arange(len(each))) for rank, each in enumerate(every)]
        #: All vertices of all ranks, in the order of their hashes.
        self._vertices: Ints = np.concatenate(keys)[np.argsort(np.concatenate(every), kind="stable")]
        test = chosen(self._hashes, settings.test, settings.seed, 1)
        holdout = ~test & chosen(self._hashes, settings.holdout, settings.seed, 2)
        rows = {"train": ~test & ~holdout, "holdout": holdout, "test": test}
        self._rows = {name: np.flatnonzero(each) for name, each in rows.items()}
        counts = ranks.add_up(torch.tensor([len(each) for each in self._rows.values()])).tolist()
        self.counts = counts[0], counts[1], counts[2]
        train = self._hashes[self._rows["train"]]
        joined = [each.numpy() for each in ranks.join(torch.from_numpy(train.view(np.int64)))]
        self._batches = ShuffledBatches(train, joined, settings.seed)
        self._fixed = self._sample(0)
        self._epoch, self._sampled = 0, self._fixed

    def _sample(self, epoch: int) -> _Sampled:
        """Pairs of an epoch; 0 are those that scores are computed with."""
        salt = np.uint64((self._settings.seed * 131 + epoch + 1) * _ODD % 2**64)
        number = np.arange(self._settings.negatives, dtype=np.uint64) * np.uint64(_ODD)
        drawn = mix((self._hashes ^ salt)[:, None] + number) % np.uint64(len(self._vertices))
        keys, row = np.unique(self._vertices[drawn.astype(np.int64)], return_inverse=True)
        return _Sampled(self._graph.halo(keys), torch.from_numpy(row.reshape(drawn.shape)))

    def batches(self, epoch: int, size: int | None) -> Iterator[Ints]:
        self._sampled = self._sample(epoch)
        for batch in self._batches.of(epoch, size):
            yield self._rows["train"][batch]

    def losses(self, model: GNN, embedding: Tensor, rows: Ints, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        logits = self._logits(model, embedding, rows, self._sampled)
        with torch.no_grad():
            sums = self.task.sums(logits.detach(), logits)
        return *self.task.losses(logits, logits), sums

    def sums(self, model: GNN, embedding: Tensor, purpose: str) -> Tensor:
        logits = self._logits(model, embedding, self._rows[purpose], self._fixed)
        return self.task.sums(logits, logits)

    def _logits(self, model: GNN, embedding: Tensor, rows: Ints, sampled: _Sampled) -> Tensor:
        """Of each edge and its pairs: [rows, 1 + negatives]."""
        assert isinstance(model.head, PairHead)
        ends, others = self._halo.spread(embedding), sampled.halo.spread(embedding)
        some = torch.from_numpy(rows)
        source = ends[self._src[some]]
        columns = [model.head.logit(source, ends[self._dst[some]])]
        for each in sampled.row[some].T:
            columns.append(model.head.logit(source, others[each]))
        return torch.stack(columns, 1)


def examples_of(model: GNN, graph: RankGraph, labels: Labels, settings: Training) -> Examples:
    """What a model is trained on: edges for a head that scores pairs, else labelled vertices."""
    if loss_name(model, settings) != "link":
        if isinstance(model.head, PairHead):
            raise ValueError("a model with a head for pairs is trained with loss='link'")
        return LabelledVertices(model, graph, labels, settings)
    if not isinstance(model.head, PairHead):
        raise ValueError("loss='link' needs a head for pairs, such as GNN(layers, LinkPredictor())")
    return GraphEdges(graph, settings)
