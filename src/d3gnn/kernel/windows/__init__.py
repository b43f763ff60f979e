"""How long changes wait for more of them before they are sent on: windows that merge cascades."""

from d3gnn.kernel.windows.adaptive import AdaptiveSession
from d3gnn.kernel.windows.base import Window, make_window, windows
from d3gnn.kernel.windows.count import Count
from d3gnn.kernel.windows.session import Session
from d3gnn.kernel.windows.tumbling import Tumbling

__all__ = ["AdaptiveSession", "Count", "Session", "Tumbling", "Window", "make_window", "windows"]
