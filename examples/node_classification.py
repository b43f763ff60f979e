"""Which accounts belong to a ring that passes money around? Alerts, as transfers stream in.

    python examples/node_classification.py [FOLDER]

A GraphSAGE is trained once in torch_geometric, on last month's transfers. It then goes into a Spark pipeline
as it is, which takes this month's as they come and says which accounts look like a ring's: each once, when it
first does, and once more if it looked otherwise in between. Some transfers are taken back.
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
    """What is known of each account, transfers in the order of time, and which accounts are in a ring."""
    rng = np.random.default_rng(seed)
    honest = rng.integers(0, ACCOUNTS, (3 * ACCOUNTS, 2))
    members = rng.permutation(ACCOUNTS)[: RINGS * RING_SIZE].reshape(RINGS, RING_SIZE)
    in_rings = [(u, v) for ring in members for u in ring for v in rng.choice(ring, 4) if u != v]
    transfers = rng.permutation(np.unique(np.concatenate([honest, np.array(in_rings)]), axis=0))
    is_member = np.isin(np.arange(ACCOUNTS), members)
    about = rng.standard_normal((ACCOUNTS, WIDTH)).astype(np.float32)
    about[:, :3] += is_member[:, None]  # a hint in all that noise, which the neighbours make clearer
    return about, transfers, is_member.astype(np.int64)


def train() -> GraphSAGE:
    """A model of torch_geometric, from a month of which the truth is known."""
    torch.manual_seed(0)
    about, transfers, truth = month(seed=1)
    x, edges, y = torch.from_numpy(about), torch.from_numpy(transfers.T.copy()), torch.from_numpy(truth)
    model = GraphSAGE(WIDTH, hidden_channels=32, num_layers=2, out_channels=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-3)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x, edges), y).backward()
        optimizer.step()
    return model.eval()


def write_events(folder: Path, about: np.ndarray, transfers: np.ndarray) -> np.ndarray:
    """The month as files of events, one for each batch; the transfers that are there at the end."""
    folder.mkdir(parents=True)
    there: dict[tuple[int, int], None] = {}
    for number, some in enumerate(np.array_split(transfers, FILES)):
        came = [(int(u), int(v)) for u, v in some]
        back = list(there)[::20]  # one in twenty of those before is taken back
        events = [feature(v, row.tolist(), time=-1) for v, row in enumerate(about)] if number == 0 else []
        events += [edge(u, v, time=2 * number) for u, v in came]
        events += [delete_edge(u, v, time=2 * number + 1) for u, v in back]
        pq.write_table(EventBatch.of(events).to_arrow(), folder / f"{number}.parquet")
        there |= dict.fromkeys(came)
        for pair in back:
            del there[pair]
    return np.array(list(there))


def main(folder: Path) -> None:
    """Train, stream, and hold what came out against the truth and against torch_geometric."""
    trained = train()
    about, transfers, truth = month(seed=2)
    left = write_events(folder / "events", about, transfers)

    spark = d3gnn.session()
    events = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder / "events"))
    gnn = d3gnn.StreamingGNN(
        from_pyg(trained, head=Classifier()),
        name="rings",
        arrays=folder / "arrays",
        alerts=d3gnn.Alerts(classes=[1], changed_class=True),
    )
    run = gnn.start(
        events, folder / "alerts", checkpoint=folder / "checkpoint", trigger={"availableNow": True}
    )
    run.await_termination()

    alerts = spark.read.parquet(str(folder / "alerts")).where("not deleted").orderBy("batch")
    for row in alerts.groupBy("batch").count().orderBy("batch").collect():
        print(f"batch {row.batch}: {row['count']} accounts")
    said = {row.id: row.score for row in alerts.collect()}
    right = sum(int(truth[id]) for id in said)
    print(f"{len(said)} accounts were said to be in a ring; {right} are, of {truth.sum()} in all")

    with torch.inference_mode():
        logits = trained(torch.from_numpy(about), torch.from_numpy(left.T.copy()))
    now = set(np.flatnonzero(logits.argmax(1).numpy() == 1).tolist())
    print(f"torch_geometric sees {len(now)} in the graph as it is; {len(now & set(said))} of them were said")
    assert now <= set(said), "an account was missed"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
