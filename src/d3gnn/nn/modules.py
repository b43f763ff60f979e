"""Modules of torch that work on each row alone, as plain values, so that models are saved without pickle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Jump(nn.Module):
    """Jumping knowledge at the end of a model (Xu et al., 2018).

    A row holds the last layer's output, followed by what was kept of earlier layers. `cat` moves the last
    output behind the earlier ones; `max` takes the larger of each number.

    >>> Jump("cat", 2)(torch.tensor([[5.0, 6.0, 1.0, 2.0, 3.0, 4.0]]))
    tensor([[1., 2., 3., 4., 5., 6.]])
    """

    def __init__(self, mode: str, width: int) -> None:
        super().__init__()
        self.mode, self.width = mode, width

    def forward(self, row: Tensor) -> Tensor:
        last, kept = row[:, : self.width], row[:, self.width :]
        return torch.cat([kept, last], 1) if self.mode == "cat" else torch.maximum(kept, last)


#: Modules that can be saved, with the attributes that their constructors take.
_SETTINGS: dict[type[nn.Module], tuple[str, ...]] = {
    nn.Identity: (),
    nn.ReLU: (),
    nn.Tanh: (),
    nn.Sigmoid: (),
    nn.SiLU: (),
    nn.Hardtanh: ("min_val", "max_val"),
    nn.ELU: ("alpha",),
    nn.CELU: ("alpha",),
    nn.SELU: (),
    nn.GELU: ("approximate",),
    nn.LeakyReLU: ("negative_slope",),
    nn.PReLU: ("num_parameters",),
    nn.Softplus: ("beta", "threshold"),
    nn.LogSoftmax: ("dim",),
    nn.Softmax: ("dim",),
    nn.Linear: ("in_features", "out_features"),
    nn.BatchNorm1d: ("num_features", "eps", "momentum", "affine", "track_running_stats"),
    nn.LayerNorm: ("normalized_shape", "eps", "elementwise_affine"),
    nn.Dropout: ("p",),
    nn.Sequential: (),
    Jump: ("mode", "width"),
}
_KNOWN = {kind.__name__: kind for kind in _SETTINGS}


def describe(module: nn.Module) -> dict[str, Any]:
    """The module as plain values, without its weights; `TypeError` names a module that is not supported.

    >>> describe(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    {'module': 'Sequential', 'of': [{'module': 'Linear', 'in_features': 2, ...
    """
    kind = type(module)
    if kind not in _SETTINGS:
        raise TypeError(f"{kind.__name__} is not supported; use {', '.join(sorted(_KNOWN))}")
    if isinstance(module, nn.Sequential):
        return {"module": "Sequential", "of": [describe(each) for each in module]}
    if isinstance(module, nn.BatchNorm1d) and not module.track_running_stats:
        raise TypeError(
            "BatchNorm1d without running statistics reads several rows at once: use track_running_stats=True"
        )
    settings = {name: getattr(module, name) for name in _SETTINGS[kind]}
    if isinstance(module, nn.LayerNorm):
        settings["normalized_shape"] = list(module.normalized_shape)
    if isinstance(module, nn.Linear | nn.LayerNorm):
        settings["bias"] = module.bias is not None
    return {"module": kind.__name__, **settings}


def build(described: dict[str, Any]) -> nn.Module:
    """The module that `describe` returned, with new weights."""
    settings = dict(described)
    name = settings.pop("module")
    if name == "Sequential":
        return nn.Sequential(*(build(each) for each in settings["of"]))
    if name not in _KNOWN:
        raise ValueError(f"unknown module {name!r}; known are {', '.join(sorted(_KNOWN))}")
    make: Callable[..., nn.Module] = _KNOWN[name]
    return make(**settings)


def in_features(module: nn.Module) -> int | None:
    """The width of the rows that a module takes; None if it takes any."""
    if isinstance(module, nn.Linear):
        return module.in_features
    if isinstance(module, nn.BatchNorm1d):
        return module.num_features
    if isinstance(module, nn.LayerNorm):
        return module.normalized_shape[-1]
    if isinstance(module, nn.Sequential):
        return next((width for each in module if (width := in_features(each)) is not None), None)
    return None


def out_features(module: nn.Module, width: int) -> int:
    """The width of the rows that a module returns for rows of this width."""
    if isinstance(module, nn.Linear):
        return module.out_features
    if isinstance(module, Jump) and module.mode == "max":
        return module.width
    if isinstance(module, nn.Sequential):
        for each in module:
            width = out_features(each, width)
    return width
