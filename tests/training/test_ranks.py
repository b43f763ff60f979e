"""Two processes, connected by gloo, train to the same weights as one."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from d3gnn import LocalEngine, Training
from d3gnn.events import Event, label
from d3gnn.nn import GNN, Classifier, GraphSAGE, LinkPredictor, SAGEConv, Stage, from_pyg
from d3gnn.testing import random_batches
from d3gnn.testing.pyg_cases import CASES, Case, schema_of
from d3gnn.testing.streams import positive
from d3gnn.training.links import examples_of
from d3gnn.training.loop import train_model
from d3gnn.training.rank_graph import RankGraph
from d3gnn.training.ranks import OneRank

# Without eps, Adam makes steps of full length out of rounding, where a gradient is 0.
ADAM = partial(torch.optim.Adam, eps=1e-3)
ALL = Training(loss="regression", epochs=3, holdout=0.0, optimizer=ADAM)
THOROUGH = "D3GNN_THOROUGH" in os.environ
#: Cases of short runs: every kind of message, and of partial aggregate.
SHORT = {
    "SAGEConv several", "SAGEConv min", "GCNConv weighted", "GraphConv weighted max", "GATConv edges",
    "GATv2Conv edges, filled", "Stage GCN",
}  # fmt: skip


def free_address() -> str:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listening.getsockname()[1]}"


def job(model: GNN, case: Case, training: Training, labels: list[Event] | None = None) -> tuple[Any, ...]:
    """A model, a graph in 3 parts, its labels, and settings."""
    engine = LocalEngine(model, parts=3, schema=schema_of(case, "simple", directed=True))
    for batch in random_batches(engine.schema, seed=4, n_batches=3, batch_size=60, n_vertices=30):
        engine.apply(positive(batch) if case.edge_weight else batch, clock=1)
    engine.apply(labels if labels is not None else [label(i, float(i % 5), time=10**6) for i in range(30)])
    live = engine.live_graph()
    return model, [live.part(part) for part in range(3)], live.labels(), training


def alone(model: GNN, parts: Any, labels: Any, settings: Training) -> Any:
    graph = RankGraph(parts, OneRank())
    trained = train_model(model, graph, examples_of(model, graph, labels, settings), settings)
    return trained.model.state_dict(), [(epoch.loss, epoch.score, epoch.holdout) for epoch in trained.epochs]


def run(jobs: list[Any], folder: Path, size: int = 2) -> list[Any]:
    """The results of all ranks."""
    (folder / "jobs").write_bytes(pickle.dumps(jobs))
    address, script = free_address(), Path(__file__).with_name("run_rank.py")
    ranks = [
        subprocess.Popen([sys.executable, str(script), str(rank), str(size), address, str(folder)])
        for rank in range(size)
    ]
    try:
        assert [rank.wait(240) for rank in ranks] == [0] * size
    finally:
        for rank in ranks:
            rank.kill()
    return [pickle.loads((folder / f"rank-{rank}").read_bytes()) for rank in range(size)]


def test_two_ranks_train_to_the_weights_of_one(tmp_path: Path) -> None:
    jobs, names = [], []
    for kind, cases in CASES.items():
        for name, case in cases.items():
            if not THOROUGH and f"{kind} {name}" not in SHORT:
                continue
            torch.manual_seed(3)
            jobs.append(job(from_pyg(case.make(), edge_weight=case.edge_weight), case, ALL))
            names.append(f"{kind} {name}")
    plain = CASES["SAGEConv"]["mean"]
    torch.manual_seed(3)
    norm = torch.nn.Sequential(torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.4))
    normalised = GNN([Stage(SAGEConv(3, 8), norm), SAGEConv(8, 3, "max")], Classifier(torch.nn.Linear(3, 5)))
    jobs.append(
        job(normalised, plain, Training(epochs=2, holdout=0.3, batch_size=12, clip=1.0, optimizer=ADAM))
    )
    # A rank may have no label at all.
    model = GraphSAGE(3, 8, 2, 2, seed=1)
    jobs.append(job(model, plain, Training(epochs=3, holdout=0.0), [label(1, 1, time=10**6)]))
    links = GraphSAGE(3, 8, 2, 4, seed=1, head=LinkPredictor())
    jobs.append(job(links, plain, Training(epochs=3, negatives=2, batch_size=20, optimizer=ADAM)))
    names += ["batches, dropout and batch-norm", "one label", "links"]
    first, second = run(jobs, tmp_path)
    for name, given, one, other in zip(names, jobs, first, second, strict=True):
        (weights, scores), (others, _) = one, other
        expected, losses = alone(*given)
        np.testing.assert_allclose(
            np.array(scores, float), np.array(losses, float), rtol=1e-4, atol=1e-5, err_msg=name
        )
        for key, weight in expected.items():
            assert torch.equal(weights[key], others[key]), f"{name}: ranks differ in {key}"
            torch.testing.assert_close(weights[key], weight, rtol=1e-4, atol=2e-5, msg=f"{name}: {key}")


def test_a_custom_aggregation_needs_one_rank() -> None:
    from d3gnn.nn.aggregation import register_aggregation, unregister_aggregation
    from d3gnn.training.forward import forward

    class Two(OneRank):
        size = 2

    def middle(messages: torch.Tensor, index: torch.Tensor, size: int) -> torch.Tensor:
        return messages.new_zeros((size, messages.shape[1])).index_add(0, index, messages) / 2

    _, parts, _, _ = job(GraphSAGE(3, 4, 1, seed=1), CASES["SAGEConv"]["mean"], ALL)
    register_aggregation("middle", middle)
    try:
        model = GNN([SAGEConv(3, 2, "middle")])
        graph = RankGraph(parts, OneRank())
        expected = model(graph_x(parts), graph_edges(parts))
        torch.testing.assert_close(forward(model, graph), expected)
        graph.ranks = Two()
        with pytest.raises(NotImplementedError, match="several ranks"):
            forward(model, graph)
    finally:
        unregister_aggregation("middle")


def graph_x(parts: Any) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([part.x for part in parts]))


def graph_edges(parts: Any) -> torch.Tensor:
    first = np.concatenate([[0], np.cumsum([len(part.x) for part in parts])])
    ends = [[(first[part.home_part] + part.home)[side] for side in (part.src, part.dst)] for part in parts]
    return torch.from_numpy(np.concatenate(ends, 1).astype(np.int64))
