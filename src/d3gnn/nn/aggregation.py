"""Aggregations by name: how the messages that arrive at a vertex become one row, in plain torch.

`GNN.forward` and the oracle use these functions. Their incremental counterparts are in
`d3gnn.kernel.aggregators`; both must agree on every graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

#: From messages [m, width], their destinations [m] and the number of vertices n to a tensor [n, width].
#: Rows of vertices without messages must be 0.
Aggregation: TypeAlias = Callable[[Tensor, Tensor, int], Tensor]


class _Registered(NamedTuple):
    function: Aggregation
    linear: bool


_REGISTERED: dict[str, _Registered] = {}
#: Names that PyG has as well.
_SYNONYMS = {"add": "sum"}


def register_aggregation(name: str, function: Aggregation, *, linear: bool = False) -> None:
    """Make an aggregation available to layers as `aggr=name`; a name that exists is replaced.

    Set `linear` if weights can be applied before the aggregation as well as after it, as with a sum. Layers
    then send the narrower of input and output.

    >>> def product(messages: Tensor, index: Tensor, size: int) -> Tensor:
    ...     out = messages.new_zeros((size, messages.shape[1]))
    ...     index = index.unsqueeze(1).expand_as(messages)
    ...     return out.scatter_reduce(0, index, messages, "prod", include_self=False)
    >>> register_aggregation("product", product)
    >>> check_aggr(["mean", "product"])
    'mean,product'
    >>> unregister_aggregation("product")
    """
    if not name.isidentifier():
        raise ValueError(f"aggregation name {name!r}: use letters, digits and underscores")
    _REGISTERED[name] = _Registered(function, linear)


def unregister_aggregation(name: str) -> None:
    """Remove an aggregation, for tests that register one."""
    del _REGISTERED[name]


def aggregation(name: str) -> Aggregation:
    """The function that is registered under this name."""
    if name not in _REGISTERED:
        raise ValueError(f"unknown aggregation {name!r}; known are {', '.join(_REGISTERED)}")
    return _REGISTERED[name].function


def check_aggr(aggr: str | Sequence[str]) -> str:
    """Names of aggregations, from one name, a list, or names joined by commas.

    >>> check_aggr("add"), check_aggr(["mean", "max"])
    ('sum', 'mean,max')
    """
    given = aggr.split(",") if isinstance(aggr, str) else list(aggr)
    names = [_SYNONYMS.get(name, name) for name in given]
    if not names or len(set(names)) < len(names) or not set(names) <= set(_REGISTERED):
        raise ValueError(
            f"aggr={aggr!r}: use one of {', '.join(_REGISTERED)}, or several different ones, as a list or "
            "joined by commas; import the module of a custom aggregator first (see docs/plugins.md)"
        )
    return ",".join(names)


def is_linear(aggr: str) -> bool:
    """Whether weights may be applied before messages are aggregated instead of after."""
    return aggr in _REGISTERED and _REGISTERED[aggr].linear


def _sum(messages: Tensor, index: Tensor, size: int) -> Tensor:
    return messages.new_zeros((size, messages.shape[1])).index_add(0, index, messages)


def _mean(messages: Tensor, index: Tensor, size: int) -> Tensor:
    count = torch.bincount(index, minlength=size).clamp(min=1)
    return _sum(messages, index, size) / count.unsqueeze(1)


def _extreme(reduce: str) -> Aggregation:
    def function(messages: Tensor, index: Tensor, size: int) -> Tensor:
        out = messages.new_zeros((size, messages.shape[1]))
        return out.scatter_reduce(
            0, index.unsqueeze(1).expand_as(messages), messages, reduce, include_self=False
        )

    return function


register_aggregation("sum", _sum, linear=True)
register_aggregation("mean", _mean, linear=True)
register_aggregation("max", _extreme("amax"))
register_aggregation("min", _extreme("amin"))
