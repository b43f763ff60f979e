"""Aggregations are named, checked, and registered."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.nn import SAGEConv as PyGSAGEConv

from d3gnn.nn import GNN, SAGEConv
from d3gnn.nn.aggregation import aggregation, check_aggr, is_linear, register_aggregation
from d3gnn.nn.aggregation import unregister_aggregation as unregister
from d3gnn.oracle import forward


def median(messages: Tensor, index: Tensor, size: int) -> Tensor:
    rows = [messages[index == v] for v in range(size)]
    width = messages.shape[1]
    found = [row.median(0).values if len(row) else messages.new_zeros(width) for row in rows]
    return torch.stack(found) if found else messages.new_zeros((0, width))


@pytest.fixture
def with_median() -> Iterator[None]:
    register_aggregation("median", median)
    yield
    unregister("median")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("mean", "mean"),
        ("add", "sum"),
        (["add"], "sum"),
        ("mean,max", "mean,max"),
        (["min", "add"], "min,sum"),
    ],
)
def test_names_are_one_several_or_a_list(given: str | list[str], expected: str) -> None:
    assert check_aggr(given) == SAGEConv(2, 2, given).aggr == expected


@pytest.mark.parametrize("given", ["median", "", "mean,", "mean,mean", "sum,add", [], ["max", "Max"]])
def test_other_names_are_refused(given: str | list[str]) -> None:
    with pytest.raises(ValueError, match=r"use one of sum, mean, max, min, or several different ones"):
        check_aggr(given)


def test_linear_ones_are_known() -> None:
    assert [is_linear(name) for name in ("sum", "mean", "max", "sum,mean", "attention")] == [
        True, True, False, False, False,
    ]  # fmt: skip


@pytest.mark.usefixtures("with_median")
def test_a_layer_can_name_one_that_was_registered() -> None:
    torch.manual_seed(1)
    layer = SAGEConv(3, 2, ["median", "mean"])
    conv = PyGSAGEConv(3, 2, aggr=["median", "mean"])
    conv.load_state_dict(layer.state_dict(), strict=False)  # its median has a buffer
    rng = np.random.default_rng(1)
    x = rng.standard_normal((9, 3), np.float32)
    src, dst = rng.integers(0, 9, 30), np.sort(rng.integers(0, 6, 30))
    with torch.no_grad():
        expected = conv(torch.from_numpy(x), torch.from_numpy(np.stack([src, dst]))).numpy()
    np.testing.assert_allclose(forward(GNN([layer]), x, src, dst), expected, rtol=1e-5, atol=1e-6)
    assert layer.message_width == 3, "it is not linear"


def test_names_are_checked() -> None:
    with pytest.raises(ValueError, match="use letters, digits and underscores"):
        register_aggregation("a,b", median)
    with pytest.raises(ValueError, match="unknown aggregation 'median'; known are sum, mean, max, min"):
        aggregation("median")
