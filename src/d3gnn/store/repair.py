"""Repair of a store: drop damaged files, and the tail of the log that cannot be used without them."""

from __future__ import annotations

from dataclasses import dataclass, field

from d3gnn.store.check import StoreReport
from d3gnn.store.gaps import ranges
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.names import (
    DEAD_LETTERS,
    LOG,
    SNAPSHOTS,
    batches_in,
    dead_letters_path,
    entry_path,
    snapshot_path,
)
from d3gnn.store.owners import Owners
from d3gnn.store.spark_checkpoint import SparkCheckpoint
from d3gnn.store.store import FORK, OFFSETS, OWNERS, QUERY, SETTINGS, Store, StoreDamaged, StoreError


@dataclass(frozen=True)
class Repair:
    """What a repair will do."""

    store: Store
    #: The newest batch that is kept.
    keep: int
    #: Batches whose events the pipeline must read again.
    dropped: list[int] = field(default_factory=list)
    #: Batches whose entry is dropped as history only: a later snapshot has their graph.
    history: list[int] = field(default_factory=list)
    #: Other damaged files that are dropped.
    files: list[str] = field(default_factory=list)
    #: The checkpoint that is set back to `keep`, and the log's number of its batch 0.
    checkpoint: SparkCheckpoint | None = None
    offset: int = 0

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.dropped or self.history or self.files or self.checkpoint)

    def steps(self) -> list[str]:
        """What will be done, in sentences."""
        steps = []
        if self.dropped:
            steps.append(
                f"drop {ranges(self.dropped)} from the log: the pipeline must read their events again"
            )
        if self.checkpoint is not None:
            steps.append(
                f"set the checkpoint {self.checkpoint.path} back to batch {self.keep - self.offset}: "
                "Spark reads the events after it again"
            )
        if self.history:
            steps.append(
                f"drop the history of {ranges(self.history)}: a snapshot has their graph, no event is lost"
            )
        steps += [f"delete {path}" for path in self.files]
        return steps

    def apply(self) -> None:
        """Do it. After an interruption, plan again: nothing is half done that a check does not see."""
        if self.checkpoint is not None:
            self.checkpoint.set_back(self.keep - self.offset)
        if self.dropped:
            for batch in batches_in(self.store, DEAD_LETTERS):
                if batch > self.keep:
                    self.store.delete(dead_letters_path(batch))
            GraphLog(self.store).drop_after(self.keep)
        for batch in self.history:
            self.store.delete(entry_path(batch))
        for path in self.files:
            self.store.delete(path)


def plan_repair(
    store: Store, report: StoreReport, checkpoint: SparkCheckpoint | None, last_batch: int | None = None
) -> Repair:
    """The repair of a store that was checked, which keeps the log up to `last_batch` at most.

    Raises `StoreError` where nothing can be saved.
    """
    for damage in report.damages:
        # Without its owners, a store does not know which entries belong to which checkpoint.
        owns = damage.path.split("/")[0] in (OWNERS, OFFSETS) or damage.path == FORK
        owns |= damage.path == QUERY and bool(store.list(OWNERS))
        if damage.path == SETTINGS or owns:
            raise StoreDamaged(f"{damage.problem} {damage.path} cannot be repaired.")
    keep = report.intact(last_batch)
    if keep is None or (keep < 0 and report.last >= 0):
        raise StoreError(
            f"nothing of the graph log in {store.uri} can be saved: no undamaged entries lead to the graph "
            f"after any batch. Damaged: {', '.join(damage.path for damage in report.damages)}. Restore the "
            "store from a backup, or read the events from the start with a new store and a new checkpoint."
        )
    dropped = list(range(keep + 1, report.last + 1))
    # The oldest base that leads to the batch keeps the most history.
    base = min(base for base, reach in report.reach.items() if base <= keep <= reach)
    damaged = [batch for batch in report.bad if batch <= base]
    damaged += [batch - 1 for batch in report.unlinked if batch <= base]
    cut = max(damaged, default=-1)
    history = [batch for batch in batches_in(store, LOG) if batch <= cut]
    files = [snapshot_path(batch) for batch in batches_in(store, SNAPSHOTS) if batch <= cut and batch < base]
    handled = {entry_path(batch) for batch in {*report.bad, *report.unlinked}}
    for damage in report.damages:
        if damage.path not in handled and not (damage.batch is not None and damage.batch > keep):
            files.append(damage.path)
    owner = None if QUERY in files else Owners(store, GraphLog(store)).newest()
    offset = 0 if owner is None else owner.offset
    set_back = checkpoint if checkpoint is not None and checkpoint.is_after(keep - offset) else None
    if set_back is not None:
        set_back.check_set_back(keep - offset)
    return Repair(store, keep, dropped, history, sorted(set(files)), set_back, offset)
