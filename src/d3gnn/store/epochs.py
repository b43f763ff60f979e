"""The epochs of a pipeline on a cluster, and which of them are lost.

Every rebuild of the state starts an epoch, which all machines must learn of, also those that cannot be
reached at that moment. So epochs are files of the store: the newest one counts. Each is created by one
writer, and its value has random bits: an epoch that was begun twice, in a copy of the store or on a file
system without atomic creates, has two values. State of any other epoch is not used.

An operator part that finds no state, or that of another version, marks the epoch as lost. Partition looks
for the mark in every batch, and then starts the next epoch.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple

from d3gnn.store.sealed_json import to_json
from d3gnn.store.store import SETTINGS, Store, StoreError

__all__ = ["Epoch", "Epochs", "StoreUnreachable"]

EPOCHS, LOST = "epochs", "lost"
_RANDOM_BITS = 32
#: Files of earlier epochs that stay, to look at.
_KEPT = 8


class StoreUnreachable(StoreError):
    """The store cannot be reached now."""


class Epoch(NamedTuple):
    """A generation of the state."""

    number: int
    #: As in versions: the number, and random bits.
    value: int
    #: The batch of the log that started it, and the run of the query.
    batch: int
    run: int
    #: The model and the settings that its state was built with.
    built_with: tuple[int, ...] = ()


class Epochs:
    """The epochs of a store.

    >>> import tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> epochs = Epochs(store)
    >>> first = epochs.begin(batch=0, run=1)
    >>> epochs.is_current(first.value), epochs.is_current(first.value + 1)
    (True, False)
    >>> epochs.lose(first.value, "edge-1, part 0, on h2: no arrays")
    >>> epochs.is_current(first.value), Epochs(store).newest() == first
    (False, True)
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._newest: Epoch | None = None

    def newest(self) -> Epoch | None:
        """The newest epoch; None before the first one."""
        if self._newest is None or self._store.exists(_path(self._newest.number + 1)):
            names = self._store.list(EPOCHS)
            self._newest = self._read(names[-1]) if names else None
        return self._newest

    def is_current(self, value: int) -> bool:
        """Whether this is the newest epoch, and no part of it is lost."""
        newest = self.newest()
        return newest is not None and newest.value == value and not self.is_lost(value)

    def begin(self, batch: int, run: int, built_with: Sequence[int] = ()) -> Epoch:
        """Start the next epoch."""
        while True:
            newest = self.newest()
            number = 1 if newest is None else newest.number + 1
            value = number << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
            epoch = Epoch(number, value, batch, run, tuple(built_with))
            self._store.create(_path(number), to_json(epoch._asdict()))
            self._newest = self._read(_path(number).rpartition("/")[2])
            if self._newest == epoch:
                self._drop_old(number)
                return epoch

    def lose(self, value: int, why: str) -> None:
        """Mark an epoch: state of a part of it is lost."""
        self._store.create(f"{LOST}/{value}", why.encode())

    def is_lost(self, value: int) -> bool:
        """Whether state of this epoch is lost."""
        return self._store.exists(f"{LOST}/{value}")

    def why_lost(self, value: int) -> str:
        """What is lost of an epoch; empty if nothing is."""
        return (self._store.read(f"{LOST}/{value}") or b"").decode(errors="replace")

    def require_store(self) -> None:
        """Check that the store is there: where its disk is not mounted, an empty folder may be."""
        if not self._store.exists(SETTINGS):
            raise StoreUnreachable(
                f"{SETTINGS} is missing in the store {self._store.uri}, as seen by this host: the storage is "
                "not mounted or cannot be reached here now. Nothing was written."
            )

    def _read(self, name: str) -> Epoch | None:
        found = self._store.read_json(f"{EPOCHS}/{name}")
        if found is None:
            return None
        return Epoch(**found | {"built_with": tuple(found["built_with"])})

    def _drop_old(self, number: int) -> None:
        for name in self._store.list(EPOCHS)[:-_KEPT]:
            self._store.delete(f"{EPOCHS}/{name}")
        for name in self._store.list(LOST):
            if name.isdecimal() and int(name) >> _RANDOM_BITS < number - _KEPT:
                self._store.delete(f"{LOST}/{name}")


def _path(number: int) -> str:
    return f"{EPOCHS}/{number:09d}"
