"""Models of PyG (torch_geometric), converted with their weights.

They are recognised by class names and attributes, so PyG is needed only where the model is made, not where
the converted model runs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from d3gnn.nn.gat import GATConv, GATv2Conv
from d3gnn.nn.gcn import GCNConv
from d3gnn.nn.gin import GINConv
from d3gnn.nn.graph_conv import GraphConv
from d3gnn.nn.heads import Head, PairHead
from d3gnn.nn.layer import Layer
from d3gnn.nn.model import GNN
from d3gnn.nn.modules import describe, in_features
from d3gnn.nn.sage import SAGEConv
from d3gnn.nn.stage import Stage, in_sequence, stages_of
from d3gnn.nn.traced import Step, UnsupportedModelError, traced_steps

#: PyG's names of aggregations that are supported, with ours.
_AGGREGATIONS = {"add": "sum", "sum": "sum", "mean": "mean", "max": "max", "min": "min"}
#: Their modules are taken as they are; others are traced.
_LIBRARIES = ("torch_geometric.", "torch.nn.")
#: Arguments that may stand beside x in the signature of a step of PyG's Sequential.
_BESIDE_X = {"edge_index", "edge_weight", "edge_attr", "batch", "batch_size"}


def from_pyg(module: nn.Module, *, edge_weight: bool = False, head: Head | PairHead | None = None) -> GNN:
    """Convert a trained model of PyG, with its weights.

    Supported are PyG's GraphSAGE, GCN, GIN and GAT, its Sequential, and single layers: SAGEConv, GCNConv,
    GraphConv, GINConv, GATConv and GATv2Conv; with activations, normalisations of single rows, dropout (which
    is left out) and jumping knowledge; and modules of your own whose `forward` applies these one after the
    other. `UnsupportedModelError` names a part that is not supported.

    edge_weight:
        Whether GCNConv and GraphConv multiply messages by a weight, the one feature of each edge. In PyG this
        is decided by each call.
    head:
        What is predicted from embeddings: `Classifier()` if the model's output is logits.

    >>> from torch_geometric.nn import GraphSAGE
    >>> from_pyg(GraphSAGE(8, 16, num_layers=2, out_channels=3))
    GNN(8 -> Stage(mean) 16 -> SAGEConv(mean) 3)
    """
    with torch.no_grad():
        if _is_basic(module):
            layers = _basic(module, edge_weight)
        elif type(module).__name__.startswith("Sequential") and hasattr(module, "_children"):
            layers = _sequential(module, edge_weight)
        elif type(module).__name__ in _CONVS or type(module).__module__.startswith(_LIBRARIES):
            layers = [_conv(module, "model", edge_weight)]
        else:
            layers = _layers_of(traced_steps(module, edge_weight, _WEIGHTED), edge_weight)
    return GNN(layers, head).eval()


# ------------------------------------------------------------------ whole models


def _is_basic(module: Any) -> bool:
    return any(kind.__name__ == "BasicGNN" for kind in type(module).__mro__)


def _basic(model: Any, edge_weight: bool) -> list[Layer]:
    """One of PyG's own models (BasicGNN)."""
    act = nn.Identity() if model.act is None else _rowwise(model.act, "act")
    jk = model.jk_mode
    if jk not in (None, "last", "cat", "max"):
        raise UnsupportedModelError(f"jk: {jk!r} is not supported; use last, cat, max or none")
    layers, after = [], []
    for i, (conv, norm) in enumerate(zip(model.convs, model.norms, strict=True)):
        layers.append(_conv(conv, f"convs.{i}", edge_weight))
        between = [_rowwise(norm, f"norms.{i}")]
        between.insert(0 if model.act_first else 1, copy.deepcopy(act))
        after.append(in_sequence(between))
    return stages_of(layers, after, jk, None if jk is None else _rowwise(model.lin, "lin"))


