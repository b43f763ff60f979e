"""What every partitioner promises; those that are added are found here by themselves."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, asdict, fields

import numpy as np
import pytest

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import EventBatch
from d3gnn.kernel.operators import Partition
from d3gnn.kernel.partitioners import Partitioner, make_partitioner, partitioner, partitioners
from d3gnn.nn import GraphSAGE
from d3gnn.testing import Witness, random_batches
from d3gnn.types import Ints32

SCHEMA = GraphSchema(features={"x": 2})

every = pytest.mark.parametrize("which", partitioners(), ids=lambda p: p.name)


def chosen(which: Partitioner, parts: int, batch_size: int, delete_vertex: float) -> Ints32:
    """The parts of a stream's events, as the log has them."""
    partition = Partition(SCHEMA, parts, which)
    stream = random_batches(SCHEMA, 1, 10, 300, n_vertices=200, delete_vertex=delete_vertex, late=0, bad=0)
    whole = EventBatch.concat(stream)
    entries = [
        partition.process(whole.take(slice(begin, begin + batch_size)), 1).entry
        for begin in range(0, len(whole), batch_size)
    ]
    return np.concatenate([entry.part for entry in entries])


def test_names_and_codes_are_their_own() -> None:
    known = partitioners()
    assert len(known) >= 2
    assert len({p.name for p in known}) == len({p.code for p in known}) == len(known)


@every
def test_it_is_made_by_name_and_from_its_settings(which: Partitioner) -> None:
    assert partitioner(which.name) == which
    assert make_partitioner(which.name, **asdict(which)) == which
    assert pickle.loads(pickle.dumps(which)) == which
    assert hash(which) == hash(make_partitioner(which.name))
    assert type(which).__doc__
    assert len(which.weights) == 2


@every
def test_it_cannot_be_changed(which: Partitioner) -> None:
    for field in fields(which):
        with pytest.raises(FrozenInstanceError):
            setattr(which, field.name, 1.0)


@every
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_the_same_batches_give_the_same_parts(which: Partitioner, parts: int) -> None:
    expected = chosen(which, parts, 70, delete_vertex=0.01)
    assert set(expected.tolist()) == {-1, *range(parts)}
    assert (chosen(which, parts, 70, delete_vertex=0.01) == expected).all()


@every
def test_where_batches_end_does_not_matter_as_long_as_no_vertex_goes(which: Partitioner) -> None:
    """What a deleted vertex leaves behind is cleared away between batches, and counts until then."""
    expected = chosen(which, 3, 3000, delete_vertex=0)
    assert (chosen(which, 3, 7, delete_vertex=0) == expected).all()


@every
def test_no_part_holds_much_more_than_its_share(which: Partitioner) -> None:
    rng = np.random.default_rng(2)
    src, dst = (2000 * rng.random((2, 20_000)) ** 2).astype(np.int64)
    partition = Partition(GraphSchema(edges="append", features={"x": 1}), 8, which)
    load = np.bincount(partition.process(EventBatch.edges(src, dst), 1).entry.part, minlength=8)
    assert load.max() < 1.25 * load.mean()
    assert 1 <= partition.replication_factor <= 8


@every
@pytest.mark.parametrize("edges", ["simple", "multi"])
def test_streaming_equals_the_oracle(which: Partitioner, edges: str) -> None:
    schema = GraphSchema(edges=edges, directed=False, features={"x": 3})  # type: ignore[arg-type]
    witness = Witness(LocalEngine(GraphSAGE([3, 4, 2], seed=1), 4, which, schema))
    for batch in random_batches(schema, seed=6, n_batches=8, batch_size=50, n_vertices=25):
        witness.apply(batch)
    witness.refresh()
