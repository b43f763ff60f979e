"""Training on the live graph: the graph stays in its parts, and the gradient is that of the whole graph.

    from d3gnn import LocalEngine, Training
    result = engine.train(Training(epochs=50))

See docs/training.md.
"""

from d3gnn.training.settings import Training

__all__ = ["Training"]
