"""State backends: where the state of operator parts is kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from d3gnn.kernel.mapped_state import MappedPartState
from d3gnn.kernel.operators.base import PARTITION, OperatorId
from d3gnn.kernel.part_state import PartState
from d3gnn.private import private_folder
from d3gnn.runtime.in_use import InUse

S = TypeVar("S", bound=PartState)


class StateBackend(ABC, Generic[S]):
    """Opens the state of every operator part of a host, each one once.

    A backend is `open_state` for `build_operator`; a host commits and resets all opened parts through it.
    """

    def __init__(self) -> None:
        self._opened: dict[tuple[OperatorId, int], S] = {}

    def open(self, operator: OperatorId, part: int) -> S:
        """The state of an operator part."""
        state = self._opened.get((operator, part))
        if state is None:
            state = self._opened[operator, part] = self._open(operator, part)
        return state

    @abstractmethod
    def _open(self, operator: OperatorId, part: int) -> S: ...

    def begin(self) -> None:
        """Mark all parts as between two versions."""
        for state in self._opened.values():
            state.begin()

    def commit(self, epoch: int, batch: int) -> None:
        """Stamp this version on all parts."""
        for state in self._opened.values():
            state.commit(epoch, batch)

    def reset(self) -> None:
        """Clear all parts."""
        for state in self._opened.values():
            state.reset()

    def sizes(self) -> dict[str, int]:
        """Bytes of each operator's state, over all parts. Reads every row: for reports."""
        sizes: dict[str, int] = {}
        for (operator, _), state in self._opened.items():
            sizes[str(operator)] = sizes.get(str(operator), 0) + state.nbytes
        return sizes

    def close(self) -> None:
        """Release all parts."""
        self._opened.clear()


class MemoryBackend(StateBackend[PartState]):
    """State in the memory of one process. It needs no versions: no other process can find it."""

    def _open(self, operator: OperatorId, part: int) -> PartState:
        return PartState()

    def begin(self) -> None:
        """Nothing to mark."""

    def commit(self, epoch: int, batch: int) -> None:
        """Nothing to stamp."""


class MappedBackend(StateBackend[MappedPartState]):
    """State in memory-mapped files under a folder, which other processes of the host can open, too.

    root:
        The folder above it that the user chose, which must belong to the user alone; by default, `folder`.
    fresh:
        Clear the state of earlier runs when it is opened.
    in_use:
        Marks the folder as in use before a part is opened.
    on_open:
        Called with each operator of which a part is opened, also again, after its files were deleted:
        operators over the old files must be dropped.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        root: str | Path | None = None,
        fresh: bool = False,
        in_use: InUse | None = None,
        on_open: Callable[[OperatorId], None] | None = None,
    ) -> None:
        super().__init__()
        self._folder, self._root = Path(folder), Path(root or folder)
        self.fresh, self._in_use, self._on_open = fresh, in_use, on_open

    def folder(self, operator: OperatorId, part: int) -> Path:
        """The folder of an operator part's files."""
        return self._folder / str(operator) / str(part)

    def open(self, operator: OperatorId, part: int) -> MappedPartState:
        """The state of an operator part, opened again if its files were deleted or damaged."""
        state = self._opened.get((operator, part))
        if state is None or not (self.fresh or (state.is_current() and not state.was_damaged())):
            state = self._opened[operator, part] = self._open(operator, part)
            if self._on_open is not None:
                self._on_open(operator)
        return state

    def reopen_changed(self, operator: OperatorId, part: int) -> None:
        """Before a refresh: open a part again if another process has changed its arrays. It may have had a
        model of other widths: arrays that share rows have then different lengths here. Opening them again
        empties them all.
        """
        state = self.open(operator, part)
        with state.locked():  # maps what other processes have changed
            pass
        if state.is_changed:
            self._opened.pop((operator, part)).close()
            self.open(operator, part)

    def _open(self, operator: OperatorId, part: int) -> MappedPartState:
        private_folder(self._root)
        if self._in_use is not None:
            self._in_use.mark()
        state = MappedPartState(self.folder(operator, part))
        if self.fresh:
            state.reset()
            state.commit(0, 0)
        return state

    def close_operators(self) -> None:
        """Release all parts but those of Partition: their arrays get other widths."""
        for id, part in [key for key in self._opened if key[0] != PARTITION]:
            self._opened.pop((id, part)).close()

    def close(self) -> None:
        """Release all parts and their files."""
        for state in self._opened.values():
            state.close()
        if self._in_use is not None:
            self._in_use.close()
        super().close()
