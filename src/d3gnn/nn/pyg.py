"""Models of torch_geometric, taken with their weights.

They are known by their names and attributes: torch_geometric itself is not needed to run what came of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from d3gnn.nn.gat import GAT, GATv2
from d3gnn.nn.gcn import GCN
from d3gnn.nn.gin import GIN
from d3gnn.nn.graph_conv import GraphConv
from d3gnn.nn.heads import Head, PairHead
from d3gnn.nn.layer import Layer
from d3gnn.nn.model import GNN
from d3gnn.nn.modules import Jump, describe
from d3gnn.nn.modules import out_width as width_behind
from d3gnn.nn.sage import SAGE
from d3gnn.nn.stage import Stage

_AGGREGATORS = {"add": "sum", "sum": "sum", "mean": "mean", "max": "max", "min": "min"}
#: What may stand beside x in the signature of a step of torch_geometric's Sequential.
_BESIDE = {"edge_index", "edge_weight", "edge_attr", "batch", "batch_size"}


class CannotTake(TypeError):
    """A part of a model that has no counterpart here."""


def from_pyg(module: nn.Module, *, weighted: bool = False, head: Head | PairHead | None = None) -> GNN:
    """A trained model of torch_geometric as one that is kept up to date, with its weights.

    It takes torch_geometric's GraphSAGE, GCN, GIN and GAT, its Sequential, and single layers: SAGEConv,
    GCNConv, GraphConv, GINConv, GATConv and GATv2Conv; with activations, normalisation of each row, dropout
    (which does nothing here) and jumping knowledge. `CannotTake` names what it cannot take.

    weighted:
        Whether edges have a weight, as their one feature: for GCNConv and GraphConv, which torch_geometric
        tells only when they are called.
    head:
        What is said of each vertex: `Classifier()` if the model's output is logits.

    >>> from torch_geometric.nn import GraphSAGE
    >>> from_pyg(GraphSAGE(8, 16, num_layers=2, out_channels=3))
    GNN(8 -> Stage(mean) 16 -> SAGE(mean) 3)
    """
    with torch.no_grad():
        if hasattr(module, "convs") and hasattr(module, "norms"):
            layers = _basic(module, weighted)
        elif type(module).__name__.startswith("Sequential") and hasattr(module, "_children"):
            layers = _sequential(module, weighted)
        else:
            layers = [_conv(module, type(module).__name__, weighted)]
    return GNN(layers, head).eval()


# ------------------------------------------------------------------ whole models


def _basic(model: Any, weighted: bool) -> list[Layer]:
    """One of torch_geometric's own models: layers, with the same things between them."""
    act = nn.Identity() if model.act is None else _rowwise(model.act, "act")
    mode = model.jk_mode
    if mode not in (None, "last", "cat", "max"):
        raise CannotTake(f"jumping knowledge by {mode!r} cannot be taken: cat, max or last")
    stages: list[Layer] = []
    carried = 0
    last = len(model.convs) - 1
    for i, (conv, norm) in enumerate(zip(model.convs, model.norms, strict=True)):
        layer = _conv(conv, f"convs.{i}", weighted)
        if i == last and mode is None:
            stages.append(layer)
            break
        between = [_rowwise(norm, f"norms.{i}")]
        between.insert(0 if model.act_first else 1, copy.deepcopy(act))
        keep = mode if i and mode in ("cat", "max") else None
        ends: list[nn.Module] = []
        if i == last:
            if mode in ("cat", "max") and i:
                ends.append(Jump(mode, layer.out_width))
            ends.append(_rowwise(model.lin, "lin"))
        stage = Stage(layer, _in_a_row(between), carried=carried, keep=keep, ends=_in_a_row(ends))
        carried = {"cat": carried + layer.in_width, "max": layer.in_width}[keep] if keep else carried
        stages.append(stage)
    return stages


def _sequential(model: Any, weighted: bool) -> list[Layer]:
    """Layers, each with the modules behind it that work on each row alone."""
    steps = []
    for child in model._children:
        module = getattr(model, child.name)
        x, *beside = child.param_names
        if x != "x" or child.return_names != ["x"] or not set(beside) <= _BESIDE:
            raise CannotTake(
                f"{child.name} ({type(module).__name__}): "
                f"{', '.join(child.param_names)} -> {', '.join(child.return_names)} is no chain of x -> x"
            )
        steps.append((child.name, module, "edge_index" in beside))
    layers: list[Layer] = []
    behind: list[list[nn.Module]] = []
    for name, module, passes_messages in steps:
        if passes_messages:
            layers.append(_conv(module, name, weighted))
            behind.append([])
        elif not layers:
            raise CannotTake(f"{name} ({type(module).__name__}) stands before the first layer")
        else:
            behind[-1].append(_rowwise(module, name))
    if not layers:
        raise CannotTake("there is no layer that passes messages")
    return [
        Stage(layer, _in_a_row(after)) if after else layer
        for layer, after in zip(layers, behind, strict=True)
    ]