def _sequential(model: Any, edge_weight: bool) -> list[Layer]:
    """The layers of PyG's Sequential."""
    steps = []
    for child in model._children:
        module = getattr(model, child.name)
        x, *beside = child.param_names
        if x != "x" or child.return_names != ["x"] or not set(beside) <= _BESIDE_X:
            signature = f"{', '.join(child.param_names)} -> {', '.join(child.return_names)}"
            raise UnsupportedModelError(
                f"{child.name}: {type(module).__name__} has the signature '{signature}'; supported are "
                "'x -> x' and 'x, edge_index -> x'"
            )
        steps.append(Step(child.name, module, "edge_index" in beside, edge_weight))
    return _layers_of(steps, edge_weight)


def _layers_of(steps: Sequence[Step], edge_weight: bool) -> list[Layer]:
    """Layers, each with the steps behind it that work on each row alone."""
    layers: list[Layer] = []
    behind: list[list[nn.Module]] = []
    for name, module, reads_edges, reads_weights in steps:
        if reads_edges:
            weighted = edge_weight and reads_weights
            layers += _basic(module, weighted) if _is_basic(module) else [_conv(module, name, weighted)]
            behind += [[] for _ in range(len(layers) - len(behind))]
        elif not layers:
            raise UnsupportedModelError(
                f"{name}: {type(module).__name__} comes before the first convolution, which is not supported"
            )
        else:
            behind[-1].append(_rowwise(module, name))
    if not layers:
        raise UnsupportedModelError(f"model: no convolution found; supported are {_SUPPORTED}")
    return [
        Stage(layer, in_sequence(after)) if after else layer
        for layer, after in zip(layers, behind, strict=True)
    ]


# ------------------------------------------------------------------ layers


def _conv(conv: Any, name: str, edge_weight: bool) -> Layer:
    kind = type(conv).__name__
    convert = _CONVS.get(kind)
    if convert is None:
        whole = (
            ", and PyG's models GraphSAGE, GCN, GIN and GAT; write another model as its Sequential"
            if name == "model"
            else ""
        )
        raise UnsupportedModelError(f"{name}: {kind} is not supported; supported are {_SUPPORTED}{whole}")
    if getattr(conv, "flow", "source_to_target") != "source_to_target":
        raise UnsupportedModelError(
            f"{name}: {kind} has flow={conv.flow!r}; only 'source_to_target' is supported"
        )
    in_channels = getattr(conv, "in_channels", 0)
    if not isinstance(in_channels, int) or in_channels < 0:
        raise UnsupportedModelError(
            f"{name}: {kind} has in_channels={in_channels}; only a single known width is supported"
        )
    return convert(conv, name, edge_weight)


def _aggr(conv: Any, name: str) -> str:
    given = conv.aggr if isinstance(conv.aggr, list) else [conv.aggr]
    for aggr in given:
        if aggr not in _AGGREGATIONS:
            raise UnsupportedModelError(
                f"{name}: aggr={aggr!r} is not supported; supported are {', '.join(_AGGREGATIONS)}"
            )
    if getattr(conv.aggr_module, "mode", "cat") != "cat":
        raise UnsupportedModelError(
            f"{name}: several aggregations are combined by mode={conv.aggr_module.mode!r}; "
            "only 'cat' is supported"
        )
    return ",".join(_AGGREGATIONS[aggr] for aggr in given)


def _copy(layer: nn.Module, **weights: torch.Tensor | None) -> None:
    """Set weights of a layer, by name, with `__` for a dot."""
    state = layer.state_dict()
    for name, weight in weights.items():
        key = name.replace("__", ".")
        if weight is not None:
            state[key].copy_(weight.detach().reshape(state[key].shape))


def _sage(conv: Any, name: str, edge_weight: bool) -> Layer:
    layer = SAGEConv(
        conv.in_channels, conv.out_channels, _aggr(conv, name), normalize=conv.normalize,
        root_weight=conv.root_weight, project=conv.project, bias=conv.lin_l.bias is not None,
    )  # fmt: skip
    _copy(layer, lin_l__weight=conv.lin_l.weight, lin_l__bias=conv.lin_l.bias)
    if conv.root_weight:
        _copy(layer, lin_r__weight=conv.lin_r.weight)
    if conv.project:
        _copy(layer, lin__weight=conv.lin.weight, lin__bias=conv.lin.bias)
    return layer


