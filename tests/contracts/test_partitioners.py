"""The contract of partitioners, for all that are registered, including one that is defined here."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, fields

import numpy as np
import pytest

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import EventBatch, edge
from d3gnn.kernel.compiled import inlined
from d3gnn.kernel.operators import Partition
from d3gnn.kernel.partitioners import (
    Partitioner,
    Placement,
    Settings,
    make_partitioner,
    partitioner,
    partitioners,
)
from d3gnn.nn import GraphSAGE
from d3gnn.testing import OracleChecker, random_batches
from d3gnn.types import Ints32

SCHEMA = GraphSchema(features={"x": 2}, missing="hash")


@dataclass(frozen=True)
class RoundRobin(Partitioner):
    """The next part for each edge; `first` is the part of the first one."""

    first: float = 0.0
    name = "round-robin"

    @staticmethod
    @inlined
    def choose(
        u: int, v: int, hash_u: np.uint64, hash_v: np.uint64, placement: Placement, settings: Settings
    ) -> int:
        edges = 0
        for load in placement.load:
            edges += load
        return (edges + int(settings[0])) % len(placement.load)


every = pytest.mark.parametrize("which", partitioners(), ids=lambda p: p.name)


def chosen(which: Partitioner, parts: int, batch_size: int, delete_vertex: float) -> Ints32:
    """The parts of a stream's events, from the log."""
    partition = Partition(SCHEMA, parts, which)
    stream = random_batches(SCHEMA, 1, 10, 300, n_vertices=200, delete_vertex=delete_vertex, late=0, bad=0)
    whole = EventBatch.concat(stream)
    entries = [
        partition.process(whole.take(slice(begin, begin + batch_size)), 1).entry
        for begin in range(0, len(whole), batch_size)
    ]
    return np.concatenate([entry.part for entry in entries])


def test_names_are_unique() -> None:
    known = partitioners()
    assert len(known) >= 3
    assert len({p.name for p in known}) == len({p.choose for p in known}) == len(known)


@every
def test_it_is_created_by_name_and_from_its_settings(which: Partitioner) -> None:
    assert partitioner(which.name) == which
    assert make_partitioner(which.name, **asdict(which)) == which
    assert pickle.loads(pickle.dumps(which)) == which
    assert hash(which) == hash(make_partitioner(which.name))
    assert type(which).__doc__
    assert which.settings == tuple(asdict(which).values())


@every
def test_it_cannot_be_changed(which: Partitioner) -> None:
    for field in fields(which):
        with pytest.raises(FrozenInstanceError):
            setattr(which, field.name, 1.0)


@every
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_the_same_batches_get_the_same_parts(which: Partitioner, parts: int) -> None:
    expected = chosen(which, parts, 70, delete_vertex=0.01)
    assert set(expected.tolist()) == {-1, *range(parts)}
    assert (chosen(which, parts, 70, delete_vertex=0.01) == expected).all()


@every
def test_batch_boundaries_do_not_matter_if_no_vertex_is_deleted(which: Partitioner) -> None:
    """The edges of deleted vertices are freed between batches, and count as load until then."""
    if which.offline:
        pytest.skip("it plans its first batch")
    expected = chosen(which, 3, 3000, delete_vertex=0)
    assert (chosen(which, 3, 7, delete_vertex=0) == expected).all()


@every
def test_no_part_holds_much_more_than_its_share(which: Partitioner) -> None:
    rng = np.random.default_rng(2)
    src, dst = (2000 * rng.random((2, 20_000)) ** 2).astype(np.int64)
    partition = Partition(GraphSchema(edges="append", features={"x": 1}, missing="hash"), 8, which)
    load = np.bincount(partition.process(EventBatch.edges(src, dst), 1).entry.part, minlength=8)
    assert load.max() < 1.25 * load.mean()
    assert 1 <= partition.replication_factor <= 8


@every
@pytest.mark.parametrize("edges", ["simple", "multi"])
def test_streaming_equals_the_oracle(which: Partitioner, edges: str) -> None:
    schema = GraphSchema(edges=edges, directed=False, features={"x": 3}, missing="hash")  # type: ignore[arg-type]
    checker = OracleChecker(
        LocalEngine(GraphSAGE(3, 4, 2, 2, seed=1), parts=4, partitioner=which, schema=schema)
    )
    for batch in random_batches(schema, seed=6, n_batches=8, batch_size=50, n_vertices=25):
        checker.apply(batch)
    checker.refresh()


@pytest.mark.parametrize("first", [0, 2])
def test_a_new_partitioner_is_one_class(first: int) -> None:
    """An engine uses the partitioner of this file, by name and with settings, and stays exact."""
    which = make_partitioner("round-robin", first=first) if first else "round-robin"
    checker = OracleChecker(
        LocalEngine(GraphSAGE(2, 4, 2, 2, seed=1), parts=3, partitioner=which, schema=SCHEMA)
    )
    ring = EventBatch.of([edge(i, i + 1, time=i) for i in range(30)])
    checker.apply(ring)
    parts = Partition(SCHEMA, 3, which).process(ring, 1).entry.part
    assert parts.tolist() == [(i + first) % 3 for i in range(30)]
    assert checker.engine.partition.partitioner == RoundRobin(first)
    assert checker.engine._coordinator._log.entries[0].part.tolist() == parts.tolist()
    for batch in random_batches(SCHEMA, seed=7, n_batches=6, batch_size=40, n_vertices=20):
        checker.apply(batch)
    checker.refresh()


def test_partitioners_of_one_process_are_independent() -> None:
    """Each has compiled code of its own."""
    events = EventBatch.of([edge(i, i + 1, time=i) for i in range(12)])
    chosen_by = {
        name: Partition(SCHEMA, 3, name).process(events, 1).entry.part.tolist()
        for name in ("random", "round-robin", "hdrf", "random")
    }
    assert chosen_by["round-robin"] == [0, 1, 2] * 4
    assert len({str(parts) for parts in chosen_by.values()}) == 3


def test_bad_partitioners_are_refused() -> None:
    with pytest.raises(TypeError, match=r"partitioner Nameless: define a class attribute 'name'"):
        type("Nameless", (Partitioner,), {"choose": RoundRobin.choose})
    with pytest.raises(TypeError, match=r"partitioner Choiceless: define 'choose', decorated with"):
        type("Choiceless", (Partitioner,), {"name": "choiceless"})
    with pytest.raises(TypeError, match=r"partitioner Slow: define 'choose', decorated with"):
        type("Slow", (Partitioner,), {"name": "slow", "choose": staticmethod(lambda *_: 0)})
    with pytest.raises(TypeError, match=r"partitioner Again: the name 'hdrf' is taken by d3gnn"):
        type("Again", (Partitioner,), {"name": "hdrf", "choose": RoundRobin.choose})
    assert not {"choiceless", "slow"} & {p.name for p in partitioners()}
