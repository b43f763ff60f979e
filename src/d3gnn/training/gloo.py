"""Ranks in several processes, over torch.distributed's gloo."""

from __future__ import annotations

import datetime
import socket
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from d3gnn.training.ranks import Ranks


class RanksDisconnected(RuntimeError):
    """A rank did not take part in an exchange in time."""


class GlooRanks(Ranks):
    """One of several processes, connected by gloo.

    address:
        `host:port` of rank 0.
    timeout:
        Seconds that an exchange may take.
    parts:
        What the rank computes, for error messages, such as `parts 0 to 3`.
    """

    def __init__(
        self, rank: int, size: int, address: str, *, timeout: float = 600.0, parts: str = "its parts"
    ) -> None:
        self.rank, self.size, self._parts, self._timeout = rank, size, parts, timeout
        host, _, port = address.rpartition(":")
        limit = datetime.timedelta(seconds=timeout)
        store = dist.TCPStore(  # type: ignore[attr-defined]
            host, int(port), size, is_master=rank == 0, timeout=limit
        )
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)

    def swap(self, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        out = rows.new_empty((sum(received), *rows.shape[1:]))
        with self._explained("exchanging rows"):
            dist.all_to_all_single(out, rows.contiguous(), list(received), list(sent))
        return out

    def add_up(self, tensor: Tensor) -> Tensor:
        with self._explained("adding up"):
            dist.all_reduce(tensor)
        return tensor

    def join(self, rows: Tensor) -> list[Tensor]:
        counts = torch.zeros(self.size, dtype=torch.int64)
        counts[self.rank] = len(rows)
        each = self.add_up(counts).tolist()
        with self._explained("collecting rows"):
            # Rows of one length: gloo gathers tensors of equal shapes only.
            padded = rows.new_zeros((max(each), *rows.shape[1:]))
            padded[: len(rows)] = rows
            found = [torch.empty_like(padded) for _ in each]
            dist.all_gather(found, padded)
        return [all_rows[:count] for all_rows, count in zip(found, each, strict=True)]

    def close(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    def _explained(self, what: str) -> _Explained:
        return _Explained(
            f"rank {self.rank} of {self.size} on {socket.gethostname()} ({self._parts}) failed when {what}: "
            f"another rank has ended, or did not answer within {self._timeout:g} s"
        )


class _Explained:
    """Turns torch's errors into one that names the rank."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RuntimeError):
            raise RanksDisconnected(self._message) from error
