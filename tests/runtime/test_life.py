"""A graph with lifetimes and tombstones goes on exactly through whatever happens to its store."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, given, settings

from d3gnn import GraphSchema
from d3gnn.events import Event, Key, delete_vertex, edge, vertex
from d3gnn.kernel.partitioners import HDRF
from d3gnn.nn import GraphSAGE
from d3gnn.oracle import Oracle, embeddings, relative_error
from d3gnn.runtime.chain_worker import ChainWorker
from d3gnn.runtime.erasure import forget
from d3gnn.runtime.fork import fork
from d3gnn.runtime.rollout import deploy
from d3gnn.runtime.verify import held_embeddings, stored_plan
from d3gnn.store.store import Store
from d3gnn.testing import event_batches, random_batches, schemas
from d3gnn.testing.in_process import QUERY, InProcessPipeline
from d3gnn.windows import Tumbling

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
TOLERANCE = 1e-5


class Killed(Exception):
    pass


class Life:
    """A pipeline and the graph that it should have."""

    def __init__(self, folder: str | Path, schema: GraphSchema, window: Any = None) -> None:
        self.folder, self.schema, self.oracle = Path(folder), schema, Oracle(schema)
        self.model, self.window = GraphSAGE(schema.width, 4, 2, 3, seed=1), window
        self.forks = self.owners = self.models = 0
        self.batch = 0  # of the query
        self.pipeline = self.open("life-0", 2)

    def open(self, name: str, parts: int, query: str = QUERY) -> InProcessPipeline:
        return InProcessPipeline(
            self.folder / name, self.schema, parts, model=self.model, window=self.window, query=query
        )

    def apply(self, events: list[Event]) -> None:
        # A query that ends flushes what windows hold back.
        self.oracle.apply(events)
        self.pipeline.run(self.batch, events, ["drain"] if self.window else [])
        self.batch += 1
        self.check()

    def check(self) -> None:
        verdict = self.pipeline.verify()
        assert (verdict.missing, verdict.pending) == (0, 0)
        assert verdict.max_relative_error <= TOLERANCE
        assert verdict.vertices == len(self.oracle.vertices)
        expected = embeddings(self.current(), self.oracle)
        plan = stored_plan(self.pipeline.store, arrays=str(self.pipeline.arrays))
        held = held_embeddings(plan, list(expected))
        assert set(held) == set(expected)
        for id, values in expected.items():
            assert relative_error(held[id][None], values[None]) <= TOLERANCE

    def current(self) -> Any:
        return self.model if not self.models else GraphSAGE(self.schema.width, 4, 2, 3, seed=1 + self.models)

    # ------------------------------------------------------------------ what happens to it

    def lose_arrays(self) -> None:
        shutil.rmtree(self.pipeline.arrays, ignore_errors=True)

    def damage_arrays(self) -> None:
        """Between two runs, of which the first one has ended in order."""
        files = sorted(self.pipeline.arrays.glob(f"{self.pipeline.query}/partition/0/*.array"))
        if not files:
            return
        self.pipeline.seal()
        for file in files:
            file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))

    def kill(self, events: list[Event]) -> None:
        """In the middle of a batch, which is in the log; Spark runs it again."""

        def die(*_: Any) -> Any:
            raise Killed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ChainWorker, "send", die)
            with pytest.raises(Killed):
                self.pipeline.run(self.batch, events)
        self.apply(events)

    def fork(self) -> None:
        if not self.batch:
            return
        self.forks += 1
        parts = 1 + (self.pipeline.parts % 3)
        new = self.open(f"life-{self.forks}", parts)
        fork(
            self.pipeline.store,
            str(new.store),
            name="test",
            parts=parts,
            partitioner=HDRF(),
            schema=self.schema,
        )
        self.pipeline, self.batch, self.owners = new, 0, 0
        if self.models:  # a fork has the model that it is started with
            self.model, self.models = self.current(), 0
            new.model = self.model

    def adopt(self) -> None:
        if not self.batch:
            return
        self.owners += 1
        self.pipeline.query = QUERY[:-1] + str(self.owners)
        self.batch = 0

    def deploy(self) -> None:
        if not self.batch:
            return
        self.models += 1
        deploy(Store(self.pipeline.store), self.current())
        # As the control source does with the command that deploy sends.
        self.pipeline.run(self.batch, [], ["deploy"])
        self.batch += 1
        self.check()

    def forget(self, id: Key) -> None:
        if not self.batch:
            return
        erasure = forget(self.pipeline.store, [id], arrays=self.pipeline.arrays)
        assert erasure.left == ()
        if id in self.oracle._features:
            self.oracle._remove_vertex(id)
        self.oracle._labels.pop(id, None)
        self.oracle._deletes._times.pop(id, None)

    def compact(self) -> None:
        if self.pipeline.log.last() is not None:
            self.pipeline.log.compact(forget_history=True)


WHAT = ["nothing", "lose", "damage", "fork", "adopt", "deploy", "forget", "compact"]


@settings(max_examples=40, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(data=st.data())
def test_a_stream_goes_on_exactly_whatever_happens(data: st.DataObject) -> None:
    schema = data.draw(schemas(edges=("simple", "multi"), expiry=True), "schema")
    window = data.draw(st.sampled_from([None, None, Tumbling(1.0)]), "window")
    stream = [[vertex(0, time=-9)], *data.draw(event_batches(schema, max_batches=6, bad=False), "stream")]
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        life = Life(folder, schema, window)
        for events in stream:
            for what in data.draw(st.lists(st.sampled_from(WHAT), max_size=2), "what"):
                happen(life, what, data)
            if data.draw(st.sampled_from([True, False, False]), "killed"):
                life.kill(events)
            else:
                life.apply(events)


def happen(life: Life, what: str, data: st.DataObject) -> None:
    acts = {"lose": life.lose_arrays, "damage": life.damage_arrays, "fork": life.fork}
    acts |= {"adopt": life.adopt, "deploy": life.deploy, "compact": life.compact}
    if what in acts:
        acts[what]()
    elif what == "forget":
        life.forget(data.draw(st.integers(0, 4), "id"))


LIVES = GraphSchema(features={"x": 2}, ttl=10, vertex_ttl=30, tombstones=20)
FIRST: list[list[Event]] = [
    [edge(1, 2, time=0), edge(2, 3, time=4), edge(7, 8, time=4)],
    [delete_vertex(7, time=5), edge(3, 4, time=9)],
]
LATE: list[Event] = [vertex(7, time=4), edge(5, 6, time=2)]


@pytest.mark.parametrize("history", [False, True])
def test_a_fork_of_a_fork_keeps_lifetimes_and_tombstones(tmp_path: Path, history: bool) -> None:
    life = Life(tmp_path, LIVES)
    for events in FIRST:
        life.apply(events)
    for n in (1, 2):
        life.fork()
        life.apply([edge(2, 3, time=9 + n), *LATE])
        assert 7 not in life.oracle.vertices, "it was deleted later"
    life.apply([edge(9, 1, time=13)])
    assert (1, 2) not in life.oracle.edges(), "it expired by the watermark of the first store"
    life.apply([edge(9, 1, time=26)])
    assert life.oracle.edges() == [(9, 1)]


def test_what_was_forgotten_is_not_in_a_fork_and_a_fork_forgets(tmp_path: Path) -> None:
    """Numbers in fork.json are not ids."""
    life = Life(tmp_path, LIVES)
    for events in FIRST:
        life.apply(events)
    life.forget(7)
    for _ in range(2):
        life.fork()
        life.apply([edge(1, 2, time=9)])
        life.forget(1)  # also the number of the batch that was forked, and of entries
        life.apply([edge(3, 4, time=9)])
    life.apply([vertex(7, time=4)])
    assert 7 in life.oracle.vertices, "its delete is forgotten, too"


def test_a_deployed_model_is_used_by_a_query_that_takes_over(tmp_path: Path) -> None:
    life = Life(tmp_path, LIVES)
    for events in FIRST:
        life.apply(events)
    life.deploy()
    life.adopt()
    life.apply([edge(1, 4, time=9)])
    life.deploy()
    life.lose_arrays()
    life.apply(LATE)
    life.adopt()
    life.apply([edge(1, 4, time=29)])


@pytest.mark.parametrize("edges", ["simple", "multi"])
def test_sealed_arrays_are_used_and_damaged_ones_rebuilt_before_they_decide(
    tmp_path: Path, edges: Any
) -> None:
    schema = GraphSchema(edges=edges, features={"x": 2}, edge_features={"w": 1}, ttl=50, vertex_ttl=60)
    pipeline = InProcessPipeline(tmp_path, schema)
    batches = list(random_batches(schema, seed=3, n_batches=6, batch_size=40, n_vertices=20))
    for b, batch in enumerate(batches):
        assert pipeline.run(b, batch).metrics["refreshed"] == (b in (3, 5))
        assert pipeline.error(batches[: b + 1]) <= TOLERANCE
        if b < 5:
            pipeline.seal()
        if b in (2, 4):
            for file in pipeline.arrays.glob(f"{QUERY}/partition/0/*.array"):
                file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))
