"""Windows delay what is sent, each vertex on its own, and lose nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import delete_edge, delete_vertex, edge, feature, vertex
from d3gnn.kernel.arrays import MappedSpace, Space
from d3gnn.kernel.operators.masters import VertexState
from d3gnn.kernel.touched import VERTEX, clear, make_touched, size, touch_all
from d3gnn.kernel.windows import (
    AdaptiveSession,
    Count,
    Session,
    Tumbling,
    Window,
    make_window,
    windows,
)
from d3gnn.kernel.windows.pending import COUNTERS, Pending
from d3gnn.kernel.windows.sketch import COLUMNS, ROWS, SKETCH_BYTES, count_and_rate, fading
from d3gnn.nn import GAT, GCN, GNN, SAGE, GraphSAGE, Layer
from d3gnn.testing import Witness, event_batches, random_batches, schemas

MS = 1000
GRAIN = 10 * MS
EACH: list[Window] = [
    Tumbling(0.05),
    Session(0.03),
    Session(0.03, max_delay=0.1),
    AdaptiveSession(shortest=0.01, widest=0.2, period=0.1),
    Count(3),
    Count(2, max_delay=0.05),
]
every = pytest.mark.parametrize("window", EACH, ids=repr)


class Clockwork:
    """A window over a few vertices, with a clock that is set by hand."""

    def __init__(self, window: Window, space: Space | None = None) -> None:
        self.space = Space() if space is None else space
        self.pending = Pending(self.space, window, self.space.counters[:COUNTERS])
        self.pending.reserve(100)
        self.touched = make_touched(100)

    def at(
        self, milliseconds: float, *vertices: int, drain: bool = False, first: Sequence[int] = ()
    ) -> list[int]:
        """Touch vertices at a time; those that are sent then."""
        n = len(vertices)
        touch_all(self.touched, np.array(vertices, np.int32), np.zeros(n, np.int64), np.zeros(n, np.int64))
        at_once = np.zeros(100, np.uint8)
        at_once[list(first)] = 1
        firsts = len(set(first) & set(vertices))
        due = self.pending.hold(self.touched, round(milliseconds * MS), drain, at_once, firsts)
        assert due == size(self.touched)
        sent = self.touched[1 : size(self.touched) + 1, VERTEX].tolist()
        assert len(set(sent)) == len(sent)
        clear(self.touched)
        return sorted(sent)


def test_tumbling_sends_an_interval_after_the_first_touch() -> None:
    clock = Clockwork(Tumbling(0.1))
    assert clock.at(1000, 1) == []
    assert clock.at(1050, 1, 2) == []
    assert clock.at(1090) == []
    assert clock.at(1100) == [1], "touching it again has not postponed it, and 2 has its own time"
    assert clock.at(1140) == []
    assert clock.at(1150, 1) == [2]
    assert clock.at(1250) == [1]
    assert clock.pending.next_deadline() is None


def test_session_is_postponed_by_every_touch_but_not_for_ever() -> None:
    clock = Clockwork(Session(0.1, max_delay=0.25))
    assert clock.at(1000, 1, 2) == []
    assert clock.at(1080, 1) == []
    assert clock.at(1100) == [2], "which nothing has touched again"
    assert clock.at(1160, 1) == []
    assert clock.at(1180) == []
    assert clock.at(1240, 1) == []
    assert clock.at(1250) == [1], "0.25 s after its first touch"
    assert clock.at(2000) == []
    assert Session(0.1).longest == pytest.approx(1.0)


def test_count_sends_with_the_nth_touch_or_in_the_end() -> None:
    clock = Clockwork(Count(3, max_delay=0.5))
    assert clock.at(1000, 1, 1, 2) == []
    assert clock.at(1001, 1) == [1]
    assert clock.at(1002, 1, 1, 1, 1) == [1]
    assert clock.at(1020, 1) == []
    assert clock.at(1499) == []
    assert clock.at(1500) == [2], "its tail"
    assert clock.at(1600, drain=True) == [1]


def test_adaptive_waits_less_for_a_busy_vertex_and_follows_a_change() -> None:
    clock = Clockwork(AdaptiveSession(shortest=0.01, widest=2.0, patience=2.0, period=1.0, weight=0.5))

    def gap(at: float, v: int) -> float:
        """How long after a touch a vertex is sent, in milliseconds."""
        clock.at(at, drain=True)
        assert clock.at(at, v) == []
        for later in range(10, 5000, 10):
            if v in clock.at(at + later):
                return later
        raise AssertionError("it was never sent")

    assert gap(1000, 1) == 2000, "nothing is known of it: the widest gap"
    for second in range(10, 20):
        for tenth in range(10):
            clock.at(second * 1000 + tenth * 100, *([1] if tenth % 2 else [1, 2] if tenth == 0 else [1]))
    busy, quiet = gap(20_000, 1), gap(25_000, 2)
    assert busy == pytest.approx(200, abs=50), "ten touches a second: two tenths of one"
    assert quiet == 2000, "one touch a second: two seconds"
    slower = gap(28_000, 1)
    assert slower > 3 * busy, "it has become quiet"
    for step in range(30):
        clock.at(40_000 + step * 100, 2)
    assert gap(43_000, 2) < 500, "it has become busy"


def test_slow_vertices_are_not_forgotten() -> None:
    window = AdaptiveSession(
        shortest=0.01, widest=100.0, patience=1.0, period=1.0, weight=0.1, max_delay=100.0
    )
    clock = Clockwork(window)
    for second in range(0, 200, 4):  # less than one in a period: as an integer that is none
        clock.at(1000 * (second + 1), 7, drain=True)
    clock.at(200_500, 7)
    due = clock.pending.next_deadline()
    assert due is not None
    assert 2.0 < (due - 200_500 * MS) / 1e6 < 8.0


def test_the_sketch_knows_most_rates_and_takes_nobody_for_slower() -> None:
    weight, vertices = 0.3, 4000
    fades, sketch = fading(weight), np.zeros((ROWS, COLUMNS), np.int32)
    mean, count, last = np.zeros(vertices), np.zeros(vertices), np.zeros(vertices, np.int64)
    rng, over = np.random.default_rng(3), []
    shares = 1.0 / np.arange(1, vertices + 1) ** 0.8
    for period in [*range(30), 200, *range(70_000, 70_010)]:  # with long pauses, and past 16 bits
        for v in rng.choice(vertices, 300, p=shares / shares.sum()).tolist():
            if passed := period - last[v]:
                mean[v] = (mean[v] + weight * (count[v] - mean[v])) * (1 - weight) ** (passed - 1)
                count[v], last[v] = 0, period
            count[v] += 1
            expected = max(mean[v], mean[v] + weight * (count[v] - mean[v]))
            over.append(count_and_rate(sketch, v, 1, period, fades) / expected)
    assert min(over) > 1 - 1e-5
    assert np.mean(np.array(over) < 1 + 1e-5) > 0.8


def test_the_sketch_has_a_fixed_size() -> None:
    clock = Clockwork(AdaptiveSession())
    before = clock.pending._sketch.data.nbytes
    for i in range(50):
        clock.at(10 * i, *range(100))
    assert clock.pending._sketch.data.nbytes == before
    assert SKETCH_BYTES == before <= 2**19


@every
def test_a_first_value_does_not_wait(window: Window) -> None:
    clock = Clockwork(window)
    assert clock.at(1000, 1, 2, first=[2]) == [2]
    assert clock.at(1001, 2) == []
    assert clock.at(1002, 1, 2, first=[1]) == [1, 2] if window == Count(2, max_delay=0.05) else [1]


@every
def test_what_is_cancelled_is_not_sent(window: Window) -> None:
    clock = Clockwork(window)
    clock.at(1000, 1, 2)
    clock.pending.cancel(np.array([1, 5], np.int32))
    assert len(clock.pending) == 1
    assert clock.at(100_000) == [2]
    assert clock.at(100_001, drain=True) == []
    clock.at(200_000, 1)
    assert clock.at(300_000) == [1], "it may be touched again"


@every
def test_nothing_waits_longer_than_it_may(window: Window) -> None:
    rng = np.random.default_rng(1)
    clock = Clockwork(window)
    since: dict[int, float] = {}
    now = 1000.0
    for _ in range(3000):
        now += float(rng.integers(1, 8))
        some = rng.integers(0, 20, rng.integers(0, 4)).tolist()
        sent = clock.at(now, *some)
        for v in some:
            since.setdefault(v, now)
        for v in sent:
            # A batch comes every few milliseconds, and looks then.
            assert now - since.pop(v) <= window.longest * 1000 + 8
        assert len(clock.pending) == len(since)
    assert since.keys() == set(clock.at(now, drain=True))


@settings(max_examples=150)
@given(data=st.data())
def test_each_is_sent_when_a_plain_model_says(data: st.DataObject) -> None:
    """Tumbling and session windows against dictionaries; some are new and do not wait, some are cancelled."""
    session = data.draw(st.booleans())
    wait, longest = 50_000, 50_000 if not session else 170_000
    clock = Clockwork(Session(0.05, max_delay=0.17) if session else Tumbling(0.05))
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    now = 7
    old, new = (st.lists(st.integers(low, low + 5), max_size=4) for low in (0, 6))
    steps = st.lists(
        st.tuples(st.integers(0, 90_000), old, new, st.sets(st.integers(0, 5), max_size=1)), max_size=30
    )
    for step, some, fresh, cancelled in data.draw(steps):
        now += step
        for v in some:
            first.setdefault(v, now)
            last[v] = now
        due = {}
        for v in first:
            wanted = (last[v] if session else first[v]) + wait
            bound = (first[v] + longest) // GRAIN * GRAIN
            due[v] = min(-(-wanted // GRAIN) * GRAIN, bound)
        expected = sorted(v for v in due if due[v] <= now)
        assert clock.at(now / MS, *some, *fresh, first=fresh) == sorted({*expected, *fresh})
        clock.pending.cancel(np.array(sorted(cancelled), np.int32))
        for v in {*expected, *cancelled} & first.keys():
            del first[v], last[v]
        assert len(clock.pending) == len(first)
        assert clock.pending.next_deadline() == min((due[v] for v in first), default=None)
        assert clock.pending.oldest() == min(first.values(), default=None)


def test_a_clock_is_exact_to_the_microsecond() -> None:
    clock = Clockwork(Tumbling(0.05))
    clock.at(1.001, 0)  # 1000.9999999999999 microseconds, as a float
    assert clock.pending.oldest() == 1001


def test_deadlines_may_be_coalesced_more_or_not_at_all() -> None:
    coarse, fine = Clockwork(Tumbling(0.05, coalesce=0.1)), Clockwork(Tumbling(0.05, coalesce=0))
    for clock in (coarse, fine):
        assert clock.at(1000.001, 1) == []
        assert clock.at(1003, 2) == []
    assert fine.at(1050) == []
    assert fine.at(1050.001) == [1]
    assert fine.at(1053) == [2]
    # The next multiple of 100 ms would be too late: then the very end of the wait counts.
    assert coarse.at(1050.001) == [1]
    assert coarse.at(1053) == [2]
    merged = Clockwork(Session(0.03, max_delay=1.0, coalesce=0.1))
    assert merged.at(1000, 1) == []
    assert merged.at(1060, 2) == []
    assert merged.at(1099) == []
    assert merged.at(1100) == [1, 2], "at once"


@pytest.mark.parametrize(
    ("window", "deadline"),
    [
        (Tumbling(2.01), 2_010_000),
        (Tumbling(8.2), 8_200_000),
        (Tumbling(8.2, coalesce=0.82), 8_200_000),
        (Tumbling(4.1, coalesce=4.1), 4_100_000),
        (Session(3.0, max_delay=2.01, coalesce=0.67), 2_010_000),
        (Session(0.09, max_delay=0.09), 90_000),
    ],
    ids=repr,
)
def test_seconds_are_rounded_to_microseconds(window: Window, deadline: int) -> None:
    """As floats, many of them are a little less; cut off, that would have cost a whole step."""
    clock = Clockwork(window)
    clock.at(0, 1)
    assert clock.pending.next_deadline() == deadline
    assert clock.at(deadline / MS - 0.001) == []
    assert clock.at(deadline / MS) == [1]


def test_keys_that_are_no_longer_needed_take_no_room() -> None:
    """Every touch of a vertex that becomes busier moves its deadline forward, and leaves a key behind."""
    window = AdaptiveSession(shortest=0.001, widest=3600.0, period=3600.0, max_delay=36_000.0)
    clock, everybody, quiet = Clockwork(window), list(range(100)), 99
    for step in range(400):
        assert clock.at(10 * step, *(everybody if step == 0 else everybody[:quiet])) == []
    assert len(clock.pending._heap.data) <= 1024, "not 40,000"
    clock.pending.cancel(np.arange(50, dtype=np.int32))
    due = clock.pending.next_deadline()
    assert due is not None
    assert clock.at(due / MS - 0.001) == []
    sent = [v for later in range(100) for v in clock.at(due / MS + 1000 * later)]
    assert sorted(sent) == everybody[50:quiet]
    assert clock.at(3_600_000 - 0.001) == []
    assert clock.at(3_600_000) == [quiet], "whose key was there all the time"


def test_what_does_not_wait_is_not_merged() -> None:
    clock = Clockwork(Tumbling(1.0))
    clock.at(1000, 7)
    assert clock.at(1001, 8, 8, first=[8]) == [8], "passed by, as nothing else was touched"
    assert clock.at(1002, 9, 9, 7, 7, first=[9]) == [9]
    assert clock.pending.merged == 2


def test_looking_for_the_oldest_costs_no_look_at_all_that_wait() -> None:
    clock = Clockwork(Tumbling(10.0))
    assert clock.pending.oldest() is None
    for i in range(3000):
        clock.at(1000 + i, i % 100, drain=i % 3 == 0)
    # Two were touched since the last drain, and what was sent is forgotten.
    assert clock.pending.oldest() == (1000 + 2998) * MS
    assert len(clock.pending._crowds.data) < 1000


def test_what_waits_outlives_the_process(tmp_path: Path) -> None:
    one = Clockwork(Session(0.1), MappedSpace(tmp_path))
    one.at(1000, 1, 2)
    other = Clockwork(Session(0.1), MappedSpace(tmp_path))
    assert other.at(1050, 2) == []
    assert other.at(1100) == [1]
    assert other.at(1150) == [2]


@pytest.mark.parametrize("window", [Tumbling(1.0), AdaptiveSession()], ids=repr)
def test_a_window_finds_room_again_after_arrays_were_made_anew_without_it(
    tmp_path: Path, window: Window
) -> None:
    def open_state(space: Space, window: Window | None) -> VertexState:
        pending = None if window is None else Pending(space, window, space.counters[32 : 32 + COUNTERS])
        return VertexState(space, 2, 0, 0, pending)

    mine, theirs = MappedSpace(tmp_path), MappedSpace(tmp_path)
    with mine.locked():
        mine.reset()
        state = open_state(mine, window)
        state.reserve_rows(1000)
    with theirs.locked():
        theirs.reset()
        open_state(theirs, None).reserve_rows(1000)
    with mine.locked():
        mine.reset()
        state.follow()
        assert state.pending is not None
        assert len(state.pending.rows.data) >= len(state.rows.slot) >= 1000
        assert len(state.pending._sketch.data) == (ROWS if isinstance(window, AdaptiveSession) else 0)


#: Settings that a window cannot do without.
NEEDED = [
    ("tumbling", "interval"),
    ("session", "gap"),
    ("count", "n"),
    *(("adaptive", setting) for setting in ("shortest", "widest", "patience", "period", "weight")),
]


@pytest.mark.parametrize(
    ("name", "settings_"),
    [
        ("tumbling", {"interval": 0}),
        ("tumbling", {"interval": "1"}),
        ("tumbling", {"interval": float("inf")}),
        ("tumbling", {"interval": float("nan")}),
        ("tumbling", {"interval": 1e-7}),
        ("tumbling", {"interval": 1, "coalesce": 1e13}),
        ("session", {"gap": 1e12}),
        ("session", {"gap": -1}),
        ("session", {"gap": 1, "max_delay": 0}),
        ("count", {"n": 0}),
        ("count", {"n": 2.5}),
        ("adaptive", {"shortest": 2, "widest": 1}),
        ("adaptive", {"weight": 0}),
        ("adaptive", {"weight": "0.3"}),
        *((name, {setting: None}) for name, setting in NEEDED),
        ("count", {"n": 3, "max_delay": None}),
        ("count", {"n": 10**400}),
        ("tumbling", {"interval": 1, "coalesce": -1}),
        ("tumbling", {"interval": 1, "coalesce": None}),
        ("hopping", {}),
    ],
)
def test_windows_say_what_is_wrong_with_them(name: str, settings_: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"please|known are"):
        make_window(name, **settings_)


@pytest.mark.parametrize("window", [0.5, "tumbling", "tumbling:0.5", (Tumbling(1.0),), (Tumbling(1.0), 0.5)])
def test_engines_say_what_a_window_is(window: Any) -> None:
    with pytest.raises(
        ValueError, match=r"a window of d3gnn\.windows, as Tumbling\(0\.5\), a pair of them, or None"
    ):
        LocalEngine(GraphSAGE([2, 2]), window=window)


def test_settings_of_windows_are_plain_numbers(tmp_path: Path) -> None:
    window = Session(np.float64(0.5), np.float32(2)), Count(np.int64(3))  # type: ignore[arg-type]
    assert repr(window) == "(Session(gap=0.5, max_delay=2.0), Count(n=3, max_delay=10.0))"
    LocalEngine(GraphSAGE([2, 2]), window=window).save(tmp_path)
    assert LocalEngine.load(tmp_path).windows == (Session(0.5, 2), Count(3))
    assert Tumbling(1).to_dict() == Tumbling(1.0).to_dict()


def test_windows_are_made_again_from_what_they_say() -> None:
    for kind in windows():
        assert kind.__doc__
    for window in EACH:
        assert make_window(**window.to_dict()) == window


# ------------------------------------------------------------------ in an engine


@settings(max_examples=120)
@given(data=st.data())
def test_a_drained_engine_equals_the_oracle(data: st.DataObject) -> None:
    schema = data.draw(schemas(width=3), "schema")
    batches = data.draw(event_batches(schema, data.draw(st.sampled_from(["int", "str"]), "ids")), "batches")
    model = GraphSAGE([3, *data.draw(st.sampled_from([[4], [2, 4], [4, 2, 3]]), "widths")], seed=1)
    some = st.sampled_from([*EACH, None])
    pair = data.draw(some, "reduce"), data.draw(some, "forward")
    engine = LocalEngine(model, data.draw(st.sampled_from([1, 2, 4]), "parts"), schema=schema, window=pair)
    witness = Witness(engine)
    now = 0
    for batch in batches:
        now += data.draw(st.sampled_from([0, 5 * MS, 30 * MS, 400 * MS]), "milliseconds")
        witness.apply(batch, clock=now)
        then = data.draw(st.sampled_from(["go on", "go on", "drain", "refresh"]), "then")
        if then == "drain":
            witness.drain(clock=now)
        elif then == "refresh":
            witness.refresh()
            assert not any(engine.pending().values())
    witness.drain(clock=now)


@every
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_longer_streams(window: Window, parts: int) -> None:
    schema = GraphSchema(edges="multi" if parts == 2 else "simple", features={"x": 3})
    engine = LocalEngine(GraphSAGE([3, 8, 4], seed=2), parts, schema=schema, window=window)
    witness = Witness(engine)
    waited = 0
    for i, batch in enumerate(random_batches(schema, seed=5, n_batches=40, batch_size=60, n_vertices=40)):
        witness.apply(batch, clock=i * 10 * MS)
        waited = max(waited, sum(engine.pending().values()))
        if i % 17 == 16:
            witness.drain(clock=i * 10 * MS)
    assert waited > 0, "nothing ever waited"
    witness.drain(clock=400 * MS)


def test_time_alone_sends_what_is_due() -> None:
    engine = LocalEngine(GraphSAGE([3, 4, 4], seed=1), window=Tumbling(0.1))
    witness = Witness(engine)
    witness.apply([edge("a", "b", time=1), edge("b", "c", time=1)], clock=1000 * MS)
    now = 1000 * MS
    rounds = 0
    while (due := engine.next_deadline()) is not None:
        assert due > now
        now = due
        witness.take(engine.apply([], clock=now))
        rounds += 1
    assert rounds <= 8, "two layers, each with two windows"
    witness.check()


def test_windows_merge_cascades() -> None:
    plain = LocalEngine(GraphSAGE([3, 4, 4], seed=1))
    windowed = LocalEngine(GraphSAGE([3, 4, 4], seed=1), window=Tumbling(0.2))
    rows = []
    for engine in (plain, windowed):
        engine.apply([edge("hub", f"leaf {i}", time=0) for i in range(50)], clock=0)
        rows.append(0)
        for i in range(40):
            rows[-1] += len(engine.apply([edge(f"new {i}", "hub", time=i)], clock=(i + 1) * 10 * MS))
        rows[-1] += len(engine.drain(clock=500 * MS))
    np.testing.assert_allclose(
        windowed.embeddings(plain.ids()), plain.embeddings(plain.ids()), rtol=1e-5, atol=1e-6
    )
    assert rows[1] < rows[0] / 5


def test_an_engine_says_what_its_windows_do() -> None:
    engine = LocalEngine(GraphSAGE([3, 4], seed=1), 2, window=(Tumbling(1.0), None))
    engine.apply([edge("hub", "a", time=0), edge("b", "hub", time=0)], clock=1000 * MS)
    nothing = {"pending": 2, "oldest_ms": 0, "merged": 0, "forwards": 0}
    assert engine.window_metrics() == {"edge-1": nothing}, "of those that have a window"
    engine.apply([edge(f"new {i}", "hub", time=1) for i in range(5)], clock=1300 * MS)
    assert engine.pending() == {"edge-1": 3}, "the hub waits in both parts"
    said = {"pending": 3, "oldest_ms": 300, "merged": 4, "forwards": 0}
    assert engine.window_metrics() == {"edge-1": said}, "of seven edges"
    engine.drain(clock=1400 * MS)
    said |= {"pending": 0, "oldest_ms": 0, "forwards": 3}
    assert engine.window_metrics() == {"edge-1": said}


def test_a_deleted_vertex_takes_what_waits_for_it_along() -> None:
    witness = Witness(LocalEngine(GraphSAGE([3, 4], seed=1), 2, window=Tumbling(1.0)))
    witness.apply([edge("a", "b", time=1), edge("c", "b", time=1)], clock=0)
    witness.apply([edge("d", "b", time=2), feature("a", [1.0, 2.0, 3.0], time=2)], clock=10 * MS)
    assert sum(witness.engine.pending().values()) > 0
    updates = witness.apply([delete_vertex("b", time=3)], clock=20 * MS)
    assert [(update.id, update.deleted) for update in updates] == [("b", True)]
    after = witness.engine.apply([], clock=5000 * MS)
    assert "b" not in {update.id for update in after}
    witness.take(after)
    witness.apply(
        [vertex("b", time=4), edge("a", "b", time=4), delete_edge("a", "b", time=5)], clock=5001 * MS
    )
    witness.drain(clock=5002 * MS)


def test_a_saved_engine_keeps_its_windows_and_loses_nothing_that_waits(tmp_path: Path) -> None:
    engine = LocalEngine(GraphSAGE([3, 4, 4], seed=1), window=(Session(0.5), Tumbling(1.0)))
    witness = Witness(engine)
    witness.apply([edge("a", "b", time=1), edge("b", "c", time=1)], clock=1000 * MS)
    witness.apply([edge("d", "b", time=2)], clock=1001 * MS)
    assert sum(engine.pending().values()) > 0
    updates = engine.save(tmp_path)
    assert updates is not None
    assert "b" in {update.id for update in updates}
    witness.take(updates)
    witness.check()
    assert engine.save(tmp_path) is None, "nothing waits any more"
    loaded = LocalEngine.load(tmp_path)
    assert loaded.windows == engine.windows
    assert not any(loaded.pending().values())
    np.testing.assert_allclose(
        loaded.embeddings(engine.ids()), engine.embeddings(engine.ids()), rtol=1e-5, atol=1e-6
    )


def test_windows_may_go_by_the_time_of_events() -> None:
    engine = LocalEngine(GraphSAGE([3, 4], seed=1), window=Tumbling(1.0), clock="event")
    witness = Witness(engine)
    day = 86_400_000_000
    witness.apply([edge("a", "b", time=day), edge("c", "d", time=day)], clock=10 * day)
    witness.apply([edge("d", "b", time=day + 1)], clock=20 * day)
    assert engine.pending() == {"vertex-0": 0, "edge-1": 2, "vertex-1": 0}, (
        "ten days of ours, but not of theirs"
    )
    witness.take(engine.apply([], clock=30 * day))
    assert sum(engine.pending().values()) == 2
    late = [edge("c", "a", time=5), edge("c", "d", time=day + 1_200_000)]
    witness.take(engine.apply(late, clock=31 * day))
    assert engine.pending() == {"vertex-0": 0, "edge-1": 1, "vertex-1": 2}, "a second has passed"
    witness.oracle.apply(late)
    witness.drain(clock=31 * day)


def test_an_event_from_the_future_does_not_stop_the_clock_of_events() -> None:
    engine = LocalEngine(GraphSAGE([3, 4], seed=1), window=Tumbling(1.0), clock="event")
    second = 1_000_000
    engine.apply([edge("a", "b", time=0), edge("c", "d", time=0)], clock=100 * second)
    engine.apply([edge("a", "d", time=10**17)], clock=100 * second)
    assert engine.pending()["vertex-1"] == 2, "it counts as of its arrival: a hundred seconds have passed"
    engine.apply([edge("c", "b", time=101 * second)], clock=600 * second)
    assert engine.pending()["vertex-1"] == 0, "and one more"
    assert engine.pending()["edge-1"] == 1
    engine.apply([edge("c", "b", time=102 * second)], clock=600 * second)
    assert engine.pending()["edge-1"] == 0


@pytest.mark.parametrize("clock", [1.5e15, "soon", 2**63, -(2**63)])
def test_a_clock_that_is_none_is_refused_and_changes_nothing(clock: Any) -> None:
    witness = Witness(LocalEngine(GraphSAGE([3, 4], seed=1), window=Tumbling(0.1)))
    witness.apply([edge("a", "b", time=1)], clock=1000)
    with pytest.raises(ValueError, match=r"clock=.*microseconds"):
        witness.engine.apply([edge("c", "b", time=1)], clock=clock)
    with pytest.raises(ValueError, match=r"clock=.*microseconds"):
        witness.engine.drain(clock)
    witness.apply([edge("b", "a", time=2)], clock=2000)
    witness.drain()


def test_a_clock_may_be_of_numpy(tmp_path: Path) -> None:
    engine = LocalEngine(GraphSAGE([3, 4], seed=1), window=Tumbling(0.1))
    engine.apply([edge("a", "b", time=1)], clock=np.int64(1000))  # type: ignore[arg-type]
    engine.save(tmp_path)
    assert LocalEngine.load(tmp_path).ids().to_list() == ["a", "b"]


def test_to_drain_takes_no_time() -> None:
    """Otherwise a clock that is set by hand would stand still from then on."""
    engine = LocalEngine(GraphSAGE([3, 4], seed=1), window=Tumbling(0.1))
    engine.apply([edge("a", "b", time=1)], clock=1000 * MS)
    engine.drain()
    engine.apply([edge("c", "b", time=1)], clock=2000 * MS)
    assert engine.pending()["edge-1"] == 1
    engine.apply([], clock=2100 * MS)
    assert engine.pending()["edge-1"] == 0


def test_there_are_two_clocks() -> None:
    with pytest.raises(ValueError, match="choose one of batch, event"):
        LocalEngine(GraphSAGE([3, 4]), clock="wall")  # type: ignore[arg-type]


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("kind", ["GCN", "GAT", "max"])
def test_windows_around_other_layers(kind: str, parts: int) -> None:
    """Degrees wait as well, and destinations for their own values."""
    torch.manual_seed(1)
    layers: dict[str, list[Layer]] = {
        "GCN": [GCN(3, 4, "relu"), GCN(4, 4)],
        "GAT": [GAT(3, 2, 2, "relu"), GAT(4, 4)],
        "max": [SAGE(3, 4, "max", "relu"), SAGE(4, 4, "mean,min")],
    }
    schema = GraphSchema(edges="multi", features={"x": 3})
    engine = LocalEngine(GNN(layers[kind]), parts, schema=schema, window=(Session(0.03), Tumbling(0.05)))
    witness = Witness(engine, tolerance=1e-4)
    waited = 0
    for i, batch in enumerate(random_batches(schema, seed=8, n_batches=20, batch_size=50, n_vertices=30)):
        witness.apply(batch, clock=i * 10 * MS)
        waited = max(waited, sum(engine.pending().values()))
        if i == 11:
            witness.drain(clock=i * 10 * MS)
    assert waited > 0, "nothing ever waited"
    witness.drain(clock=400 * MS)
