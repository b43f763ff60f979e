"""Where an installation keeps what it makes for itself: beside its code, or in the user's cache."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def own_cache_dirs(code: Path) -> list[Path]:
    """Folders for what belongs to the code in a folder; temporary ones are cleaned while queries run."""
    return [code / "__pycache__", Path.home() / ".cache" / "d3gnn"]


def first_writable(places: Iterable[Path], *, runs: bool = False) -> Path | None:
    """The first of some folders that may be written to, made if need be; with `runs`, of those from which
    programs may be run. None if there is none.
    """
    for place in places:
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK) and not (runs and os.statvfs(place).f_flag & os.ST_NOEXEC):
            return place
    return None