def _gcn(conv: Any, name: str, edge_weight: bool) -> Layer:
    if _aggr(conv, name) != "sum":
        raise UnsupportedModelError(f"{name}: GCNConv has aggr={conv.aggr!r}; only 'add' is supported")
    layer = GCNConv(
        conv.in_channels, conv.out_channels, edge_weight=edge_weight, normalize=conv.normalize,
        add_self_loops=conv.add_self_loops, improved=conv.improved, bias=conv.bias is not None,
    )  # fmt: skip
    _copy(layer, lin__weight=conv.lin.weight, bias=conv.bias)
    return layer


def _graph_conv(conv: Any, name: str, edge_weight: bool) -> Layer:
    layer = GraphConv(
        conv.in_channels, conv.out_channels, _aggr(conv, name), edge_weight=edge_weight,
        bias=conv.lin_rel.bias is not None,
    )  # fmt: skip
    _copy(
        layer, lin_rel__weight=conv.lin_rel.weight, lin_rel__bias=conv.lin_rel.bias,
        lin_root__weight=conv.lin_root.weight,
    )  # fmt: skip
    return layer


def _gin(conv: Any, name: str, edge_weight: bool) -> Layer:
    net = _rowwise(conv.nn, f"{name}.nn")
    if in_features(net) is None:
        raise UnsupportedModelError(
            f"{name}.nn: the network has no Linear layer; one is needed, which determines its width"
        )
    train_eps = isinstance(conv.eps, nn.Parameter)
    layer = GINConv(net, train_eps=train_eps, aggr=_aggr(conv, name))
    _copy(layer, eps=conv.eps)
    return layer


def _gat(conv: Any, name: str, edge_weight: bool) -> Layer:
    layer = GATConv(conv.in_channels, conv.out_channels, conv.heads, **_attention(conv, name))
    _copy(
        layer, lin__weight=conv.lin.weight, att_src=conv.att_src, att_dst=conv.att_dst,
        att_edge=conv.att_edge, lin_edge__weight=None if conv.lin_edge is None else conv.lin_edge.weight,
        res__weight=None if conv.res is None else conv.res.weight, bias=conv.bias,
    )  # fmt: skip
    return layer


def _gatv2(conv: Any, name: str, edge_weight: bool) -> Layer:
    layer = GATv2Conv(
        conv.in_channels,
        conv.out_channels,
        conv.heads,
        share_weights=conv.share_weights,
        **_attention(conv, name),
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
        raise UnsupportedModelError(f"{name}: fill_value={fill!r} is not supported; use 'mean' or a number")
    return {
        "concat": conv.concat,
        "negative_slope": conv.negative_slope,
        "add_self_loops": conv.add_self_loops,
        "edge_dim": conv.edge_dim,
        "fill_value": fill if fill == "mean" else float(fill),
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
_SUPPORTED = ", ".join(sorted(_CONVS))
#: Layers whose calls decide whether edges have weights.
_WEIGHTED = ("GCNConv", "GraphConv")


# ------------------------------------------------------------------ modules that work on each row alone


def _rowwise(module: Any, name: str) -> nn.Module:
    """A module that works on each row alone, as a module of torch."""
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
        raise UnsupportedModelError(
            f"{name}: {kind} is not supported: it reads several vertices at once, or is unknown; use Linear, "
            "BatchNorm, LayerNorm with mode='node', MLP, or modules of torch"
        )
    if isinstance(module, nn.Sequential):
        return nn.Sequential(*(_rowwise(each, f"{name}.{i}") for i, each in enumerate(module)))
    try:
        describe(module)
    except TypeError as error:
        raise UnsupportedModelError(f"{name}: {error}") from None
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
