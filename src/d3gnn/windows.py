"""How long changes wait for more of them before they are sent on: windows that merge cascades."""

from d3gnn.kernel.windows import AdaptiveSession, Count, Session, Tumbling, Window

__all__ = ["AdaptiveSession", "Count", "Session", "Tumbling", "Window"]
