"""What will a customer buy next? Queries answered from the newest purchases.

    python examples/link_prediction.py [FOLDER]

A GraphSAGE and a small network over pairs are trained together in PyG, on the purchases of one shop. A Spark
pipeline applies them to the purchases of another shop as they arrive. Queries (customer, article) arrive in
the same stream, and each is answered with the embeddings after its batch. Answers improve as customers buy
more.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn
from torch_geometric.nn import GraphSAGE

import d3gnn
from d3gnn.events import EventBatch, edge, feature
from d3gnn.nn import LinkPredictor, from_pyg

CUSTOMERS, ARTICLES, TASTES, BOUGHT, BATCHES = 300, 120, 4, 8, 6
WIDTH = TASTES + 1
EVENTS = "op string, element string, src string, dst string, value array<float>, time long"


class Shop:
    """Customers and articles, each with a taste, and purchases in the order of time."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.taste = rng.integers(0, TASTES, CUSTOMERS + ARTICLES)
        self.features = np.zeros((CUSTOMERS + ARTICLES, WIDTH), np.float32)
        self.features[:CUSTOMERS, TASTES] = 1  # marks customers, whose taste is unknown
        articles = np.arange(CUSTOMERS, CUSTOMERS + ARTICLES)
        self.features[articles, self.taste[articles]] = 1
        self.features[articles] += 0.7 * rng.standard_normal((ARTICLES, WIDTH)).astype(np.float32)
        purchases = [(c, a) for c in range(CUSTOMERS) for a in rng.choice(self.liked(c), BOUGHT, False)]
        gifts = [(c, rng.choice(articles)) for c in range(CUSTOMERS) for _ in range(BOUGHT // 4)]
        self.purchases = rng.permutation(np.unique(purchases + gifts, axis=0))

    def liked(self, customer: int) -> np.ndarray:
        """The articles of a customer's taste."""
        return CUSTOMERS + np.flatnonzero(self.taste[CUSTOMERS:] == self.taste[customer])


def name(v: int) -> str:
    """The name of a customer or article."""
    return f"customer-{v}" if v < CUSTOMERS else f"article-{v - CUSTOMERS}"


def train() -> tuple[GraphSAGE, LinkPredictor]:
    """Train to separate purchases that the graph does not contain from random pairs."""
    torch.manual_seed(0)
    rng, shop = np.random.default_rng(0), Shop(seed=1)
    x, half = torch.from_numpy(shop.features), len(shop.purchases) // 2
    known = torch.from_numpy(shop.purchases[:half].T.copy())
    both_ways = torch.cat([known, known.flip(0)], 1)
    positive = shop.purchases[half:]
    model = GraphSAGE(WIDTH, hidden_channels=32, num_layers=2, out_channels=16)
    head = LinkPredictor(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=0.01)
    for _ in range(150):
        others = rng.integers(CUSTOMERS, CUSTOMERS + ARTICLES, half)
        negative = np.stack([rng.integers(0, CUSTOMERS, half), others], 1)
        pairs = torch.from_numpy(np.concatenate([positive, negative]))
        bought = torch.cat([torch.ones(len(positive)), torch.zeros(half)])
        optimizer.zero_grad()
        embedding = model(x, both_ways)
        score = head.score(embedding[pairs[:, 0]], embedding[pairs[:, 1]])
        nn.functional.binary_cross_entropy(score, bought).backward()
        optimizer.step()
    return model.eval(), head.eval()


def write_files(folder: Path, shop: Shop) -> None:
    """Write purchases as files of events, and files of queries; one of each for each batch."""
    rng = np.random.default_rng(3)
    for kind in ("events", "queries"):
        (folder / kind).mkdir(parents=True)
    for number, some in enumerate(np.array_split(np.arange(len(shop.purchases)), BATCHES)):
        events = [
            edge(name(c), name(a), time=int(t)) for t, (c, a) in zip(some, shop.purchases[some], strict=True)
        ]
        if number == 0:
            events = [feature(name(v), row.tolist()) for v, row in enumerate(shop.features)] + events
        pq.write_table(EventBatch.of(events).to_arrow(), folder / "events" / f"{number}.parquet")
        queries = {"customer": rng.integers(0, CUSTOMERS, 200), "article": rng.integers(0, ARTICLES, 200)}
        columns = {kind: [f"{kind}-{i}" for i in ids] for kind, ids in queries.items()}
        pq.write_table(pa.table(columns), folder / "queries" / f"{number}.parquet")


def area_under_curve(score: np.ndarray, truth: np.ndarray) -> float:
    """The area under the ROC curve: 0.5 is chance, 1 is perfect."""
    rank = np.empty(len(score))
    rank[np.argsort(score)] = np.arange(1, len(score) + 1)
    ones = int(truth.sum())
    return float((rank[truth].sum() - ones * (ones + 1) / 2) / (ones * (len(score) - ones)))


def main(folder: Path) -> None:
    """Train, stream, and compare the answers with the customers' tastes."""
    trained, head = train()
    shop = Shop(seed=2)
    write_files(folder, shop)

    spark = d3gnn.session()
    read = spark.readStream.option("maxFilesPerTrigger", 1)
    events = read.schema(EVENTS).parquet(str(folder / "events"))
    queries = read.schema("customer string, article string").parquet(str(folder / "queries"))
    gnn = d3gnn.StreamingGNN(
        from_pyg(trained, head=head),
        name="shop",
        schema=d3gnn.GraphSchema(directed=False),
        store=folder / "store",
        arrays=folder / "arrays",
    )
    both = events.unionByName(
        d3gnn.from_queries(queries, src="customer", dst="article"), allowMissingColumns=True
    )
    run = gnn.start(both, folder / "answers", checkpoint=folder / "checkpoint", availableNow=True)
    run.awaitTermination()

    answers = spark.read.parquet(str(folder / "answers")).toPandas()
    answers["customer"] = answers["src"].str.removeprefix("customer-").astype(int)
    answers["article"] = answers["dst"].str.removeprefix("article-").astype(int)
    answers["belongs"] = shop.taste[answers["customer"]] == shop.taste[CUSTOMERS + answers["article"]]
    for batch, some in answers.groupby("batch_id"):
        area = area_under_curve(some["score"].to_numpy(), some["belongs"].to_numpy())
        print(f"batch {batch}: {len(some)} answers, area under the curve {area:.2f}")
    best = answers[answers["batch_id"] == answers["batch_id"].max()].nlargest(5, "score")
    print("The pairs with the highest scores in the last batch:")
    print(best[["src", "dst", "score", "belongs"]].to_string(index=False))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
