"""Whole real streams through Spark end with the embeddings of a static pass over the final graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

import d3gnn
from d3gnn import GraphSchema
from d3gnn.events import EventBatch
from d3gnn.events.keys import IntKeys
from d3gnn.kernel.hashing import initial_values
from d3gnn.nn.models import sage_from_widths
from d3gnn.oracle import forward, relative_error
from d3gnn.sources import read_edge_list
from d3gnn.testing.pipelines import PipelineRun

WIDTHS = [16, 16, 16]


@pytest.mark.parametrize(
    ("path", "edges", "batch"),
    [("sx-mathoverflow.txt.gz", "multi", 50_000), ("ogbn-arxiv/edges_by_year.csv.gz", "simple", 100_000)],
)
def test_a_whole_stream(
    spark: SparkSession,
    tmp_path: Path,
    shared_data: Path,
    path: str,
    edges: d3gnn.events.EdgeMode,
    batch: int,
) -> None:
    if not (shared_data / path).exists():
        pytest.skip(f"{shared_data / path} does not exist")
    stream = read_edge_list(shared_data / path)
    model = sage_from_widths(WIDTHS, seed=1)
    run = PipelineRun(spark, tmp_path, GraphSchema(edges=edges), model=model)
    events = EventBatch.edges(stream.src, stream.dst, time=stream.time)
    for begin in range(0, len(events), batch):
        run.checker.files.write(events.take(slice(begin, begin + batch)))
    run.process_available()

    ids, ends = np.unique([stream.src, stream.dst], return_inverse=True)
    ends = ends.reshape(2, -1)
    if edges == "simple":
        ends = ends[:, np.unique(ends[0] * len(ids) + ends[1], return_index=True)[1]]
    expected = forward(model, initial_values(IntKeys(ids), WIDTHS[0]), *ends)
    got = d3gnn.latest(spark, str(run.output)).select("id", "embedding").orderBy("id").toArrow()
    assert got["id"].to_pylist() == ids.tolist()
    embeddings = np.asarray(got["embedding"].combine_chunks().flatten()).reshape(len(ids), -1)
    assert relative_error(embeddings, expected) <= 1e-5
