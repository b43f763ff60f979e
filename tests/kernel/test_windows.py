"""Windows delay changes, separately for each vertex, and lose none."""

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
from d3gnn.kernel.mapped_state import MappedPartState
from d3gnn.kernel.operators.vertex_state import VertexState
from d3gnn.kernel.part_state import PartState
from d3gnn.kernel.touched import VERTEX, clear, make_touched, size, touch_all
from d3gnn.kernel.windows import AdaptiveSession, Count, Session, Tumbling, Window, make_window, windows
from d3gnn.kernel.windows.pending import Pending
from d3gnn.kernel.windows.sketch import COLUMNS, ROWS, SKETCH_BYTES, count_and_rate, fading
from d3gnn.nn import GNN, GATConv, GCNConv, GraphSAGE, Layer, SAGEConv
from d3gnn.nn.models import sage_from_widths
from d3gnn.testing import OracleChecker, event_batches, random_batches, schemas

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


class ManualWindow:
    """A window over a few vertices, with a clock that the test sets."""

    def __init__(self, window: Window, part_state: PartState | None = None) -> None:
        self.part_state = PartState() if part_state is None else part_state
        self.pending = Pending(self.part_state, window)
        self.pending.reserve(100)
        self.touched = make_touched(100)

    def at(
        self, milliseconds: float, *vertices: int, drain: bool = False, first: Sequence[int] = ()
    ) -> list[int]:
        """Touch vertices at a time; return those that are sent then."""
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
    clock = ManualWindow(Tumbling(0.1))
    assert clock.at(1000, 1) == []
    assert clock.at(1050, 1, 2) == []
    assert clock.at(1090) == []
    assert clock.at(1100) == [1], "touching it again has not postponed it, and 2 has its own deadline"
    assert clock.at(1140) == []
    assert clock.at(1150, 1) == [2]
    assert clock.at(1250) == [1]
    assert clock.pending.next_deadline() is None


def test_session_is_postponed_by_every_touch_up_to_its_max_delay() -> None:
    clock = ManualWindow(Session(0.1, max_delay=0.25))
    assert clock.at(1000, 1, 2) == []
    assert clock.at(1080, 1) == []
    assert clock.at(1100) == [2], "it was not touched again"
    assert clock.at(1160, 1) == []
    assert clock.at(1180) == []
    assert clock.at(1240, 1) == []
    assert clock.at(1250) == [1], "0.25 s after its first touch"
    assert clock.at(2000) == []
    assert Session(0.1).longest == pytest.approx(1.0)


def test_count_sends_with_the_nth_touch_or_after_its_max_delay() -> None:
    clock = ManualWindow(Count(3, max_delay=0.5))
    assert clock.at(1000, 1, 1, 2) == []
    assert clock.at(1001, 1) == [1]
    assert clock.at(1002, 1, 1, 1, 1) == [1]
    assert clock.at(1020, 1) == []
    assert clock.at(1499) == []
    assert clock.at(1500) == [2], "after its max_delay"
    assert clock.at(1600, drain=True) == [1]


def test_adaptive_gap_is_shorter_for_a_busy_vertex_and_adapts() -> None:
    clock = ManualWindow(AdaptiveSession(shortest=0.01, widest=2.0, patience=2.0, period=1.0, weight=0.5))

    def gap(at: float, v: int) -> float:
        """The time from a touch until the vertex is sent, in milliseconds."""
        clock.at(at, drain=True)
        assert clock.at(at, v) == []
        for later in range(10, 5000, 10):
            if v in clock.at(at + later):
                return later
        raise AssertionError("it was never sent")

    assert gap(1000, 1) == 2000, "without a known rate: the widest gap"
    for second in range(10, 20):
        for tenth in range(10):
            clock.at(second * 1000 + tenth * 100, *([1] if tenth % 2 else [1, 2] if tenth == 0 else [1]))
    busy, quiet = gap(20_000, 1), gap(25_000, 2)
    assert busy == pytest.approx(200, abs=50), "10 touches per second: a gap of 0.2 s"
    assert quiet == 2000, "1 touch per second: a gap of 2 s"
    slower = gap(28_000, 1)
    assert slower > 3 * busy, "its rate has decreased"
    for step in range(30):
        clock.at(40_000 + step * 100, 2)
    assert gap(43_000, 2) < 500, "its rate has increased"


