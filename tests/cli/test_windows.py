"""Windows on the command line."""

from __future__ import annotations

import pytest

from d3gnn.cli.windows import parse_window, parse_windows
from d3gnn.windows import AdaptiveSession, Count, Session, Tumbling, Window


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("tumbling:0.5", Tumbling(0.5)),
        ("tumbling:interval=2,coalesce=2", Tumbling(2.0, coalesce=2.0)),
        ("session:0.2,max_delay=1", Session(0.2, 1.0)),
        ("session:0.2,1", Session(0.2, 1.0)),
        ("adaptive", AdaptiveSession()),
        ("adaptive:widest=3", AdaptiveSession(widest=3.0)),
        ("count:20", Count(20)),
        ("none", None),
    ],
)
def test_windows_are_read(text: str, window: Window | None) -> None:
    assert parse_window(text) == window


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hopping:1", "choose adaptive, count, session, tumbling or none"),
        ("tumbling", "needs its interval"),
        ("tumbling:soon", "interval must be a number, as in tumbling:0.5, not 'soon'"),
        ("count:2.5", "n must be a whole number"),
        ("tumbling:1,2", "takes only 1 settings"),
        ("session:gap=1,nap=2", "has no setting 'nap'"),
        ("tumbling:-1", "must be a number of seconds from"),
        ("tumbling:0.5,interval=3", "interval is set twice"),
        ("count:n=20,n=3", "n is set twice"),
        ("adaptive:widest=5,2", "'2' has no name, but follows"),
        ("session:,1", "gap must be a number, as in session:0.5, not ''"),
        ("session:1,", "max_delay must be a number, as in session:0.5, not ''"),
        ("none:0.5", "none has no settings"),
        ("count:" + "9" * 400, "1 to 1,000,000,000,000,000"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_window(text)


def test_one_for_both_or_one_for_each() -> None:
    assert parse_windows(None) == (None, None)
    assert parse_windows(["count:3"]) == (Count(3), Count(3))
    assert parse_windows(["count:3", "none"]) == (Count(3), None)
    with pytest.raises(ValueError, match="given 3 times"):
        parse_windows(["none", "none", "none"])
