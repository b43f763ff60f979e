"""The contract of a GNN layer: message, aggregator, update."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from d3gnn.types import Floats

_KINDS: dict[str, type[Layer]] = {}

_ACTIVATIONS = {"relu": torch.relu_, "tanh": torch.tanh, "elu": nn.functional.elu, None: None}


class Affine(NamedTuple):
    """An update that is `aggregate @ left + root @ right + bias`, and 0 for what is below it if `relu`."""

    left: Floats
    right: Floats
    bias: Floats
    relu: bool


class Layer(nn.Module):
    r"""One layer of message passing (the paper's section 3.3).

    .. math:: x_v' = \psi(\text{root}(x_v), \rho_{u \in N_{in}(v)} \text{message}(x_u))

    `message` and `root` are computed once per vertex, where the vertex lives, and travel from there; so a
    layer should make each as narrow as its equation allows. `update` joins them. All three see a matrix with
    one row per vertex and must treat rows independently.
    """

    #: Name of the aggregator; see `d3gnn.kernel.aggregators`.
    aggregator: str
    in_width: int
    out_width: int
    message_width: int
    root_width: int
    #: Whether message and root are both the vertex's value itself: it then travels once.
    sends_value: bool = False
    #: What `update` computes, where that is so simple: for a few rows, a call of torch takes longer than the
    #: arithmetic. Known after `prepare`.
    affine: Affine | None = None
    kind: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.kind = cls.__name__
        _KINDS[cls.kind] = cls

    def message(self, x: Tensor) -> Tensor:
        """What a source sends along its out-edges: [n, in_width] -> [n, message_width]."""
        raise NotImplementedError

    def root(self, x: Tensor) -> Tensor:
        """What a vertex keeps of itself for its own update: [n, in_width] -> [n, root_width]."""
        raise NotImplementedError

    def update(self, root: Tensor, aggregate: Tensor) -> Tensor:
        """The new value: [n, root_width], [n, message_width] -> [n, out_width]."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Called once before the layer serves: lay out weights for speed. They stay fixed from then on."""

    def forward(self, root: Tensor, aggregate: Tensor) -> Tensor:
        return self.update(root, aggregate)

    def config(self) -> dict[str, Any]:
        """The arguments that make this layer again, as plain values."""
        raise NotImplementedError


def activate(name: str | None, x: Tensor) -> Tensor:
    """Apply an activation by name, in place where that is faster; None leaves x as it is."""
    function = _ACTIVATIONS[name]
    return x if function is None else function(x)


def check_activation(name: str | None) -> str | None:
    if name not in _ACTIVATIONS:
        known = ", ".join(str(a) for a in _ACTIVATIONS)
        raise ValueError(f"activation={name!r}: choose one of {known}")
    return name


def make_layer(config: dict[str, Any]) -> Layer:
    """A layer from `{"kind": ..., **config}`."""
    arguments = dict(config)
    kind = arguments.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"no layer of kind {kind!r} is known; known are {', '.join(sorted(_KINDS))}")
    return _KINDS[kind](**arguments)
