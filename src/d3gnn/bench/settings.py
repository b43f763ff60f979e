"""What settings of benchmarks have in common: checks that say what is wrong."""

from __future__ import annotations

from d3gnn.kernel.partitioners import partitioners


def at_least_one(settings: object, *names: str) -> None:
    """Refuse settings of these names that are below 1."""
    for name in names:
        if getattr(settings, name) < 1:
            raise ValueError(f"{name}={getattr(settings, name)}: at least 1, please")


def known_partitioner(name: str) -> None:
    """Refuse a partitioner that there is not."""
    known = [p.name for p in partitioners()]
    if name not in known:
        raise ValueError(f"partitioner={name!r}: choose one of {', '.join(known)}")
