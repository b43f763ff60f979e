"""Training on the live graph: the graph stays in its parts, and the gradient is that of the whole graph.

`Training` is how a model is trained, `Scoring` how its predictions are scored by the labels that arrive.
`AfterLabels`, `Every` and `OnDrift` say when a training is due. See docs/training.md.
"""

from d3gnn.training.scoring import Scoring
from d3gnn.training.settings import Training
from d3gnn.training.triggers import AfterLabels, Detector, Every, OnDrift, Trigger

__all__ = ["Training", "Scoring", "AfterLabels", "Every", "OnDrift", "Detector", "Trigger"]
