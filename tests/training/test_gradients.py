"""The gradient over parts is that of torch_geometric on the whole graph, for every layer and aggregator."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from d3gnn import LocalEngine
from d3gnn.nn import GNN, from_pyg
from d3gnn.oracle import Oracle
from d3gnn.testing import random_batches
from d3gnn.testing.pyg_cases import CASES, Case, arguments_of, schema_of
from d3gnn.testing.streams import positive
from d3gnn.training.forward import forward
from d3gnn.training.rank_graph import RankGraph
from d3gnn.training.ranks import OneRank
from d3gnn.training.row_modules import RowModules

STEPS = 20
PARTS = (1, 2, 4)


def every_case() -> Iterator[Any]:
    """All cases with all numbers of parts; in short runs, each case with one of them."""
    cases = [(f"{kind}-{name}", case) for kind, all in CASES.items() for name, case in all.items()]
    for i, (name, case) in enumerate(cases):
        for parts in PARTS if os.environ.get("D3GNN_THOROUGH") else PARTS[i % 3 :][:1]:
            yield pytest.param(case, parts, id=f"{name}-{parts}")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny matrices: threads take longer than the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def model_of_pyg(case: Case) -> nn.Module:
    """A model in training mode whose weights are all different, without dropout."""
    torch.manual_seed(3)
    model = case.make()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model.train()


def graph_of(case: Case, converted: GNN, parts: int, edges: Any = "multi") -> tuple[LocalEngine, Oracle]:
    engine = LocalEngine(converted, parts=parts, schema=schema_of(case, edges, directed=parts != 2))
    oracle = Oracle(engine.schema)
    for batch in random_batches(engine.schema, seed=4, n_batches=4, batch_size=60, n_vertices=30):
        events = positive(batch) if case.edge_weight else batch
        engine.apply(events, clock=1)
        oracle.apply(events, 1)
    return engine, oracle


def pairs_of(converted: GNN, model: nn.Module) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Parameters of both models with the same weights."""
    theirs = dict(model.named_parameters())
    pairs = []
    for ours in converted.parameters():
        name = next(n for n, w in theirs.items() if torch.equal(w.reshape(-1), ours.reshape(-1)))
        pairs.append((ours, theirs.pop(name)))
    assert not theirs
    return pairs


def rows_of(oracle: Oracle, engine: LocalEngine) -> Tensor:
    """For each master of the engine's parts, the oracle's row of its vertex."""
    ids = engine.partition.ids.keys.take(engine.live_graph().codes()).to_list()
    place = {id: i for i, id in enumerate(oracle.vertices)}
    return torch.tensor([place[id] for id in ids if id is not None])


def rank_graph(engine: LocalEngine) -> RankGraph:
    live = engine.live_graph()
    return RankGraph([live.part(part) for part in range(engine.parts)], OneRank())


def relative_difference(pairs: list[tuple[Tensor | None, Tensor | None]]) -> float:
    """Of all gradients or weights of two models: some gradients are 0, such as those before a batch-norm."""
    got, expected = (
        torch.cat([torch.zeros(1) if each is None else each.detach().reshape(-1) for each in column])
        for column in zip(*pairs, strict=True)
    )
    return float((got - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize(("case", "parts"), list(every_case()))
def test_gradients_and_weights_equal_pyg(case: Case, parts: int) -> None:
    model = model_of_pyg(case)
    converted = from_pyg(model, edge_weight=case.edge_weight).train()
    engine, oracle = graph_of(case, converted, parts)
    pairs = pairs_of(converted, model)
    graph, rows = rank_graph(engine), rows_of(oracle, engine)
    modules = RowModules(converted, graph.ranks, graph.hashes, dropout=0.0, seed=0)
    target = torch.randn(len(oracle.vertices), 2, generator=torch.Generator().manual_seed(1))
    arguments = arguments_of(case, oracle)
    # Without eps, Adam makes steps of full length out of rounding, where a gradient is 0.
    adam = partial(torch.optim.Adam, lr=0.01, eps=1e-3)
    steps: list[tuple[Any, Any]] = [
        (lambda: model(*arguments), adam([theirs for _, theirs in pairs])),
        (lambda: forward(converted, graph, modules), adam([ours for ours, _ in pairs])),
    ]
    for step in range(STEPS):
        for i, (run, optimizer) in enumerate(steps):
            optimizer.zero_grad()
            ((run() - (target[rows] if i else target)) ** 2).mean().backward()
            optimizer.step()
        if not step:
            assert relative_difference([(ours.grad, theirs.grad) for ours, theirs in pairs]) <= 1e-5
    # Rounding of the first steps grows in the later ones, in PyG's as well.
    assert relative_difference(list(pairs)) <= 5e-5
