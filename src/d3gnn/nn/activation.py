"""Activations by name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "tanh": torch.tanh,
    "elu": nn.functional.elu,
}
_MODULES: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "elu": nn.ELU}


def activate(act: str | None, x: Tensor) -> Tensor:
    """Apply an activation, in place where that is faster; None returns x unchanged."""
    return x if act is None else _FUNCTIONS[act](x)


def activation_module(act: str | None) -> nn.Module:
    """The activation as a module."""
    return nn.Identity() if act is None else _MODULES[act]()


def check_act(act: str | None) -> str | None:
    """The name of an activation, or None for none."""
    if act is not None and act not in _FUNCTIONS:
        raise ValueError(f"act={act!r}: choose one of {', '.join(_FUNCTIONS)}, None")
    return act
