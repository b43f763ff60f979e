"""Gaps in the graph log."""

from __future__ import annotations

from collections.abc import Sequence

from d3gnn.store.names import entry_path
from d3gnn.store.store import StoreError


class LogGap(StoreError):
    """Entries of the log are missing: input is lost."""

    @staticmethod
    def of(store: str, missing: Sequence[int], why: str, cause: str = "") -> LogGap:
        """About these batches, whose entries are missing."""
        return LogGap(
            f"the graph log in {store} has no entry for {ranges(missing)}, but {why}. The input of those "
            "batches is lost to this graph. Restore the store from a backup that has them; or set the "
            "checkpoint back to the log with `d3gnn repair --checkpoint`; or read the events from the start "
            f"with a new store and a new checkpoint.{cause} The first missing file is "
            f"{entry_path(missing[0])}."
        )


def ranges(batches: Sequence[int]) -> str:
    """Batches by number.

    >>> ranges([3]), ranges([3, 4, 5, 9])
    ('batch 3', 'batches 3 to 5 and 9')
    """
    runs: list[list[int]] = []
    for batch in batches:
        if runs and batch == runs[-1][-1] + 1:
            runs[-1][1:] = [batch]
        else:
            runs.append([batch])
    names = [" to ".join(map(str, run)) for run in runs]
    text = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{'batch' if len(batches) == 1 else 'batches'} {text}"
