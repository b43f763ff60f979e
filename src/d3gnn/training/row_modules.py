"""Modules of a model that do more in training than work on each row alone: batch-norm and dropout.

Batch-norm takes the statistics of all vertices, over all ranks. Dropout is a function of the vertex's id, the
step and the column: the same for any number of parts and ranks, and for all replicas of a message.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from d3gnn.nn.model import GNN
from d3gnn.training.ranks import Ranks, sum_over
from d3gnn.types import Hashes

_ODD = 0x9E3779B97F4A7C15


class RowModules:
    """Replaces these modules in a model, in place, for as long as it trains.

    dropout:
        The share of the input of each layer but the first that is set to 0, besides the model's own Dropout.
    """

    def __init__(self, model: GNN, ranks: Ranks, hashes: Hashes, *, dropout: float, seed: int) -> None:
        self._hashes, self._seed, self._step = hashes, seed, 0
        self._dropout, self._model = dropout, model
        replaced = 0
        for owner in list(model.modules()):
            for name, module in list(owner.named_children()):
                if isinstance(module, nn.BatchNorm1d):
                    made: nn.Module = GlobalBatchNorm(module, ranks)
                elif isinstance(module, nn.Dropout):
                    replaced += 1
                    made = _Dropout(module, self, 1000 + replaced)
                else:
                    continue
                setattr(owner, name, made)

    def restore(self) -> None:
        """Put the model's own modules back."""
        for owner in list(self._model.modules()):
            for name, module in list(owner.named_children()):
                if isinstance(module, GlobalBatchNorm | _Dropout):
                    setattr(owner, name, module.original)

    def begin(self, step: int) -> None:
        """Draw other numbers from now on."""
        self._step = step

    def between(self, x: Tensor, layer: int) -> Tensor:
        """The input of a layer with numbers dropped, while the model is in training mode."""
        return self.drop(x, self._dropout, layer) if self._dropout and self._model.training else x

    def drop(self, x: Tensor, p: float, place: int) -> Tensor:
        """Numbers set to 0 with probability p, and the others scaled; `place` tells masks of a step apart."""
        if p >= 1.0:
            return x * 0.0
        if len(x) != len(self._hashes):
            raise NotImplementedError(
                f"dropout reads {len(x)} rows instead of the {len(self._hashes)} vertices: it can be trained "
                "in update() of a layer, but not on messages of edges"
            )
        key = np.uint64((self._seed * 1_000_003 + self._step * 8191 + place) * _ODD % 2**64)
        column = np.arange(x.shape[1], dtype=np.uint64) * np.uint64(0xD1B54A32D192ED03)
        mixed = mix(mix(self._hashes ^ key)[:, None] + column)
        kept = (mixed >> np.uint64(11)).astype(np.float64) >= p * 2.0**53
        return x * torch.from_numpy(kept.astype(np.float32) / np.float32(1.0 - p))


def mix(x: Any) -> Any:
    """Spread the bits of each number (splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class _Dropout(nn.Module):
    def __init__(self, original: nn.Dropout, rows: RowModules, place: int) -> None:
        super().__init__()
        self._kept, self._rows, self._place = [original], rows, place

    @property
    def original(self) -> nn.Dropout:
        return self._kept[0]

    def forward(self, x: Tensor) -> Tensor:
        return self._rows.drop(x, self.original.p, self._place) if self.training and self.original.p else x


class GlobalBatchNorm(nn.Module):
    """Batch-norm with the mean and variance over the rows of all ranks."""

    def __init__(self, original: nn.BatchNorm1d, ranks: Ranks) -> None:
        super().__init__()
        self.original, self._ranks = original, ranks

    def forward(self, x: Tensor) -> Tensor:
        norm = self.original
        if not norm.training:
            return norm(x)  # type: ignore[no-any-return]
        count = sum_over(self._ranks, torch.tensor([float(len(x))]))
        mean = sum_over(self._ranks, x.sum(0)) / count
        centred = x - mean
        variance = sum_over(self._ranks, (centred * centred).sum(0)) / count
        self._record(mean.detach(), variance.detach() * count / (count - 1).clamp(min=1.0))
        out = centred * torch.rsqrt(variance + norm.eps)
        return out * norm.weight + norm.bias if norm.affine else out

    @torch.no_grad()
    def _record(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics, as torch does."""
        norm = self.original
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.num_batches_tracked is not None
        norm.num_batches_tracked += 1
        momentum = 1.0 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
        norm.running_mean += momentum * (mean - norm.running_mean)
        norm.running_var += momentum * (variance - norm.running_var)