def _in_a_row(modules: Sequence[nn.Module]) -> nn.Module:
    """Several modules as one, without those that do nothing."""
    doing = [module for module in modules if not isinstance(module, nn.Identity | nn.Dropout)]
    if not doing:
        return nn.Identity()
    return doing[0] if len(doing) == 1 else nn.Sequential(*doing)


# ------------------------------------------------------------------ layers


def _conv(conv: Any, name: str, weighted: bool) -> Layer:
    kind = type(conv).__name__
    take = _CONVS.get(kind)
    if take is None:
        raise CannotTake(f"{name}: {kind} cannot be taken; known are {', '.join(sorted(_CONVS))}")
    if getattr(conv, "flow", "source_to_target") != "source_to_target":
        raise CannotTake(f"{name}: {kind} sends messages against the edges (flow={conv.flow!r})")
    if not isinstance(getattr(conv, "in_channels", 0), int) or getattr(conv, "in_channels", 0) < 0:
        raise CannotTake(f"{name}: {kind} takes {conv.in_channels} channels; one width, please")
    return take(conv, name, weighted)


def _aggregator(conv: Any, name: str) -> str:
    given = conv.aggr if isinstance(conv.aggr, list) else [conv.aggr]
    for aggregator in given:
        if aggregator not in _AGGREGATORS:
            raise CannotTake(
                f"{name}: the aggregator {aggregator!r} cannot be taken; known are {', '.join(_AGGREGATORS)}"
            )
    if getattr(conv.aggr_module, "mode", "cat") != "cat":
        raise CannotTake(
            f"{name}: several aggregators are put side by side (cat), not {conv.aggr_module.mode}"
        )
    return ",".join(_AGGREGATORS[aggregator] for aggregator in given)


def _copy(layer: nn.Module, **weights: torch.Tensor | None) -> None:
    """Give a layer weights, by their names in it."""
    mine = layer.state_dict()
    for name, weight in weights.items():
        place = name.replace("__", ".")
        if weight is not None:
            mine[place].copy_(weight.detach().reshape(mine[place].shape))


def _sage(conv: Any, name: str, weighted: bool) -> Layer:
    layer = SAGE(
        conv.in_channels, conv.out_channels, _aggregator(conv, name), normalize=conv.normalize,
        root_weight=conv.root_weight, project=conv.project, bias=conv.lin_l.bias is not None,
    )  # fmt: skip
    _copy(layer, lin_l__weight=conv.lin_l.weight, lin_l__bias=conv.lin_l.bias)
    if conv.root_weight:
        _copy(layer, lin_r__weight=conv.lin_r.weight)
    if conv.project:
        _copy(layer, lin__weight=conv.lin.weight, lin__bias=conv.lin.bias)
    return layer


def _gcn(conv: Any, name: str, weighted: bool) -> Layer:
    if _aggregator(conv, name) != "sum":
        raise CannotTake(f"{name}: GCNConv with the aggregator {conv.aggr!r} cannot be taken; add, please")
    layer = GCN(
        conv.in_channels, conv.out_channels, weighted=weighted, normalize=conv.normalize,
        loops=conv.add_self_loops, improved=conv.improved, bias=conv.bias is not None,
    )  # fmt: skip
    _copy(layer, lin__weight=conv.lin.weight, bias=conv.bias)
    return layer


def _graph_conv(conv: Any, name: str, weighted: bool) -> Layer:
    layer = GraphConv(
        conv.in_channels, conv.out_channels, _aggregator(conv, name), weighted=weighted,
        bias=conv.lin_rel.bias is not None,
    )  # fmt: skip
    _copy(
        layer, lin_rel__weight=conv.lin_rel.weight, lin_rel__bias=conv.lin_rel.bias,
        lin_root__weight=conv.lin_root.weight,
    )  # fmt: skip
    return layer


