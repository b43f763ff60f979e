"""Registries of classes by name: what a saved model or a setting names is found in them."""

from __future__ import annotations

from typing import TypeVar

C = TypeVar("C", bound=type)


def register(registry: dict[str, C], name: str, cls: C, kind: str) -> None:
    """Register a class under a name; raises TypeError if another class has it.

    The same class may be defined again, as in a notebook: the newest definition counts.
    """
    known = registry.setdefault(name, cls)
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise TypeError(
            f"{kind} {cls.__name__}: the name {name!r} is taken by {known.__module__}.{known.__qualname__}"
        )
    registry[name] = cls


def is_skeleton(cls: type) -> bool:
    """Whether a class has no attributes yet: Spark's pickler makes it first, and sets them afterwards."""
    return all(name.startswith("_") for name in vars(cls))
