"""Names of the files in a store's folders; other files there are ignored, with a warning."""

from __future__ import annotations

import re
import warnings

from d3gnn.store.store import Store

LOG, SNAPSHOTS, DEAD_LETTERS, MODELS = "log", "snapshots", "dead_letters", "models"
#: By folder: what its files are called.
_NAMES = {
    **dict.fromkeys((LOG, SNAPSHOTS, DEAD_LETTERS), re.compile(r"(?P<number>[0-9]{12,})\.parquet")),
    MODELS: re.compile(
        r"(?P<number>[0-9]{6,})-(?P<digest>[0-9a-f]{16})-(?P<checksum>[0-9a-f]{16})\.safetensors"
    ),
}


class StrayFile(UserWarning):
    """A file in a folder of a store that no pipeline has written."""


def entry_path(batch: int) -> str:
    """The path of a log entry in its store."""
    return _path(LOG, batch)


def snapshot_path(batch: int) -> str:
    """The path of a snapshot in its store."""
    return _path(SNAPSHOTS, batch)


def dead_letters_path(batch: int) -> str:
    """The path of a batch's dead letters in the store."""
    return _path(DEAD_LETTERS, batch)


def batches_in(store: Store, folder: str) -> list[int]:
    """The batches that have a file in a folder, in order."""
    return [int(match["number"]) for match in files_in(store, folder)]


def files_in(store: Store, folder: str, strays: list[str] | None = None) -> list[re.Match[str]]:
    """The names of the files in a folder, in order.

    Warns of other files there, or adds their paths to `strays`.
    """
    found = []
    for name in store.list(folder):
        match = _NAMES[folder].fullmatch(name)
        if match is not None:
            found.append(match)
        elif strays is not None:
            strays.append(f"{folder}/{name}")
        else:
            warnings.warn(
                f"{folder}/{name} in the store {store.uri} is ignored: d3gnn did not write it", StrayFile, 3
            )
    return found


def _path(folder: str, batch: int) -> str:
    return f"{folder}/{batch:012d}.parquet"
