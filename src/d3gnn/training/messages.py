"""Differentiable sums, extremes and attention over the edges of a rank, in compiled loops."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from d3gnn.kernel.csr import Edges, over_rows
from d3gnn.kernel.csr.attention import (
    add_own,
    attend,
    attention_to_edges,
    attention_to_sources,
    logits_of_edges,
)
from d3gnn.kernel.csr.extremes import best_rows, count_ties, sum_ties, ties_to_values, ties_to_weights
from d3gnn.kernel.csr.sums import dot_edges, sum_rows
from d3gnn.nn.layer import AttentionSpec
from d3gnn.training.rank_graph import LayerEdges
from d3gnn.types import Floats, Ints32

_NONE = np.zeros(0, np.float32)


def _array(tensor: Tensor) -> Floats:
    array: Floats = tensor.detach().contiguous().numpy()
    return array


def _weights(weight: Tensor | None) -> Floats:
    return _NONE if weight is None else _array(weight).reshape(-1)


def sum_messages(values: Tensor, weight: Tensor | None, edges: Edges) -> Tensor:
    """The sum of the messages of each destination; `weight` [edges, 1] multiplies them."""
    return cast(Tensor, _Sum.apply(values, weight, edges))  # type: ignore[no-untyped-call]


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor | None, edges: Edges) -> Tensor:
        out = torch.empty((edges.into.rows, values.shape[1]))
        over_rows(sum_rows, edges.into, out.shape[1], _weights(weight), _array(values), out.numpy())
        ctx.edges = edges
        # Without weights to train, the gradient needs no values.
        ctx.save_for_backward(values if ctx.needs_input_grad[1] else None, weight)
        ctx.shape = values.shape
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        values, weight = ctx.saved_tensors
        grad, edges, by_value, by_weight = _array(grads[0]), ctx.edges, None, None
        if ctx.needs_input_grad[0]:
            by_value = torch.empty(ctx.shape)
            over_rows(sum_rows, edges.out, grad.shape[1], _weights(weight), grad, by_value.numpy())
        if ctx.needs_input_grad[1]:
            by_weight = torch.empty(weight.shape)
            out = by_weight.view(-1).numpy()
            over_rows(dot_edges, edges.into, grad.shape[1], _array(values), grad, out)
        return by_value, by_weight, None


def best_messages(sign: int, values: Tensor, weight: Tensor | None, on: LayerEdges, edges: Edges) -> Tensor:
    """The largest (sign 1) or smallest (-1) message of each master, 0 without messages; [masters, width].

    Ties share the gradient equally, over all parts.
    """
    width = values.shape[1]
    arrays = _weights(weight), _array(values), np.float32(sign)
    with torch.no_grad():
        best = torch.empty((edges.into.rows, width))
        over_rows(best_rows, edges.into, width, *arrays, best.numpy())
        best = on.destinations.to_replicas(on.destinations.best(best)).contiguous()
        ties = torch.empty_like(best)
        over_rows(count_ties, edges.into, width, *arrays, best.numpy(), ties.numpy())
        total = on.destinations.to_masters(ties).clamp(min=1.0)
        share = on.destinations.to_replicas(total.reciprocal()).contiguous()
    partial = _Ties.apply(values, weight, edges, np.float32(sign), best, share)  # type: ignore[no-untyped-call]
    return on.destinations.collect(cast(Tensor, partial))


class _Ties(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        weight: Tensor | None,
        edges: Edges,
        sign: np.float32,
        best: Tensor,
        share: Tensor,
    ) -> Tensor:
        out = torch.empty_like(best)
        over_rows(
            sum_ties, edges.into, best.shape[1],
            _weights(weight), _array(values), sign, best.numpy(), share.numpy(), out.numpy(),
        )  # fmt: skip
        ctx.save_for_backward(values, weight, best, share)
        ctx.edges, ctx.sign = edges, sign
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, weight, best, share = ctx.saved_tensors
        edges, width, by_value, by_weight = ctx.edges, best.shape[1], None, None
        arrays = _weights(weight), _array(values), ctx.sign, best.numpy(), _array(grads[0] * share)
        if ctx.needs_input_grad[0]:
            by_value = torch.empty(values.shape)
            over_rows(ties_to_values, edges.out, width, *arrays, by_value.numpy())
        if ctx.needs_input_grad[1]:
            by_weight = torch.empty(weight.shape)
            over_rows(ties_to_weights, edges.into, width, *arrays, by_weight.view(-1).numpy())
        return by_value, by_weight, None, None, None, None


def attention_messages(spec: AttentionSpec, values: Tensor, edge: Tensor | None, on: LayerEdges) -> Tensor:
    """What `update` of a layer with attention takes: [masters, heads * (2 + channels) + edge_width]."""
    heads, channels, slope, scores = spec
    into = on.edges.into
    edge_values = np.zeros((1, 0), np.float32) if edge is None else _array(edge)
    plain_scores = np.zeros((0, 0), np.float32) if scores is None else _array(scores)
    with torch.no_grad():
        logits = torch.empty((len(into.other), heads))
        largest = torch.empty((into.rows, heads))
        over_rows(
            logits_of_edges, into, values.shape[1], on.place, _array(values), edge_values, plain_scores,
            channels, float(slope), logits.numpy(), largest.numpy(),
        )  # fmt: skip
        # A constant in the sums and, below, in the rescaling: it cancels.
        at_masters = on.destinations.best(largest).clamp(min=-1e30)
        largest = on.destinations.to_replicas(at_masters).contiguous()
    partial = _Attend.apply(values, edge, scores, on.edges, on.place, channels, float(slope), logits, largest)  # type: ignore[no-untyped-call]
    total = on.destinations.collect(cast(Tensor, partial))
    split = heads * (1 + channels)
    mean = total[:, split:] * on.per_message
    return torch.cat([at_masters, total[:, :split], mean], 1)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, edge: Tensor | None, scores: Tensor | None, edges: Edges, place: Ints32,
        channels: int, slope: float, shares: Tensor, largest: Tensor,
    ) -> Tensor:  # fmt: skip
        heads = shares.shape[1]
        edge_values = np.zeros((1, 0), np.float32) if edge is None else _array(edge)
        out = torch.empty((edges.into.rows, heads * (1 + channels) + edge_values.shape[1]))
        over_rows(
            attend, edges.into, out.shape[1],
            _array(values), shares.numpy(), edge_values, channels, largest.numpy(), out.numpy(),
        )  # fmt: skip
        ctx.save_for_backward(values, edge, scores, shares)
        ctx.edges, ctx.place, ctx.channels, ctx.slope = edges, place, channels, slope
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, edge, scores, shares = ctx.saved_tensors
        edges, heads, channels = ctx.edges, shares.shape[1], ctx.channels
        size, grad = heads * channels, _array(grads[0])
        edge_values = np.zeros((1, 0), np.float32) if edge is None else _array(edge)
        plain_scores = np.zeros((0, 0), np.float32) if scores is None else _array(scores)
        common = (
            ctx.place, _array(values), shares.numpy(), edge_values, plain_scores, channels, ctx.slope, grad
        )  # fmt: skip
        terms = heads if scores is None else size
        by_logit = torch.empty_like(shares).numpy()
        own = np.empty((edges.into.rows, terms), np.float32)
        by_edge = np.empty(
            (len(edges.into.other), edge_values.shape[1] if ctx.needs_input_grad[1] else 0), np.float32
        )
        by_score = np.empty((edges.into.rows, size if ctx.needs_input_grad[2] else 0), np.float32)
        over_rows(attention_to_edges, edges.into, values.shape[1], *common, by_logit, own, by_edge, by_score)
        by_value = torch.empty(values.shape)
        over_rows(attention_to_sources, edges.out, values.shape[1], *common, by_logit, by_value.numpy())
        add_own(ctx.place, own, values.shape[1] - terms, by_value.numpy())
        return (
            by_value,
            torch.from_numpy(by_edge) if ctx.needs_input_grad[1] else None,
            torch.from_numpy(by_score).sum(0).view(heads, channels) if ctx.needs_input_grad[2] else None,
            None, None, None, None, None, None,
        )  # fmt: skip
