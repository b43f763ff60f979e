"""Alerts for accounts in rings that pass money around, as transfers stream in.

    python examples/node_classification.py [FOLDER]

A GraphSAGE is trained in PyG on last month's transfers. A Spark pipeline applies it to this month's transfers
as they arrive, and raises an alert when an account starts to look like part of a ring. Some transfers are
cancelled later.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from torch_geometric.nn import GraphSAGE

import d3gnn
from d3gnn.events import EventBatch, delete_edge, edge, feature
from d3gnn.nn import Classifier, from_pyg

ACCOUNTS, RINGS, RING_SIZE, WIDTH, FILES = 600, 20, 6, 8, 8
COLUMNS = "op string, element string, src long, dst long, value array<float>, time long"


def month(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features of each account, transfers in the order of time, and whether each account is in a ring."""
    rng = np.random.default_rng(seed)
    honest = rng.integers(0, ACCOUNTS, (3 * ACCOUNTS, 2))
    members = rng.permutation(ACCOUNTS)[: RINGS * RING_SIZE].reshape(RINGS, RING_SIZE)
    in_rings = [(u, v) for ring in members for u in ring for v in rng.choice(ring, 4) if u != v]
    transfers = rng.permutation(np.unique(np.concatenate([honest, np.array(in_rings)]), axis=0))
    is_member = np.isin(np.arange(ACCOUNTS), members)
    features = rng.standard_normal((ACCOUNTS, WIDTH)).astype(np.float32)
    features[:, :3] += is_member[:, None]  # a weak signal, which the neighbours make clearer
    return features, transfers, is_member.astype(np.int64)


def train() -> GraphSAGE:
    """A model of PyG, trained on a labelled month."""
    torch.manual_seed(0)
    features, transfers, truth = month(seed=1)
    x, edges, y = torch.from_numpy(features), torch.from_numpy(transfers.T.copy()), torch.from_numpy(truth)
    model = GraphSAGE(WIDTH, hidden_channels=32, num_layers=2, out_channels=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-3)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x, edges), y).backward()
        optimizer.step()
    return model.eval()


def write_events(folder: Path, features: np.ndarray, transfers: np.ndarray) -> np.ndarray:
    """Write the month as files of events, one for each batch. Returns the transfers that remain."""
    folder.mkdir(parents=True)
    remaining: dict[tuple[int, int], None] = {}
    for number, some in enumerate(np.array_split(transfers, FILES)):
        created = [(int(u), int(v)) for u, v in some]
        cancelled = list(remaining)[::20]  # one in twenty of the earlier ones
        events = [feature(v, row.tolist(), time=-1) for v, row in enumerate(features)] if number == 0 else []
        events += [edge(u, v, time=2 * number) for u, v in created]
        events += [delete_edge(u, v, time=2 * number + 1) for u, v in cancelled]
        pq.write_table(EventBatch.of(events).to_arrow(), folder / f"{number}.parquet")
        remaining |= dict.fromkeys(created)
        for pair in cancelled:
            del remaining[pair]
    return np.array(list(remaining))


def main(folder: Path) -> None:
    """Train, stream, and compare the alerts with the truth and with PyG."""
    trained = train()
    features, transfers, truth = month(seed=2)
    remaining = write_events(folder / "events", features, transfers)

    spark = d3gnn.session()
    events = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder / "events"))
    gnn = d3gnn.StreamingGNN(
        from_pyg(trained, head=Classifier()),
        name="rings",
        store=folder / "store",
        arrays=folder / "arrays",
        alerts=d3gnn.Alerts(classes=[1], changed_class=True),
    )
    run = gnn.start(events, folder / "alerts", checkpoint=folder / "checkpoint", availableNow=True)
    run.awaitTermination()

    alerts = spark.read.parquet(str(folder / "alerts")).where("not deleted").orderBy("batch_id")
    for row in alerts.groupBy("batch_id").count().orderBy("batch_id").collect():
        print(f"batch {row.batch_id}: {row['count']} accounts")
    flagged = {row.id for row in alerts.collect()}
    right = sum(int(truth[id]) for id in flagged)
    print(f"{len(flagged)} accounts raised an alert; {right} of them are in a ring, of {truth.sum()} in all")

    with torch.inference_mode():
        logits = trained(torch.from_numpy(features), torch.from_numpy(remaining.T.copy()))
    now = set(np.flatnonzero(logits.argmax(1).numpy() == 1).tolist())
    print(f"PyG finds {len(now)} in the final graph; {len(now & flagged)} of them raised an alert")
    assert now <= flagged, "an account was missed"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
