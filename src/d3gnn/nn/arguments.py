"""Constructor arguments of layers and heads as plain values, so that models are saved without pickle."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from d3gnn.nn.modules import build, describe


def arguments_of(made: nn.Module, **known: Any) -> dict[str, Any]:
    """The arguments that `made` was constructed with, read from attributes of the same names.

    `known` are values of arguments that are not kept so.
    """
    found: dict[str, Any] = {}
    for name in inspect.signature(type(made)).parameters:
        if name in known:
            found[name] = known[name]
            continue
        if not hasattr(made, name):
            raise NotImplementedError(
                f"{type(made).__name__} has no attribute {name!r} for its argument of that name: "
                "set one, or override config()"
            )
        value = getattr(made, name)
        found[name] = describe(value) if isinstance(value, nn.Module) else value
    return found


def from_arguments(config: dict[str, Any]) -> dict[str, Any]:
    """Undo `arguments_of`: modules are built again, with new weights."""
    return {
        name: build(value) if isinstance(value, dict) and "module" in value else value
        for name, value in config.items()
    }
