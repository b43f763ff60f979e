"""Models of one kind of layer, with the arguments and widths of PyG's models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from d3gnn.nn.activation import activation_module, check_act
from d3gnn.nn.arguments import without_training
from d3gnn.nn.gat import GATConv, GATv2Conv
from d3gnn.nn.gcn import GCNConv
from d3gnn.nn.gin import GINConv
from d3gnn.nn.heads import Head, PairHead
from d3gnn.nn.layer import Layer
from d3gnn.nn.model import GNN
from d3gnn.nn.sage import SAGEConv
from d3gnn.nn.stage import stages_of
from d3gnn.whole_numbers import check_whole

#: Jumping knowledge: none, or how the outputs of all layers are combined.
JK = (None, "last", "cat", "max")
#: From two widths and an activation to a layer.
MakeLayer = Callable[[int, int, str | None], Layer]


def GraphSAGE(  # noqa: N802  # named as in PyG
    in_channels: int,
    hidden_channels: int,
    num_layers: int,
    out_channels: int | None = None,
    *,
    aggr: str | Sequence[str] = "mean",
    act: str | None = "relu",
    jk: str | None = None,
    seed: int | None = None,
    head: Head | PairHead | None = None,
    **conv: Any,
) -> GNN:
    """A GraphSAGE model, as PyG's `GraphSAGE`.

    in_channels, hidden_channels, num_layers, out_channels:
        Numbers per vertex in the input, behind every layer but the last, the number of layers, and numbers in
        an embedding (`hidden_channels` unless given).
    act:
        The activation between layers.
    jk:
        Jumping knowledge: `last`, `cat` or `max`. The outputs of all layers are combined, and a linear layer
        makes the embedding.
    seed:
        Makes the initial weights reproducible.
    head:
        What is predicted from embeddings.
    conv:
        Further arguments of each `SAGEConv`.

    >>> GraphSAGE(8, 64, num_layers=2, out_channels=16, seed=1)
    GNN(8 -> SAGEConv(mean) 64 -> SAGEConv(mean) 16)
    """

    def make(i: int, o: int, act: str | None) -> Layer:
        return SAGEConv(i, o, aggr, act=act, **conv)

    conv = without_training("GraphSAGE", conv)
    return _model(make, in_channels, hidden_channels, num_layers, out_channels, act, jk, seed, head)


def GCN(  # noqa: N802
    in_channels: int,
    hidden_channels: int,
    num_layers: int,
    out_channels: int | None = None,
    *,
    edge_weight: bool = False,
    act: str | None = "relu",
    jk: str | None = None,
    seed: int | None = None,
    head: Head | PairHead | None = None,
    **conv: Any,
) -> GNN:
    """A graph convolutional network, as PyG's `GCN`. See `GraphSAGE` for the arguments.

    edge_weight:
        Whether edges have a weight, as their one feature.
    conv:
        Further arguments of each `GCNConv`.

    >>> GCN(8, 64, num_layers=2)
    GNN(8 -> GCNConv(sum) 64 -> GCNConv(sum) 64)
    """

    def make(i: int, o: int, act: str | None) -> Layer:
        return GCNConv(i, o, edge_weight=edge_weight, act=act, **conv)

    conv = without_training("GCN", conv)
    return _model(make, in_channels, hidden_channels, num_layers, out_channels, act, jk, seed, head)


def GIN(  # noqa: N802
    in_channels: int,
    hidden_channels: int,
    num_layers: int,
    out_channels: int | None = None,
    *,
    aggr: str = "add",
    act: str | None = "relu",
    jk: str | None = None,
    seed: int | None = None,
    head: Head | PairHead | None = None,
    **conv: Any,
) -> GNN:
    """A graph isomorphism network, as PyG's `GIN`. See `GraphSAGE` for the arguments.

    Each layer has a network of two linear layers, with `act` between them.

    conv:
        Further arguments of each `GINConv`.

    >>> GIN(8, 64, num_layers=2, out_channels=16)
    GNN(8 -> GINConv(sum) 64 -> GINConv(sum) 16)
    """
    between = check_act(act)

    def make(i: int, o: int, act: str | None) -> Layer:
        return GINConv(two_linear(i, o, between), aggr=aggr, act=act, **conv)

    conv = without_training("GIN", conv)
    return _model(make, in_channels, hidden_channels, num_layers, out_channels, act, jk, seed, head)


def GAT(  # noqa: N802
    in_channels: int,
    hidden_channels: int,
    num_layers: int,
    out_channels: int | None = None,
    *,
    heads: int = 1,
    concat: bool = True,
    v2: bool = False,
    edge_dim: int | None = None,
    act: str | None = "relu",
    jk: str | None = None,
    seed: int | None = None,
    head: Head | PairHead | None = None,
    **conv: Any,
) -> GNN:
    """A graph attention network, as PyG's `GAT`. See `GraphSAGE` for the arguments.

    heads, concat:
        Heads of each layer, which share `hidden_channels` if they are concatenated. Those of a last layer
        with `out_channels` are averaged.
    v2:
        Use `GATv2Conv` instead of `GATConv`.
    edge_dim:
        Numbers that each edge has as features.
    conv:
        Further arguments of each layer.

    >>> GAT(8, 64, num_layers=2, out_channels=16, heads=4)
    GNN(8 -> GATConv(attention) 64 -> GATConv(attention) 16)
    """
    if concat and hidden_channels % heads:
        raise ValueError(f"hidden_channels={hidden_channels} cannot be divided among heads={heads}")
    conv = without_training("GAT", conv)
    kind = GATv2Conv if v2 else GATConv

    def make(i: int, o: int, act: str | None) -> Layer:
        width = o // heads if concat else o
        return kind(i, width, heads, concat, edge_dim=edge_dim, act=act, **conv)

    def make_last(i: int, o: int, act: str | None) -> Layer:
        return kind(i, o, heads, False, edge_dim=edge_dim, act=act, **conv)

    return _model(
        make, in_channels, hidden_channels, num_layers, out_channels, act, jk, seed, head, make_last
    )


def _model(
    make: MakeLayer, in_channels: int, hidden_channels: int, num_layers: int,
    out_channels: int | None, act: str | None, jk: str | None, seed: int | None,
    head: Head | PairHead | None, make_last: MakeLayer | None = None,
) -> GNN:  # fmt: skip
    """As PyG's `BasicGNN`; `make_last` makes a last layer of `out_channels`."""
    check_act(act)
    check_whole("num_layers", num_layers)
    if jk not in JK:
        raise ValueError(f"jk={jk!r}: choose one of {', '.join(map(str, JK))}")
    with seeded(seed):
        inputs = [in_channels] + [hidden_channels] * (num_layers - 1)
        layers = [make(i, hidden_channels, act) for i in inputs[:-1]]
        if out_channels is not None and jk is None:
            layers.append((make_last or make)(inputs[-1], out_channels, None))
        else:
            layers.append(make(inputs[-1], hidden_channels, None if jk is None else act))
        lin = None
        if jk is not None:
            width = hidden_channels * (num_layers if jk == "cat" else 1)
            lin = nn.Linear(width, hidden_channels if out_channels is None else out_channels)
        return GNN(stages_of(layers, [nn.Identity()] * num_layers, jk, lin), head)


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Make random weights reproducible without changing torch's global generator."""
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        yield


def two_linear(in_channels: int, out_channels: int, act: str | None = "relu") -> nn.Sequential:
    """The network of a GIN layer: two linear layers with an activation between them."""
    between = [] if act is None else [activation_module(act)]
    return nn.Sequential(
        nn.Linear(in_channels, out_channels), *between, nn.Linear(out_channels, out_channels)
    )


def from_widths(
    make: MakeLayer, widths: Sequence[int], act: str | None = "relu", seed: int | None = None
) -> GNN:
    """A model with any widths: of the input, and of the output of each layer."""
    if len(widths) < 2:
        raise ValueError(f"widths={list(widths)}: the width of the input and of at least one layer is needed")
    with seeded(seed):
        pairs = list(pairwise(widths))
        return GNN(make(i, o, None if n == len(pairs) else act) for n, (i, o) in enumerate(pairs, start=1))


def sage_from_widths(
    widths: Sequence[int],
    aggr: str | Sequence[str] = "mean",
    act: str | None = "relu",
    *,
    seed: int | None = None,
) -> GNN:
    """A GraphSAGE with any widths."""
    return from_widths(lambda i, o, act: SAGEConv(i, o, aggr, act=act), widths, act, seed)