def _gin(conv: Any, name: str, weighted: bool) -> Layer:
    net = _rowwise(conv.nn, f"{name}.nn")
    first = next((module for module in net.modules() if isinstance(module, nn.Linear)), None)
    if first is None:
        raise CannotTake(f"{name}: the network of a GINConv without a linear layer has no width")
    width = first.in_features
    layer = GIN(width, width_behind(net, width), _aggregator(conv, name), net=net)
    _copy(layer, eps=conv.eps)
    return layer


def _gat(conv: Any, name: str, weighted: bool) -> Layer:
    layer = GAT(conv.in_channels, conv.out_channels, conv.heads, **_attention(conv, name))
    _copy(
        layer, lin__weight=conv.lin.weight, att_src=conv.att_src, att_dst=conv.att_dst,
        att_edge=conv.att_edge, lin_edge__weight=None if conv.lin_edge is None else conv.lin_edge.weight,
        res__weight=None if conv.res is None else conv.res.weight, bias=conv.bias,
    )  # fmt: skip
    return layer


def _gatv2(conv: Any, name: str, weighted: bool) -> Layer:
    layer = GATv2(
        conv.in_channels, conv.out_channels, conv.heads, share=conv.share_weights, **_attention(conv, name)
    )
    _copy(
        layer, lin_l__weight=conv.lin_l.weight, lin_l__bias=conv.lin_l.bias, lin_r__weight=conv.lin_r.weight,
        lin_r__bias=conv.lin_r.bias, att=conv.att,
        lin_edge__weight=None if conv.lin_edge is None else conv.lin_edge.weight,
        res__weight=None if conv.res is None else conv.res.weight, bias=conv.bias,
    )  # fmt: skip
    return layer


def _attention(conv: Any, name: str) -> dict[str, Any]:
    fill = conv.fill_value
    if not (fill == "mean" or isinstance(fill, int | float)):
        raise CannotTake(f"{name}: fill_value={fill!r} cannot be taken; 'mean' or a number, please")
    return {
        "concat": conv.concat,
        "slope": conv.negative_slope,
        "loops": conv.add_self_loops,
        "edge_in": conv.edge_dim or 0,
        "fill": fill if fill == "mean" else float(fill),
        "residual": conv.residual,
        "bias": conv.bias is not None,
    }


_CONVS: dict[str, Callable[[Any, str, bool], Layer]] = {
    "SAGEConv": _sage,
    "GCNConv": _gcn,
    "GraphConv": _graph_conv,
    "GINConv": _gin,
    "GATConv": _gat,
    "GATv2Conv": _gatv2,
}


# ------------------------------------------------------------------ what works on each row alone


def _rowwise(module: Any, name: str) -> nn.Module:
    """A module that works on each row alone, as torch has it."""
    kind, home = type(module).__name__, type(module).__module__
    if home.startswith("torch_geometric."):
        if kind == "Linear":
            made = nn.Linear(module.in_channels, module.out_channels, bias=module.bias is not None)
            _copy(made, weight=module.weight, bias=module.bias)
            return made
        if kind == "BatchNorm":
            return _rowwise(module.module, f"{name}.module")
        if kind == "LayerNorm" and module.mode == "node":
            made_norm = nn.LayerNorm(module.in_channels, module.eps, module.weight is not None)
            _copy(
                made_norm, **({} if module.weight is None else {"weight": module.weight, "bias": module.bias})
            )
            return made_norm
        if kind == "MLP":
            return _mlp(module, name)
        raise CannotTake(f"{name}: {kind} looks at more than one row, or is not known here")
    if isinstance(module, nn.Sequential):
        return nn.Sequential(*(_rowwise(each, f"{name}.{i}") for i, each in enumerate(module)))
    try:
        describe(module)
    except TypeError as error:
        raise CannotTake(f"{name}: {error}") from None
    copied: nn.Module = copy.deepcopy(module)
    return copied


def _mlp(mlp: Any, name: str) -> nn.Module:
    act = nn.Identity() if mlp.act is None else _rowwise(mlp.act, f"{name}.act")
    modules: list[nn.Module] = []
    for i, lin in enumerate(mlp.lins):
        modules.append(_rowwise(lin, f"{name}.lins.{i}"))
        if i < len(mlp.norms):
            between = [_rowwise(mlp.norms[i], f"{name}.norms.{i}")]
            between.insert(0 if mlp.act_first else 1, copy.deepcopy(act))
            modules += [module for module in between if not isinstance(module, nn.Identity)]
    return nn.Sequential(*modules)
