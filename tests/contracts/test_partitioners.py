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


def chosen(which: Partitioner, parts: int, batch_size: int) -> Ints32:
    """The parts of a stream's events, as the log has them."""
    partition = Partition(SCHEMA, parts, which)
    whole = EventBatch.concat(
        random_batches(SCHEMA, seed=1, n_batches=10, batch_size=300, n_vertices=200, late=0, bad=0)
    )
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
def test_the_same_stream_gives_the_same_parts_whatever_the_batches(which: Partitioner, parts: int) -> None:
    expected = chosen(which, parts, batch_size=3000)
    assert set(expected.tolist()) == {-1, *range(parts)}
    for batch_size in (7, 3000):
        assert (chosen(which, parts, batch_size) == expected).all()


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
