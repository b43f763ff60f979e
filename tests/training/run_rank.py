"""One rank of a training, as a process of its own: `run_rank.py RANK SIZE ADDRESS FOLDER`.

Reads `jobs` from the folder: for each, the model, all parts, labels and settings. Writes `rank-N`: for each,
the trained weights and the scores.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import torch

from d3gnn.training.gloo import GlooRanks
from d3gnn.training.links import examples_of
from d3gnn.training.loop import train_model
from d3gnn.training.rank_graph import RankGraph


def main(rank: int, size: int, address: str, folder: Path) -> None:
    torch.set_num_threads(1)
    ranks = GlooRanks(rank, size, address, timeout=60)
    results = []
    for model, parts, labels, settings in pickle.loads((folder / "jobs").read_bytes()):
        own = parts[len(parts) * rank // size : len(parts) * (rank + 1) // size]
        graph = RankGraph(own, ranks)
        trained = train_model(model, graph, examples_of(model, graph, labels, settings), settings)
        scores = [(epoch.loss, epoch.score, epoch.holdout) for epoch in trained.epochs]
        results.append((trained.model.state_dict(), scores))
    (folder / f"rank-{rank}").write_bytes(pickle.dumps(results))
    ranks.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
