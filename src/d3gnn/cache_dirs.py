"""Where an installation keeps what it makes for itself: beside its code, or in the user's cache."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from d3gnn.private import private_folder


def own_cache_dirs(code: Path) -> list[Path]:
    """Folders for what belongs to the code in a folder; temporary ones are cleaned while queries run."""
    return [code / "__pycache__", Path.home() / ".cache" / "d3gnn"]


def first_writable(places: Iterable[Path], *, runs: bool = False) -> Path | None:
    """The first of some folders that belongs to this user alone, made if need be; with `runs`, of those from
    which programs may be run. None if there is none.

    What is kept there is run: folders of other users, or that they may write to, are passed over.
    """
    for place in places:
        try:
            private_folder(place)
        except OSError:
            continue
        if os.access(place, os.W_OK) and not (runs and os.statvfs(place).f_flag & os.ST_NOEXEC):
            return place
    return None


def temporary_folder(root: str | Path | None = None) -> Path:
    """The folder of this user among the temporary files; raises `NotPrivate` if another user has taken it."""
    return private_folder(Path(root or tempfile.gettempdir()) / f"d3gnn-{os.getuid()}", tighten=True)