def test_rates_below_one_per_period_are_kept() -> None:
    window = AdaptiveSession(
        shortest=0.01, widest=100.0, patience=1.0, period=1.0, weight=0.1, max_delay=100.0
    )
    clock = ManualWindow(window)
    for second in range(0, 200, 4):  # less than one per period: 0 as an integer
        clock.at(1000 * (second + 1), 7, drain=True)
    clock.at(200_500, 7)
    due = clock.pending.next_deadline()
    assert due is not None
    assert 2.0 < (due - 200_500 * MS) / 1e6 < 8.0


def test_the_sketch_is_exact_for_most_rates_and_underestimates_none() -> None:
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
    clock = ManualWindow(AdaptiveSession())
    before = clock.pending._sketch.data.nbytes
    for i in range(50):
        clock.at(10 * i, *range(100))
    assert clock.pending._sketch.data.nbytes == before
    assert SKETCH_BYTES == before <= 2**19


@every
def test_a_first_value_is_sent_at_once(window: Window) -> None:
    clock = ManualWindow(window)
    assert clock.at(1000, 1, 2, first=[2]) == [2]
    assert clock.at(1001, 2) == []
    assert clock.at(1002, 1, 2, first=[1]) == [1, 2] if window == Count(2, max_delay=0.05) else [1]


@every
def test_cancelled_changes_are_not_sent(window: Window) -> None:
    clock = ManualWindow(window)
    clock.at(1000, 1, 2)
    clock.pending.cancel(np.array([1, 5], np.int32))
    assert len(clock.pending) == 1
    assert clock.at(100_000) == [2]
    assert clock.at(100_001, drain=True) == []
    clock.at(200_000, 1)
    assert clock.at(300_000) == [1], "it may be touched again"


@every
def test_nothing_is_pending_for_longer_than_the_longest_delay(window: Window) -> None:
    rng = np.random.default_rng(1)
    clock = ManualWindow(window)
    since: dict[int, float] = {}
    now = 1000.0
    for _ in range(3000):
        now += float(rng.integers(1, 8))
        some = rng.integers(0, 20, rng.integers(0, 4)).tolist()
        sent = clock.at(now, *some)
        for v in some:
            since.setdefault(v, now)
        for v in sent:
            # Due changes are sent with the next batch, a few milliseconds later.
            assert now - since.pop(v) <= window.longest * 1000 + 8
        assert len(clock.pending) == len(since)
    assert since.keys() == set(clock.at(now, drain=True))


@settings(max_examples=150)
@given(data=st.data())
def test_windows_equal_a_model_with_dictionaries(data: st.DataObject) -> None:
    """Tumbling and session windows, with first values, which are sent at once, and with cancelled changes."""
    session = data.draw(st.booleans())
    wait, longest = 50_000, 50_000 if not session else 170_000
    clock = ManualWindow(Session(0.05, max_delay=0.17) if session else Tumbling(0.05))
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
    clock = ManualWindow(Tumbling(0.05))
    clock.at(1.001, 0)  # 1000.9999999999999 microseconds, as a float
    assert clock.pending.oldest() == 1001


def test_deadlines_may_be_coalesced_more_or_not_at_all() -> None:
    coarse, fine = ManualWindow(Tumbling(0.05, coalesce=0.1)), ManualWindow(Tumbling(0.05, coalesce=0))
    for clock in (coarse, fine):
        assert clock.at(1000.001, 1) == []
        assert clock.at(1003, 2) == []
    assert fine.at(1050) == []
    assert fine.at(1050.001) == [1]
    assert fine.at(1053) == [2]
    # The next multiple of 100 ms would be too late: then the exact deadline counts.
    assert coarse.at(1050.001) == [1]
    assert coarse.at(1053) == [2]
    merged = ManualWindow(Session(0.03, max_delay=1.0, coalesce=0.1))
    assert merged.at(1000, 1) == []
    assert merged.at(1060, 2) == []
    assert merged.at(1099) == []
    assert merged.at(1100) == [1, 2], "both at the same time"


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
    """As floats, many are slightly too small; truncated, they would lose a whole step."""
    clock = ManualWindow(window)
    clock.at(0, 1)
    assert clock.pending.next_deadline() == deadline
    assert clock.at(deadline / MS - 0.001) == []
    assert clock.at(deadline / MS) == [1]


