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
    for name, parameter in inspect.signature(type(made)).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue  # refused by the constructor
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


#: Arguments of layers and models that only PyG has.
_ONLY_PYG = ("dropout", "norm", "norm_kwargs", "act_first", "act_kwargs", "cached")


def without_training(made: str, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments without those that only PyG has, which must be off; an error for one that is on."""
    found = {name: given[name] for name in _ONLY_PYG if given.get(name)}
    if found:
        listed = ", ".join(f"{name}={value!r}" for name, value in found.items())
        raise TypeError(
            f"{made}() does not take {listed}: it computes with trained weights, and dropout is for "
            "training. Train such a model in PyG and convert it with d3gnn.nn.from_pyg(model), which omits "
            "dropout and keeps normalisations; or leave the argument out"
        )
    return {name: value for name, value in given.items() if name not in _ONLY_PYG}


def refuse(made: str, given: dict[str, Any]) -> None:
    """Raise TypeError for further arguments of a layer."""
    for name in without_training(made, given):
        raise TypeError(f"{made}() got an unexpected keyword argument {name!r}")


def from_arguments(config: dict[str, Any]) -> dict[str, Any]:
    """Undo `arguments_of`: modules are built again, with new weights."""
    return {
        name: build(value) if isinstance(value, dict) and "module" in value else value
        for name, value in config.items()
    }
