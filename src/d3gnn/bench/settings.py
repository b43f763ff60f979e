"""Validation shared by the settings of all benchmarks."""

from __future__ import annotations

from d3gnn.kernel.partitioners import partitioners


def check_at_least_one(settings: object, *names: str) -> None:
    """Raise ValueError if one of these integer settings is below 1."""
    for name in names:
        if getattr(settings, name) < 1:
            raise ValueError(f"{name}={getattr(settings, name)}: must be at least 1")


def check_partitioner(name: str) -> None:
    """Raise ValueError if there is no partitioner of this name."""
    known = [p.name for p in partitioners()]
    if name not in known:
        raise ValueError(f"partitioner={name!r}: choose one of {', '.join(known)}")