def test_stale_keys_are_removed_from_the_heap() -> None:
    """Every touch of a vertex whose rate increases moves its deadline forward, and leaves a stale key."""
    window = AdaptiveSession(shortest=0.001, widest=3600.0, period=3600.0, max_delay=36_000.0)
    clock, everyone, quiet = ManualWindow(window), list(range(100)), 99
    for step in range(400):
        assert clock.at(10 * step, *(everyone if step == 0 else everyone[:quiet])) == []
    assert len(clock.pending._heap.data) <= 1024, "not 40,000"
    clock.pending.cancel(np.arange(50, dtype=np.int32))
    due = clock.pending.next_deadline()
    assert due is not None
    assert clock.at(due / MS - 0.001) == []
    sent = [v for later in range(100) for v in clock.at(due / MS + 1000 * later)]
    assert sorted(sent) == everyone[50:quiet]
    assert clock.at(3_600_000 - 0.001) == []
    assert clock.at(3_600_000) == [quiet], "its key was kept"


def test_first_values_are_not_counted_as_merged() -> None:
    clock = ManualWindow(Tumbling(1.0))
    clock.at(1000, 7)
    assert clock.at(1001, 8, 8, first=[8]) == [8], "a first value is sent at once"
    assert clock.at(1002, 9, 9, 7, 7, first=[9]) == [9]
    assert clock.pending.merged == 2


def test_finding_the_oldest_does_not_scan_all_pending_vertices() -> None:
    clock = ManualWindow(Tumbling(10.0))
    assert clock.pending.oldest() is None
    for i in range(3000):
        clock.at(1000 + i, i % 100, drain=i % 3 == 0)
    # Two were touched since the last drain; sent vertices are not counted.
    assert clock.pending.oldest() == (1000 + 2998) * MS
    assert len(clock.pending._cohorts.data) < 1000


def test_pending_changes_outlive_the_process(tmp_path: Path) -> None:
    one = ManualWindow(Session(0.1), MappedPartState(tmp_path))
    one.at(1000, 1, 2)
    other = ManualWindow(Session(0.1), MappedPartState(tmp_path))
    assert other.at(1050, 2) == []
    assert other.at(1100) == [1]
    assert other.at(1150) == [2]


@pytest.mark.parametrize("window", [Tumbling(1.0), AdaptiveSession()], ids=repr)
def test_a_window_grows_again_after_another_worker_reset_the_arrays_without_it(
    tmp_path: Path, window: Window
) -> None:
    def open_state(part_state: PartState, window: Window | None) -> VertexState:
        pending = None if window is None else Pending(part_state, window)
        return VertexState(part_state, 2, 0, 0, pending)

    ours, theirs = MappedPartState(tmp_path), MappedPartState(tmp_path)
    with ours.locked():
        ours.reset()
        state = open_state(ours, window)
        state.reserve_rows(1000)
    with theirs.locked():
        theirs.reset()
        open_state(theirs, None).reserve_rows(1000)
    with ours.locked():
        ours.reset()
        state.follow()
        assert state.pending is not None
        assert len(state.pending.rows.data) >= len(state.rows.slot) >= 1000
        assert len(state.pending._sketch.data) == (ROWS if isinstance(window, AdaptiveSession) else 0)


