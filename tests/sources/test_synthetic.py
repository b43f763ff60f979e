"""Synthetic streams: reproducible, of the given shape, with the given events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest

from d3gnn.events import Element, EventBatch, Op, Reason
from d3gnn.events.keys import IntKeys
from d3gnn.oracle import Oracle
from d3gnn.sources import SyntheticStream, rebatch
from d3gnn.sources.synthetic import Shape
from d3gnn.types import Ints

SHAPES: tuple[Shape, ...] = get_args(Shape)
# More edges than are made at a time.
MANY = 20_000


def everything(shape: Shape = "power-law", edges: int = 3000, seed: int = 0) -> SyntheticStream:
    return SyntheticStream(
        edges, seed=seed, shape=shape, deletes=0.2, vertex_deletes=0.01, feature_updates=0.1, bursts=0.3,
        bad=0.02, features=True, feature_width=3,
    )  # fmt: skip


def table_of(batches: Iterable[EventBatch]) -> pa.Table:
    return pa.concat_tables([batch.to_arrow() for batch in batches], promote_options="default")


def rows(batches: Iterable[EventBatch]) -> list[str]:
    """Every event as text, in which one NaN equals another."""
    return [repr(row) for row in table_of(batches).to_pylist()]


def ends(stream: SyntheticStream) -> tuple[Ints, Ints]:
    """Sources and destinations of a stream of edges alone."""
    batches = list(stream.batches(4096))
    src, dst = [b.src for b in batches], [b.dst for b in batches]
    return (
        np.concatenate([keys.values for keys in src if isinstance(keys, IntKeys)]),
        np.concatenate([keys.values for keys in dst if isinstance(keys, IntKeys)]),
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_a_seed_makes_the_same_events_for_all_batch_sizes(shape: Shape) -> None:
    stream = everything(shape, edges=MANY)
    first = rows(stream.batches(1000))
    assert len(first) == len(stream)
    assert first == rows(everything(shape, edges=MANY).batches(7001))
    assert first != rows(everything(shape, edges=MANY, seed=1).batches(1000))


def test_batches_have_the_given_size_except_the_last() -> None:
    sizes = [len(batch) for batch in everything().batches(700)]
    assert set(sizes[:-1]) == {700}
    assert 0 < sizes[-1] <= 700


@pytest.mark.parametrize("shape", SHAPES)
def test_every_vertex_comes_and_none_has_an_edge_to_itself(shape: Shape) -> None:
    stream = SyntheticStream(MANY, vertices=5000, shape=shape)
    src, dst = ends(stream)
    assert len(src) == MANY
    assert (src != dst).all()
    assert np.array_equal(np.unique(np.append(src, dst)), np.arange(5000))


@pytest.mark.parametrize(("vertices", "max_degree"), [(0, 16), (0, 2), (MANY // 4, 8), (MANY + 1, 3)])
def test_capped_degrees_hold(vertices: int, max_degree: int) -> None:
    stream = SyntheticStream(MANY, vertices=vertices, shape="capped", max_degree=max_degree, bursts=0.5)
    src, dst = ends(stream)
    assert np.bincount(src).max() <= max_degree
    assert np.bincount(dst).max() <= max_degree


def test_capped_degrees_do_not_depend_on_the_length() -> None:
    def degrees(n: int) -> list[float]:
        counts = np.bincount(ends(SyntheticStream(n, shape="capped"))[1], minlength=n // 4)
        return [float(np.mean(counts == degree)) for degree in range(8)]

    np.testing.assert_allclose(degrees(5000), degrees(50_000), atol=0.03)


def test_hubs_take_part_in_half_of_the_edges() -> None:
    src, dst = ends(SyntheticStream(MANY, vertices=4000, shape="hubs", hubs=3))
    assert np.mean((src < 3) | (dst < 3)) == pytest.approx(0.5, abs=0.05)


def test_most_edges_stay_in_their_community() -> None:
    stream = SyntheticStream(MANY, shape="communities", communities=5)
    src, dst = ends(stream)
    assert np.mean(stream.community(src) == stream.community(dst)) > 0.8


def test_power_law_has_a_long_tail() -> None:
    counts = np.bincount(ends(SyntheticStream(MANY, vertices=2000))[1], minlength=2000)
    assert counts.max() > 20 * np.median(counts)


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_deletes_hit(shape: Shape, undirected: bool) -> None:
    stream = SyntheticStream(5000, shape=shape, deletes=0.4, undirected=undirected)
    oracle, deletes = Oracle(stream.schema), Counter[Reason]()
    for batch in stream.batches(500):
        for op, reason in zip(batch.op, oracle.apply(batch), strict=True):
            deletes[reason] += int(op == Op.DELETE)
    assert deletes.total() == 2000
    assert deletes[Reason.APPLIED] > 1950


def test_counts_are_as_given() -> None:
    stream = everything()
    counts = Counter(
        (int(element), int(op))
        for batch in stream.batches(500)
        for element, op in zip(batch.element, batch.op, strict=True)
    )
    bad = 60
    assert counts[Element.VERTEX, Op.CREATE] == stream.vertices
    assert counts[Element.EDGE, Op.CREATE] in range(3000, 3000 + bad)
    assert counts[Element.EDGE, Op.DELETE] in range(600, 600 + bad)
    assert counts[Element.VERTEX, Op.DELETE] in range(30, 30 + bad)
    assert counts[Element.FEATURE, Op.CREATE] in range(300, 300 + bad)


def test_bad_events_have_every_reason_and_no_other_event_is_bad() -> None:
    stream = replace(everything(), deletes=0.0, vertex_deletes=0.0)
    oracle, reasons = Oracle(stream.schema), Counter[str]()
    for batch in stream.batches(500):
        reasons.update(reason.name for reason in oracle.apply(batch) if reason.is_dead)
    assert reasons.total() == 60
    assert set(reasons) == {
        "NULL_ID", "NULL_TIME", "UNKNOWN_OPERATION", "UNKNOWN_ELEMENT", "UNKNOWN_FEATURE", "WRONG_WIDTH",
        "NOT_FINITE", "MISSING_VALUE", "NO_SUCH_EDGE", "NO_SUCH_VERTEX",
    }  # fmt: skip


def test_times_rise_except_for_late_events() -> None:
    (batch,) = SyntheticStream(5000, late=0.02).batches(5000)
    behind = batch.time < np.maximum.accumulate(batch.time)
    assert 0.01 < np.mean(behind) < 0.03
    (punctual,) = SyntheticStream(5000, late=0.0).batches(5000)
    assert (np.diff(punctual.time) >= 0).all()


def test_bursts_bunch_in_time() -> None:
    (calm,) = SyntheticStream(10_000, late=0.0).batches(10_000)
    (bursty,) = SyntheticStream(10_000, late=0.0, bursts=0.5).batches(10_000)

    def spread(batch: EventBatch) -> float:
        gaps = np.diff(batch.time).astype(float)
        return float(gaps.std() / gaps.mean())

    assert spread(bursty) > 1.3 * spread(calm)


def test_edges_alone_carry_no_values() -> None:
    (batch,) = SyntheticStream(100).batches(100)
    assert batch.values is None
    assert batch.feature is None
    assert isinstance(batch.src, IntKeys)
    assert batch.src.valid is None
    assert dict(SyntheticStream(100).schema.features) == {}


@pytest.mark.parametrize("edges", [1, 2, 3, 10])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_smallest_streams_work(shape: Shape, edges: int) -> None:
    stream = everything(shape, edges=edges)
    assert sum(len(batch) for batch in stream.batches(2)) == len(stream)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"edges": 0}, "edges=0: must be at least 1"),
        ({"shape": "ring"}, "choose one of power-law, communities, hubs, capped"),
        ({"deletes": 1.5}, "deletes=1.5: must be a share"),
        ({"bad": float("nan")}, "bad=nan: must be a share"),
        ({"vertices": 1}, "from 2 to 11"),
        ({"vertices": 12}, "from 2 to 11"),
        ({"seed": -1}, "seed=-1"),
        ({"feature_width": 0}, "feature_width=0"),
        ({"max_degree": 1}, "max_degree=1"),
        ({"shape": "capped", "max_degree": 2, "vertices": 9}, "at least 10 vertices"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SyntheticStream(**({"edges": 10} | arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 999, 10_000])
def test_rebatch_keeps_every_column(size: int) -> None:
    stream = everything()
    table = table_of(stream.batches(1000))
    pieces = [EventBatch.from_arrow(table.slice(i, 1700)) for i in range(0, len(table), 1700)]
    assert rows(rebatch(pieces, size)) == rows(stream.batches(1000))


def test_rebatch_needs_a_size() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        next(rebatch([], 0))


def test_rebatch_keeps_strings_and_original_rows() -> None:
    table = pa.table({"src": ["a", "b", "c"], "dst": ["b", "c", None], "op": ["create", "zap", "delete"]})
    batches = list(rebatch([EventBatch.from_arrow(table)], 2))
    assert [batch.src.to_list() for batch in batches] == [["a", "b"], ["c"]]
    assert batches[0].row(1).op == "zap"
