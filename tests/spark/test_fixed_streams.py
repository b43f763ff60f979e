"""Small streams, each for one rule: the embeddings equal the oracle's after every batch.

The rules are those of docs/architecture.md ("The protocol that makes it exact") and of docs/events.md. Each
stream runs at 1, 2 and 4 parts, as three queries at the same time. With windows, a drain comes first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

from d3gnn import GraphSchema, metrics
from d3gnn.events import Event, delete_edge, delete_feature, delete_vertex, edge, feature, label, vertex
from d3gnn.kernel.windows import Windows
from d3gnn.nn.models import sage_from_widths
from d3gnn.spark.restarting import RestartingQuery
from d3gnn.testing.pipelines import PipelineRun
from d3gnn.windows import AdaptiveSession, Count, Session, Tumbling

#: By default, each stream runs at two of these numbers of parts.
PARTS = (1, 2, 4)
THOROUGH = "D3GNN_THOROUGH" in os.environ
RING = range(1, 13)
#: Ends a run of the query; the next one starts with a refresh.
REFRESH: Literal["refresh"] = "refresh"

Step = list[Event] | Literal["refresh"]


@dataclass
class Stream:
    """Batches, and the graph and model that they are for."""

    steps: list[Step]
    schema: GraphSchema = field(default_factory=lambda: GraphSchema(features={"x": 3}))
    widths: tuple[int, ...] = (3, 4, 2)
    aggregator: str = "mean"
    partitioner: str = "random"  # creates more replicas than HDRF
    ids: str = "bigint"
    order: tuple[str, ...] = ()


def hub_and_ring() -> list[Event]:
    """A hub (0) and a ring (1 to 12), so that every part has a replica of the hub."""
    return [
        *(feature(i, [i / 3, -i / 5, 0.5]) for i in range(13)),
        *(edge(0, i) for i in RING),
        *(edge(i, 0) for i in RING),
        *(edge(i, i % 12 + 1) for i in RING),
    ]


def changed(event: Event, **columns: Any) -> Event:
    return event._replace(**columns)


def crossing(sources: range, destinations: range, time: int = 0) -> list[Event]:
    return [edge(u, v, time=time) for u in sources for v in destinations]


STREAMS = {
    # Rule 2: an unchanged value goes to new replicas, a changed one to all of them.
    "the first value of a new replica": Stream(
        [
            [*hub_and_ring(), vertex(30, [1, 2, 3])],
            [edge(30, i, time=1) for i in range(1, 7)],
            [*(edge(30, i, time=2) for i in range(7, 13)), feature(0, [-1, 2, 3], time=2)],
            [feature(30, [3, 2, 1], time=3)],
        ]
    ),
    # Rule 2: a replica without edges keeps the last value that it received, and receives later changes.
    "a replica loses its last edge and gets one again": Stream(
        [
            hub_and_ring(),
            [delete_edge(0, i, time=1) for i in RING],
            [feature(0, [4, -4, 4], time=2)],
            [edge(0, i, time=3) for i in RING],
        ],
        partitioner="hdrf",
    ),
    # Rule 1: a delete goes to every replica part; internal ids are never reused; one row per id.
    "a vertex is deleted and comes again": Stream(
        [
            hub_and_ring(),
            [delete_vertex(3, time=1), edge(3, 4, time=1), delete_vertex(5, time=1), edge(1, 99, time=1)],
            [*(delete_vertex(i, time=2) for i in (0, 99)), edge(77, 1, time=2), delete_vertex(77, time=3)],
            [edge(0, 1, time=4), edge(2, 0, time=4), edge(1, 99, time=4), feature(5, [1, 1, 1], time=4)],
        ]
    ),
    # Rules 3 and 4: the order inside Edge; a count of 0 deletes a partial; messages reach the third layer.
    "values change while edges come and go": Stream(
        [
            hub_and_ring(),
            [
                feature(0, [4, 4, 4], time=1),
                *(delete_edge(0, i, time=1) for i in range(1, 7)),
                *(edge(0, i, time=1) for i in range(20, 24)),
                delete_edge(4, 5, time=1),
            ],
            [
                *(feature(i, [1, i, -1], time=2) for i in (1, 2, 20)),
                *(edge(i, i + 1, time=2) for i in (4, 20)),
                delete_edge(12, 1, time=2),
                delete_edge(1, 0, time=2),
            ],
        ],
        widths=(3, 4, 4, 2),
    ),
    # Rule 4: sums in float64, from which a large message can be retracted.
    "a large message comes and goes": Stream(
        [
            [feature(40, [3e8, 3e8, 3e8]), *(edge(i, 50) for i in range(40, 50))],
            [delete_vertex(40, time=1)],
        ],
        aggregator="sum",
        widths=(3, 2),
    ),
    # Rule 4: if most destinations change, a part recomputes all of them, and clears its earlier partials.
    "whole parts recompute": Stream(
        [
            [*crossing(range(40), range(100, 110)), *crossing(range(100, 110), range(5))],
            [
                *(feature(i, [i, 1, -i], time=1) for i in range(40)),
                *(delete_edge(i, 109, time=1) for i in range(40)),
            ],
        ],
        aggregator="sum",
    ),
    # An undirected edge is one edge in either direction; a loop carries one message.
    "undirected, with loops": Stream(
        [
            [edge(1, 2), edge(2, 1), edge(2, 2), *(edge(i, 2) for i in range(3, 9)), feature(2, [1, 2, 3])],
            [*(delete_edge(2, i, time=1) for i in (1, 2)), edge(8, 8, time=1), delete_vertex(5, time=1)],
            [*(edge(i, 2, time=2) for i in (1, 2)), feature(8, [3, 3, 3], time=2), delete_edge(8, 8, time=2)],
        ],
        GraphSchema(directed=False, features={"x": 3}),
    ),
    # Every create adds a copy; a delete removes the newest; loops are edges like others.
    "parallel edges without keys": Stream(
        [
            [*(edge(1, 2, [i], time=i) for i in range(3)), edge(2, 2), edge(2, 3), edge(3, 1), edge(3, 1)],
            [delete_edge(1, 2, time=3), delete_edge(3, 1, time=3), edge(2, 2, time=3)],
            [*(delete_edge(1, 2, time=4) for _ in range(3)), edge(1, 2, time=5), delete_edge(2, 2, time=5)],
        ],
        GraphSchema(edges="multi", features={"x": 3}, edge_features={"w": 1}),
    ),
    # Keys distinguish parallel edges; edge features and labels change no embedding.
    "parallel edges with keys": Stream(
        [
            [*(edge(1, 2, [i], key=i) for i in (0, 1, 2, 0)), *(edge(2, i, key=0) for i in RING)],
            [delete_edge(1, 2, key=1, time=1), changed(edge(1, 2, [5.0], key=2, time=1), op="update")],
            [edge(1, 2, key=1, time=2), label(1, 3.0, time=2), label(88, 1.0, time=2), edge(1, 3, time=2)],
        ],
        GraphSchema(edges="keyed", features={"x": 3}, edge_features={"w": 1}),
    ),
    # No table of edges; ids as text, awkward ones among them.
    "append-only, with text for ids": Stream(
        [
            [edge("a", ""), edge("a", ""), edge("", "é"), edge("a much longer id than eight bytes", "a")],
            [edge("é", "a", time=1), delete_edge("a", "", time=1), feature("a", [1, 2, 3], time=1)],
            [delete_vertex("", time=2), edge("a\0", "a", time=2), edge("", "a", time=3)],
        ],
        GraphSchema(edges="append", features={"x": 3}),
        ids="string",
    ),
    # Rule 1: the feature value with the newest time wins, in any order of arrival.
    "features come late and again": Stream(
        [
            [*(edge(0, i) for i in RING), feature(0, [5, 5], time=9), feature(0, [1], time=4, name="y")],
            [feature(0, [6, 6], time=8), feature(0, [7], time=5, name="y"), feature(0, [8, 8], time=9)],
            [delete_feature(0, time=7), delete_feature(0, time=6, name="y"), vertex(1, [2, 2], time=9)],
        ],
        GraphSchema(features={"x": 2, "y": 1}),
    ),
    # Rule 1: time, then arrival, then partition and offset; bad events become dead letters, the others apply.
    "bad events, and good ones out of order": Stream(
        [
            [
                changed(delete_edge(1, 2, time=5), arrival=1),
                changed(edge(1, 2, time=4), arrival=9),
                changed(edge(1, 3, time=5), src=None),
                changed(edge(1, 3, time=5), op="destroy"),
                feature(2, [1, 2, 3, 4], time=5),
                feature(2, [1, float("nan"), 3], time=5),
                delete_edge(8, 9, time=5),
                *(edge(2, i, time=1) for i in RING),
            ],
            [
                changed(delete_edge(1, 2, time=7), arrival=2),
                changed(edge(1, 2, time=7), arrival=1),
                changed(edge(4, 5, time=7), arrival=1, partition=1, offset=1),
                changed(delete_edge(4, 5, time=7), arrival=1, partition=0, offset=2),
                changed(edge(4, 5, time=7), arrival=1, partition=0, offset=1),
            ],
            [changed(edge(1, 2, time=8), time=None), changed(edge(2, 1, time=8), dst=None)],
        ],
        order=("arrival", "partition", "offset"),
    ),
    # A batch without events; a refresh, in a batch of its own and together with deletes.
    "empty batches and refreshes": Stream(
        [
            [*hub_and_ring(), edge(51, 50)],
            [],
            REFRESH,
            REFRESH,
            [*(delete_vertex(i, time=1) for i in (51, 0)), edge(0, 1, time=1), delete_edge(12, 1, time=1)],
            [edge(51, 2, time=2), edge(7, 0, time=2), feature(50, [2, 2, 2], time=2)],
        ],
        widths=(3, 2),
    ),
}  # fmt: skip


def runs_of(stream: Stream) -> list[list[list[Event]]]:
    """The batches of each run of the query; all runs but the first begin with a refresh."""
    runs: list[list[list[Event]]] = [[]]
    for step in stream.steps:
        if step == REFRESH:
            runs.append([])
        else:
            runs[-1].append(step)
    return runs


def begin(pipeline: PipelineRun) -> RestartingQuery:
    """Start a query, and wait until its sources run: each starts a Python process, which can take 10 s."""
    running = pipeline.start()
    while running.isActive and running.status["message"].startswith("Initializing"):
        time.sleep(0.01)
    return running


def run_all(stream: Stream, pipelines: list[PipelineRun]) -> list[RestartingQuery]:
    """Run the whole stream through all pipelines at the same time; return the last query of each."""
    started: list[RestartingQuery] = []
    for number, batches in enumerate(runs_of(stream)):
        for pipeline in pipelines:
            pipeline.write(*batches)
            if number:
                pipeline.gnn.refresh()
        started = [begin(pipeline) for pipeline in pipelines]
        for running in started:
            running.awaitTermination()
    return started


def pipelines_of(
    stream: Stream, spark: SparkSession, folder: Path, all_parts: Sequence[int], **more: Any
) -> list[PipelineRun]:
    model = sage_from_widths(stream.widths, aggr=stream.aggregator, seed=1)
    more |= {"partitioner": stream.partitioner, "order": stream.order, "ids": stream.ids, "model": model}
    return [PipelineRun(spark, folder / str(parts), stream.schema, parts, **more) for parts in all_parts]


@pytest.mark.parametrize("name", STREAMS)
def test_equals_the_oracle_after_every_batch(name: str, spark: SparkSession, tmp_path: Path) -> None:
    left_out = None if THOROUGH else PARTS[list(STREAMS).index(name) % len(PARTS)]
    some = [parts for parts in PARTS if parts != left_out]
    pipelines = pipelines_of(STREAMS[name], spark, tmp_path, some)
    run_all(STREAMS[name], pipelines)
    for pipeline in pipelines:
        pipeline.check()


AN_HOUR = 3600.0
#: Some changes are due while the streams run, some are pending until their end.
WINDOWS: list[Windows] = [
    Tumbling(AN_HOUR),
    (Session(0.2), None),
    AdaptiveSession(shortest=0.1, widest=5.0),
    Count(3, max_delay=AN_HOUR),
]
#: The only stream by default: it grows at first, and then much is deleted.
GROWS, CHANGES = "the first value of a new replica", "values change while edges come and go"


@pytest.mark.parametrize("name", STREAMS if THOROUGH else [CHANGES])
@pytest.mark.parametrize("window", WINDOWS, ids=repr)
def test_equals_the_oracle_after_a_drain(
    name: str, window: Windows, spark: SparkSession, tmp_path: Path
) -> None:
    pipelines = pipelines_of(STREAMS[name], spark, tmp_path, PARTS, window=window)
    queries = run_all(STREAMS[name], pipelines)
    for pipeline in pipelines:
        pipeline.check_drained()
    if name in (GROWS, CHANGES):
        for query in queries:
            pending = [found.get("pending", 0) for p in query.recentProgress for found in metrics(p).values()]
            assert max(pending) > 0, "nothing was ever pending"
