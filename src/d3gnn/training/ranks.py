"""The processes that train one model together, and what they exchange."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor


class Ranks(ABC):
    """The processes of one training. All of them call the same methods in the same order."""

    rank: int
    size: int

    @abstractmethod
    def swap(self, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """Send `sent[r]` rows to each rank r, in order; returns the `received[r]` rows from each."""

    @abstractmethod
    def add_up(self, tensor: Tensor) -> Tensor:
        """The sum of this tensor over all ranks."""

    @abstractmethod
    def join(self, rows: Tensor) -> list[Tensor]:
        """The rows of every rank; ranks may have different numbers of them."""

    def close(self) -> None:  # noqa: B027  # nothing to do for some
        """Leave the group."""


class OneRank(Ranks):
    """A process that trains alone: parts exchange in its memory."""

    rank, size = 0, 1

    def swap(self, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        return rows

    def add_up(self, tensor: Tensor) -> Tensor:
        return tensor

    def join(self, rows: Tensor) -> list[Tensor]:
        return [rows]


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return ranks.add_up(tensor.clone())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.ranks.add_up(grads[0].contiguous().clone()), None


def sum_over(ranks: Ranks, tensor: Tensor) -> Tensor:
    """The sum over all ranks, with its gradient."""
    if ranks.size == 1:
        return tensor
    return cast(Tensor, _Sum.apply(tensor, ranks))  # type: ignore[no-untyped-call]
