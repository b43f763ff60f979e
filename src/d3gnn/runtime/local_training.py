"""Training in a LocalEngine: all parts in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from d3gnn.kernel.operators import ChainSpec
from d3gnn.nn.model import GNN
from d3gnn.runtime.updates import Updates
from d3gnn.training.links import examples_of
from d3gnn.training.loop import Epoch, TrainedModel, train_model
from d3gnn.training.rank_graph import RankGraph
from d3gnn.training.ranks import OneRank
from d3gnn.training.settings import Training

if TYPE_CHECKING:
    from d3gnn.runtime.local import LocalEngine


def check_replaces(model: GNN, current: GNN) -> None:
    """Check that a model has the operators and the widths of the one that it replaces."""
    ours, theirs = _shape(current), _shape(model)
    if ChainSpec.of(current) != ChainSpec.of(model) or ours != theirs:
        raise ValueError(f"the model {model} has other layers, widths or another head than {current}")


def _shape(model: GNN) -> list[tuple[Any, ...]]:
    """What the arrays of a model's operators depend on."""
    return [
        (each.aggr, each.in_width, each.message_width, each.root_width, each.out_width, each.edge_width)
        for each in model.layers
    ]


@dataclass
class TrainingResult:
    """The trained model, and what its first forward pass emitted; None if the old model is kept."""

    trained: TrainedModel
    updates: Updates | None

    @property
    def used(self) -> bool:
        """Whether the engine uses the new model."""
        return self.updates is not None


def train_engine(
    engine: LocalEngine, settings: Training, progress: Callable[[Epoch], None] | None = None
) -> TrainingResult:
    """See `LocalEngine.train`."""
    live = engine.live_graph()
    graph = RankGraph([live.part(part) for part in range(engine.parts)], OneRank())
    examples = examples_of(engine.trainable, graph, live.labels(), settings)
    trained = train_model(engine.trainable, graph, examples, settings, progress)
    if not (trained.is_better or settings.keep_worse or not trained.held_out):
        return TrainingResult(trained, None)
    return TrainingResult(trained, engine.use(trained.model))
