"""How long changes wait for more of them before they are sent on: windows that merge cascades."""

from d3gnn.kernel.windows.adaptive import AdaptiveSession
from d3gnn.kernel.windows.base import Window, Windows, make_window, pair_of, windows
from d3gnn.kernel.windows.clock import Clock, check_clock, check_time, newest_event
from d3gnn.kernel.windows.count import Count
from d3gnn.kernel.windows.session import Session
from d3gnn.kernel.windows.tumbling import Tumbling

__all__ = [
    "AdaptiveSession",
    "Clock",
    "Count",
    "Session",
    "Tumbling",
    "Window",
    "Windows",
    "check_clock",
    "check_time",
    "make_window",
    "newest_event",
    "pair_of",
    "windows",
]