#: Settings that must not be None.
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
def test_bad_settings_of_windows_are_refused(name: str, settings_: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|choose one of"):
        make_window(name, **settings_)


@pytest.mark.parametrize("window", [0.5, "tumbling", "tumbling:0.5", (Tumbling(1.0),), (Tumbling(1.0), 0.5)])
def test_engines_refuse_what_is_no_window(window: Any) -> None:
    with pytest.raises(
        ValueError,
        match=r"a window of d3gnn\.windows such as Tumbling\(0\.5\), a pair of windows .*, or None",
    ):
        LocalEngine(GraphSAGE(2, 2, 1), window=window)


def test_settings_of_windows_become_plain_numbers(tmp_path: Path) -> None:
    window = Session(np.float64(0.5), np.float32(2)), Count(np.int64(3))  # type: ignore[arg-type]
    assert repr(window) == "(Session(gap=0.5, max_delay=2.0), Count(n=3, max_delay=10.0))"
    LocalEngine(GraphSAGE(2, 2, 1), window=window).save(tmp_path)
    assert LocalEngine.load(tmp_path).config.windows == (Session(0.5, 2), Count(3))
    assert Tumbling(1).to_dict() == Tumbling(1.0).to_dict()


def test_windows_are_created_again_from_their_settings() -> None:
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
    model = sage_from_widths([3, *data.draw(st.sampled_from([[4], [2, 4], [4, 2, 3]]), "widths")], seed=1)
    some = st.sampled_from([*EACH, None])
    pair = data.draw(some, "reduce"), data.draw(some, "forward")
    engine = LocalEngine(
        model, parts=data.draw(st.sampled_from([1, 2, 4]), "parts"), schema=schema, window=pair
    )
    checker = OracleChecker(engine)
    now = 0
    for batch in batches:
        now += data.draw(st.sampled_from([0, 5 * MS, 30 * MS, 400 * MS]), "milliseconds")
        checker.apply(batch, clock=now)
        then = data.draw(st.sampled_from(["go on", "go on", "drain", "refresh"]), "then")
        if then == "drain":
            checker.drain(clock=now)
        elif then == "refresh":
            checker.refresh()
            assert not any(engine.pending().values())
    checker.drain(clock=now)


@every
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_longer_streams(window: Window, parts: int) -> None:
    schema = GraphSchema(edges="multi" if parts == 2 else "simple", features={"x": 3})
    engine = LocalEngine(GraphSAGE(3, 8, 2, 4, seed=2), parts=parts, schema=schema, window=window)
    checker = OracleChecker(engine)
    max_pending = 0
    for i, batch in enumerate(random_batches(schema, seed=5, n_batches=40, batch_size=60, n_vertices=40)):
        checker.apply(batch, clock=i * 10 * MS)
        max_pending = max(max_pending, sum(engine.pending().values()))
        if i % 17 == 16:
            checker.drain(clock=i * 10 * MS)
    assert max_pending > 0, "nothing was ever pending"
    checker.drain(clock=400 * MS)


def test_due_changes_are_sent_without_events() -> None:
    engine = LocalEngine(GraphSAGE(3, 4, 2, seed=1), window=Tumbling(0.1))
    checker = OracleChecker(engine)
    checker.apply([edge("a", "b", time=1), edge("b", "c", time=1)], clock=1000 * MS)
    now = 1000 * MS
    rounds = 0
    while (due := engine.next_deadline()) is not None:
        assert due > now
        now = due
        checker.record(engine.apply([], clock=now))
        rounds += 1
    assert rounds <= 8, "two layers, each with two windows"
    checker.check()


def test_windows_merge_cascades() -> None:
    plain = LocalEngine(GraphSAGE(3, 4, 2, seed=1))
    windowed = LocalEngine(GraphSAGE(3, 4, 2, seed=1), window=Tumbling(0.2))
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


def test_an_engine_reports_metrics_of_its_windows() -> None:
    engine = LocalEngine(GraphSAGE(3, 4, 1, seed=1), parts=2, window=(Tumbling(1.0), None))
    engine.apply([edge("hub", "a", time=0), edge("b", "hub", time=0)], clock=1000 * MS)
    nothing = {"pending": 2, "oldest_ms": 0, "merged": 0, "forwards": 0}
    assert engine.window_metrics() == {"edge-1": nothing}, "only operators that have a window"
    engine.apply([edge(f"new {i}", "hub", time=1) for i in range(5)], clock=1300 * MS)
    assert engine.pending() == {"edge-1": 3}, "the hub is pending in both parts"
    metrics = {"pending": 3, "oldest_ms": 300, "merged": 4, "forwards": 0}
    assert engine.window_metrics() == {"edge-1": metrics}, "of seven edges"
    engine.drain(clock=1400 * MS)
    metrics |= {"pending": 0, "oldest_ms": 0, "forwards": 3}
    assert engine.window_metrics() == {"edge-1": metrics}


def test_deleting_a_vertex_cancels_its_pending_changes() -> None:
    checker = OracleChecker(LocalEngine(GraphSAGE(3, 4, 1, seed=1), parts=2, window=Tumbling(1.0)))
    checker.apply([edge("a", "b", time=1), edge("c", "b", time=1)], clock=0)
    checker.apply([edge("d", "b", time=2), feature("a", [1.0, 2.0, 3.0], time=2)], clock=10 * MS)
    assert sum(checker.engine.pending().values()) > 0
    updates = checker.apply([delete_vertex("b", time=3)], clock=20 * MS)
    assert [(update.id, update.deleted) for update in updates] == [("b", True)]
    after = checker.engine.apply([], clock=5000 * MS)
    assert "b" not in {update.id for update in after}
    checker.record(after)
    checker.apply(
        [vertex("b", time=4), edge("a", "b", time=4), delete_edge("a", "b", time=5)], clock=5001 * MS
    )
    checker.drain(clock=5002 * MS)


def test_a_saved_engine_keeps_its_windows_and_loses_no_pending_change(tmp_path: Path) -> None:
    engine = LocalEngine(GraphSAGE(3, 4, 2, seed=1), window=(Session(0.5), Tumbling(1.0)))
    checker = OracleChecker(engine)
    checker.apply([edge("a", "b", time=1), edge("b", "c", time=1)], clock=1000 * MS)
    checker.apply([edge("d", "b", time=2)], clock=1001 * MS)
    assert sum(engine.pending().values()) > 0
    updates = engine.save(tmp_path)
    assert updates is not None
    assert "b" in {update.id for update in updates}
    checker.record(updates)
    checker.check()
    assert engine.save(tmp_path) is None, "nothing is pending any more"
    loaded = LocalEngine.load(tmp_path)
    assert loaded.config.windows == engine.config.windows
    assert not any(loaded.pending().values())
    np.testing.assert_allclose(
        loaded.embeddings(engine.ids()), engine.embeddings(engine.ids()), rtol=1e-5, atol=1e-6
    )


def test_windows_may_use_event_time() -> None:
    engine = LocalEngine(GraphSAGE(3, 4, 1, seed=1), window=Tumbling(1.0), clock="event")
    checker = OracleChecker(engine)
    day = 86_400_000_000
    checker.apply([edge("a", "b", time=day), edge("c", "d", time=day)], clock=10 * day)
    checker.apply([edge("d", "b", time=day + 1)], clock=20 * day)
    assert engine.pending() == {"vertex-0": 0, "edge-1": 2, "vertex-1": 0}, (
        "ten days by arrival, but not by event time"
    )
    checker.record(engine.apply([], clock=30 * day))
    assert sum(engine.pending().values()) == 2
    late = [edge("c", "a", time=5), edge("c", "d", time=day + 1_200_000)]
    checker.record(engine.apply(late, clock=31 * day))
    assert engine.pending() == {"vertex-0": 0, "edge-1": 1, "vertex-1": 2}, "a second has passed"
    checker.oracle.apply(late)
    checker.drain(clock=31 * day)


def test_an_event_from_the_future_does_not_stop_the_event_clock() -> None:
    engine = LocalEngine(GraphSAGE(3, 4, 1, seed=1), window=Tumbling(1.0), clock="event")
    second = 1_000_000
    engine.apply([edge("a", "b", time=0), edge("c", "d", time=0)], clock=100 * second)
    engine.apply([edge("a", "d", time=10**17)], clock=100 * second)
    assert engine.pending()["vertex-1"] == 2, "it counts as an event of its arrival: 100 s have passed"
    engine.apply([edge("c", "b", time=101 * second)], clock=600 * second)
    assert engine.pending()["vertex-1"] == 0, "101 s have passed"
    assert engine.pending()["edge-1"] == 1
    engine.apply([edge("c", "b", time=102 * second)], clock=600 * second)
    assert engine.pending()["edge-1"] == 0


@pytest.mark.parametrize("clock", [1.5e15, "soon", 2**63, -(2**63)])
def test_a_bad_clock_is_refused_and_changes_nothing(clock: Any) -> None:
    checker = OracleChecker(LocalEngine(GraphSAGE(3, 4, 1, seed=1), window=Tumbling(0.1)))
    checker.apply([edge("a", "b", time=1)], clock=1000)
    with pytest.raises(ValueError, match=r"clock=.*microseconds"):
        checker.engine.apply([edge("c", "b", time=1)], clock=clock)
    with pytest.raises(ValueError, match=r"clock=.*microseconds"):
        checker.engine.drain(clock)
    checker.apply([edge("b", "a", time=2)], clock=2000)
    checker.drain()


def test_a_clock_may_be_a_numpy_integer(tmp_path: Path) -> None:
    engine = LocalEngine(GraphSAGE(3, 4, 1, seed=1), window=Tumbling(0.1))
    engine.apply([edge("a", "b", time=1)], clock=np.int64(1000))  # type: ignore[arg-type]
    engine.save(tmp_path)
    assert LocalEngine.load(tmp_path).ids().to_list() == ["a", "b"]


def test_a_drain_does_not_move_the_clock() -> None:
    """Otherwise the clocks that the caller passes would be in the past from then on."""
    engine = LocalEngine(GraphSAGE(3, 4, 1, seed=1), window=Tumbling(0.1))
    engine.apply([edge("a", "b", time=1)], clock=1000 * MS)
    engine.drain()
    engine.apply([edge("c", "b", time=1)], clock=2000 * MS)
    assert engine.pending()["edge-1"] == 1
    engine.apply([], clock=2100 * MS)
    assert engine.pending()["edge-1"] == 0


@pytest.mark.parametrize("caught_up", [False, True])
def test_windows_go_on_when_the_clock_is_set_back(caught_up: bool) -> None:
    second, day = 1_000_000, 86_400_000_000
    engine = LocalEngine(GraphSAGE(3, 4, 1, seed=1), window=(Tumbling(1.0), None))
    now = 1_767_225_600_000_000
    engine.apply([edge("a", "b", time=1), edge("c", "d", time=1)], clock=now - 2 * second)
    engine.apply([], clock=now)
    engine.apply([edge("c", "b", time=2)], clock=now)
    now -= day  # the system's clock was set back
    engine.apply([], clock=now)
    assert engine.pending()["edge-1"] == 1
    engine.apply([], clock=now + second // 2)
    assert engine.pending()["edge-1"] == 1, "half a second has passed"
    if caught_up:
        now += day
    engine.apply([], clock=now + second * 3)
    assert engine.pending()["edge-1"] == 0
    engine.apply([edge("a", "d", time=3)], clock=now + 4 * second)
    assert engine.pending()["edge-1"] == 1
    engine.apply([], clock=now + 5 * second)
    assert engine.pending()["edge-1"] == 0


def test_an_unknown_clock_is_refused() -> None:
    with pytest.raises(ValueError, match="choose one of batch, event"):
        LocalEngine(GraphSAGE(3, 4, 1), clock="wall")  # type: ignore[arg-type]


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("kind", ["GCN", "GAT", "max"])
def test_windows_around_other_layers(kind: str, parts: int) -> None:
    """Degrees are delayed as well, and so are the values of destinations that messages depend on."""
    torch.manual_seed(1)
    layers: dict[str, list[Layer]] = {
        "GCN": [GCNConv(3, 4, act="relu"), GCNConv(4, 4)],
        "GAT": [GATConv(3, 2, 2, act="relu"), GATConv(4, 4)],
        "max": [SAGEConv(3, 4, "max", act="relu"), SAGEConv(4, 4, "mean,min")],
    }
    schema = GraphSchema(edges="multi", features={"x": 3})
    engine = LocalEngine(
        GNN(layers[kind]), parts=parts, schema=schema, window=(Session(0.03), Tumbling(0.05))
    )
    checker = OracleChecker(engine, tolerance=1e-4)
    max_pending = 0
    for i, batch in enumerate(random_batches(schema, seed=8, n_batches=20, batch_size=50, n_vertices=30)):
        checker.apply(batch, clock=i * 10 * MS)
        max_pending = max(max_pending, sum(engine.pending().values()))
        if i == 11:
            checker.drain(clock=i * 10 * MS)
    assert max_pending > 0, "nothing was ever pending"
    checker.drain(clock=400 * MS)
