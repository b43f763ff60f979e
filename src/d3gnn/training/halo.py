"""The exchange between masters and the places where their values are used, with its gradient.

Values go from masters to replicas, partial aggregates from replicas to masters. Each is the gradient of the
other. Between the parts of one rank both happen in memory, between ranks through `Ranks.swap`.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from d3gnn.kernel.csr import Csr, over_rows
from d3gnn.kernel.csr.edges import by_row
from d3gnn.kernel.csr.extremes import best_rows
from d3gnn.kernel.csr.sums import sum_rows
from d3gnn.training.ranks import Ranks
from d3gnn.types import Ints

_NO_WEIGHT = np.zeros(0, np.float32)


class Halo:
    """Rows that are copies of masters' rows, also of masters in other ranks.

    owner, index:
        For each row, the rank of its master, and the master's number in that rank. Rows must be in the order
        of owners.
    masters:
        The number of masters of this rank.
    """

    def __init__(self, ranks: Ranks, owner: Ints, index: Ints, masters: int) -> None:
        self._ranks, self.rows, self.masters = ranks, len(index), masters
        self._received = np.bincount(owner, minlength=ranks.size).tolist()
        counts = torch.tensor(self._received, dtype=torch.int64)
        self._sent = ranks.swap(counts, [1] * ranks.size, [1] * ranks.size).tolist()
        wanted = ranks.swap(torch.from_numpy(index.astype(np.int64)), self._received, self._sent)
        #: Which masters' rows are sent, in the order of the receiving ranks.
        self.index = wanted
        #: Every master is used once, in this order, by this rank: nothing need be copied.
        self._is_whole = ranks.size == 1 and np.array_equal(index, np.arange(masters))
        ends, order = by_row(wanted.numpy().astype(np.int32), masters)
        self._by_master = Csr(ends, order, order)

    def to_replicas(self, x: Tensor) -> Tensor:
        """Copies of masters' rows: [masters, width] -> [rows, width], without a gradient."""
        if self._is_whole:
            return x
        return self._ranks.swap(x.index_select(0, self.index), self._sent, self._received)

    def to_masters(self, partials: Tensor) -> Tensor:
        """The sum of each master's partials: [rows, width] -> [masters, width], without a gradient."""
        if self._is_whole:
            return partials
        received = self._ranks.swap(partials.contiguous(), self._received, self._sent)
        out = torch.empty((self.masters, partials.shape[1]))
        over_rows(sum_rows, self._by_master, out.shape[1], _NO_WEIGHT, received.detach().numpy(), out.numpy())
        return out

    def best(self, partials: Tensor) -> Tensor:
        """The largest of each master's partials, without a gradient; -inf where there is none."""
        if self._is_whole:
            return partials
        received = self._ranks.swap(partials.contiguous(), self._received, self._sent)
        out = torch.empty((self.masters, partials.shape[1]))
        values = received.detach().numpy(), np.float32(1.0), out.numpy()
        over_rows(best_rows, self._by_master, out.shape[1], _NO_WEIGHT, *values)
        return out

    def spread(self, x: Tensor) -> Tensor:
        """`to_replicas`, with its gradient."""
        return x if self._is_whole else cast(Tensor, _Spread.apply(x, self))  # type: ignore[no-untyped-call]

    def collect(self, partials: Tensor) -> Tensor:
        """`to_masters`, with its gradient."""
        if self._is_whole:
            return partials
        return cast(Tensor, _Collect.apply(partials, self))  # type: ignore[no-untyped-call]


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, halo: Halo) -> Tensor:
        ctx.halo = halo
        return halo.to_replicas(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.halo.to_masters(grads[0]), None


class _Collect(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, partials: Tensor, halo: Halo) -> Tensor:
        ctx.halo = halo
        return halo.to_masters(partials)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.halo.to_replicas(grads[0]), None
