"""The outcomes of `verify` and `repair`: exact is 0, wrong is 1, and whatever could not be checked is 2."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from d3gnn import GraphSchema
from d3gnn.cli import app
from d3gnn.kernel.mapped_state import MappedPartState
from d3gnn.runtime.in_use import InUse
from d3gnn.runtime.liveness import mark_running
from d3gnn.runtime.plan import default_arrays
from d3gnn.store.store import Store
from d3gnn.testing import random_batches
from d3gnn.testing.in_process import QUERY, InProcessPipeline

SCHEMA = GraphSchema(features={"x": 3})
BATCHES = list(random_batches(SCHEMA, seed=1, n_batches=4, batch_size=20, n_vertices=10))


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[InProcessPipeline]:
    """A pipeline with four batches, and its arrays in the default place."""
    made = InProcessPipeline(tmp_path, SCHEMA)
    made.arrays = Path(default_arrays("test", str(made.store)))
    for b, batch in enumerate(BATCHES):
        made.run(b, batch)
    yield made
    shutil.rmtree(made.arrays, ignore_errors=True)


def run(*arguments: str | Path, code: int) -> str:
    result = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result.output


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_the_exit_codes_of_verify(pipeline: InProcessPipeline, tmp_path: Path) -> None:
    verify = ("verify", "--checkpoint", pipeline.store)
    assert "exact" in run(*verify, "--deep", code=0)
    for path in pipeline.arrays.glob("*/vertex-2/*/value.array"):
        values = np.fromfile(path, np.float32)
        (values + 1).tofile(path)
    assert "wrong" in run(*verify, code=1)

    counters = next(pipeline.arrays.glob("*/vertex-2/0/header"))
    header = np.fromfile(counters, np.int64)
    header[0] = 0
    header.tofile(counters)
    assert "holds other files than arrays" in run(*verify, code=2)
    shutil.rmtree(pipeline.arrays)
    assert "there are no embeddings to compare" in run(*verify, code=2)

    entry = "log/000000000002.parquet"
    flip(pipeline.store / entry)
    assert f"{entry} in the store {pipeline.store} is damaged" in run(*verify, code=2)
    result = json.loads(run(*verify, "--deep", "--json", code=2).splitlines()[-1])
    assert (result["outcome"], result["exact"], result["intact"], result["batch"]) == ("damaged", False, 1, 3)
    assert [damage["path"] for damage in result["damaged"]] == [entry]
    (pipeline.store / "settings.json").write_text("{")
    assert "settings.json" in run(*verify, code=2)
    assert "neither a checkpoint" in run("verify", "--checkpoint", tmp_path / "nothing", "--deep", code=2)


def test_repair_asks(pipeline: InProcessPipeline, tmp_path: Path) -> None:
    repair = ("repair", "--store", pipeline.store)
    assert "nothing to repair" in run(*repair, code=0)
    flip(pipeline.store / "log" / "000000000002.parquet")
    said = run(*repair, code=1)
    assert "drop batches 2 to 3 from the log" in said
    assert "The checkpoint is not known" in said
    assert pipeline.log.last() == 3
    assert "is not the checkpoint of a query" in run(*repair, "--checkpoint", tmp_path / "x", code=2)
    assert "done: the log ends with batch 1" in run(*repair, "--yes", code=0)
    for batch in (2, 3):
        pipeline.run(batch, BATCHES[batch])
    assert "exact" in run("verify", "--checkpoint", pipeline.store, "--deep", code=0)
    for path in (pipeline.store / "log").iterdir():
        flip(path)
    assert "nothing of the graph log" in run(*repair, "--yes", code=2)


def test_repair_refuses_while_a_query_runs_or_a_worker_is_in_a_batch(pipeline: InProcessPipeline) -> None:
    flip(pipeline.store / "log" / "000000000002.parquet")
    repair, store = ("repair", "--store", pipeline.store, "--yes"), Store(pipeline.store)
    with mark_running(store, pipeline.arrays):
        assert f"a query runs on the store {store.uri}: stop it" in run(*repair, code=2)
    for query, uri in ((QUERY.replace("0", "1"), store.uri), (QUERY.replace("0", "2"), f"{store.uri}-2")):
        folder = pipeline.arrays / query  # of a query that the store belonged to; and of another store
        mark = InUse(folder, uri)
        mark.mark()
        state = MappedPartState(folder / "partition" / "0")
        if uri == store.uri:
            with state.locked():
                assert f"a worker is in a batch on the arrays in {folder}" in run(*repair, code=2)
            assert pipeline.log.last() == 3
        else:
            with state.locked():
                assert "done: the log ends with batch 1" in run(*repair, code=0)
        state.close()
        mark.close()
