"""Workloads of benchmarks: edge lists, event files and synthetic streams."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from d3gnn.bench import file_workload, synthetic_workload
from d3gnn.bench.workload import with_schema
from d3gnn.events import EventBatch, GraphSchema, Op
from d3gnn.sources import EdgeListError, SyntheticStream


@pytest.fixture
def edge_list(tmp_path: Path) -> Path:
    path = tmp_path / "edges.csv"
    path.write_text("src,dst,time\n1,2,30\n2,3,10\n3,1,20\n")
    return path


def test_an_edge_list_is_a_multigraph_ordered_by_time(edge_list: Path) -> None:
    workload = file_workload(edge_list)
    assert (workload.events, workload.schema.edges, workload.in_order) == (3, "multi", True)
    assert [batch.src.to_list() for batch in workload.batches(2)] == [[2, 3], [1]]


def test_an_edge_list_with_deletes_is_simple(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("1 + a b\n2 + b c\n3 - a b\n")
    workload = file_workload(path, undirected=True)
    assert workload.schema == GraphSchema(edges="simple", directed=False)
    (batch,) = workload.batches(10)
    assert batch.op.tolist() == [Op.CREATE, Op.CREATE, Op.DELETE]
    assert batch.src.to_list() == ["a", "b", "a"]


def test_the_edge_mode_can_be_chosen(edge_list: Path) -> None:
    assert file_workload(edge_list, "append").schema.edges == "append"
    assert synthetic_workload(SyntheticStream(10), "simple").schema.edges == "simple"


def test_a_limit_ends_the_stream(edge_list: Path) -> None:
    assert file_workload(edge_list, limit=2).events == 2
    workload = synthetic_workload(SyntheticStream(100)).limited(35)
    assert workload.events == 35
    assert [len(batch) for batch in workload.batches(20)] == [20, 15]
    with pytest.raises(ValueError, match="at least 1"):
        file_workload(edge_list, limit=0)


def test_an_event_file_contains_its_schema(tmp_path: Path) -> None:
    stream = SyntheticStream(100, feature_updates=0.5, feature_width=3, undirected=True)
    (batch,) = stream.batches(1000)
    pq.write_table(with_schema(batch.to_arrow(), stream.schema), tmp_path / "events.parquet")
    workload = file_workload(tmp_path / "events.parquet")
    assert (workload.schema, workload.events) == (stream.schema, 150)
    again = EventBatch.concat(list(workload.batches(40)))
    assert again.to_arrow().equals(batch.to_arrow())


def test_a_missing_schema_is_inferred_from_the_events(tmp_path: Path) -> None:
    stream = SyntheticStream(100, feature_updates=0.5, feature_width=3, deletes=0.2)
    (batch,) = stream.batches(1000)
    pq.write_table(batch.to_arrow(), tmp_path / "events.parquet")
    workload = file_workload(tmp_path / "events.parquet")
    assert workload.schema == GraphSchema(edges="simple", features={"x": 3}, missing="hash")


def test_empty_and_invalid_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({"op": pa.array([], pa.string()), "element": [], "src": []}), path)
    with pytest.raises(EdgeListError, match="no events"):
        file_workload(path)
    pq.write_table(pa.table({"op": ["create"], "element": ["vertex"], "src": [0.5]}), path)
    with pytest.raises(EdgeListError, match="ids and edge keys must be integers or strings"):
        file_workload(path)
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(EdgeListError, match="write the file again"):
        file_workload(path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        file_workload(tmp_path / "nothing")
