"""Commands to a pipeline while it runs: refresh, drain, another model, and how much is pending; to a stopped
one: forget.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path

from d3gnn.events import Key
from d3gnn.nn.model import GNN
from d3gnn.runtime.erasure import Erasure, forget
from d3gnn.runtime.plan import recorded_homes
from d3gnn.runtime.rebuild_progress import read_rebuild
from d3gnn.runtime.rollout import deploy
from d3gnn.runtime.store_timers import StoreTimers
from d3gnn.runtime.timers import pending
from d3gnn.store.control import command
from d3gnn.store.models import ModelVersion, list_models
from d3gnn.store.store import Store


class PipelineCommands(ABC):
    """The commands of a pipeline, for whatever knows its store and its arrays."""

    @abstractmethod
    def _folders(self) -> tuple[str, str]:
        """The pipeline's store, and the folder of its arrays on this host."""

    def refresh(self) -> None:
        """Rebuild all state from the graph log in the next batch, which emits every embedding again."""
        command(f"{self._folders()[0]}/control", "refresh")

    def drain(self) -> None:
        """Send everything that is pending in windows in the next batch."""
        command(f"{self._folders()[0]}/control", "drain")

    def forget(
        self, ids: Iterable[Key], output: str | Path | Sequence[str | Path] = (), *, dry_run: bool = False
    ) -> Erasure:
        """Erase vertices with all their edges from everything that the stopped pipeline keeps; the next start
        rebuilds its state. See docs/erasure.md.

        output:
            Tables that it wrote, from which rows of these vertices are deleted.
        dry_run:
            Only search.
        """
        store, arrays = self._folders()
        outputs = [output] if isinstance(output, str | Path) else output
        return forget(store, ids, outputs=outputs, arrays=arrays, dry_run=dry_run)

    def deploy(self, model: GNN | int | str, name: str | None = None) -> ModelVersion:
        """Switch to another model without a stop; returns its version.

        The next batch rebuilds all state with it, and emits every output again. Later starts with the same
        `StreamingGNN` keep it.

        model:
            A new model, or a version that the store has, by its number or name: a rollback. A model that the
            store has is the same version as before. It must have as many layers as the running one, the same
            width of input and the same kind of head; hidden and output widths, kinds of layers and weights
            are free. `ModelMismatch` names what differs.
        name:
            Name of a new model, such as `june`; by default `v2` for version 2.
        """
        return deploy(Store(self._folders()[0]), model, name)

    def models(self) -> list[ModelVersion]:
        """All versions of the model, from the first one on: `version`, `name` and `digest`."""
        return list_models(Store(self._folders()[0]))

    def pending(self) -> int:
        """The number of vertices that are pending in windows, over all operators, after the last batch."""
        folder, _ = self._folders()
        store = Store(folder)
        if recorded_homes(store):
            return StoreTimers(store).read().pending
        return pending(self._query_folder())

    def rebuilding(self) -> str:
        """What a rebuild of all state from the graph log does now, as a phrase; empty if none is under way.

        Spark reports nothing of a batch before its end, and a rebuild of a large graph takes minutes. On a
        cluster, the files that show it are on other machines: there it is always empty.
        """
        return read_rebuild(self._query_folder())

    def _query_folder(self) -> Path:
        store, arrays = self._folders()
        return Path(arrays) / Store(store).owner()
