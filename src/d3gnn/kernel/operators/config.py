"""What the operators of a chain are configured with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Any, Literal, get_args

from d3gnn.events.schema import GraphSchema
from d3gnn.kernel.alerts import Alerts
from d3gnn.kernel.windows import Clock, Window, check_clock
from d3gnn.nn.heads import Classifier
from d3gnn.nn.model import GNN
from d3gnn.whole_numbers import check_whole

#: `head`: what the head is for (predictions, alerts or pairs), or embeddings if there is no head.
#: `all`: embeddings and predictions of all changed vertices, too.
Emit = Literal["head", "all"]


@dataclass(frozen=True)
class OperatorConfig:
    """Settings of all operators behind Partition, checked when made.

    parts:
        Logical parts.
    reduce, forward:
        The windows of Edge and of Vertex operators.
    clock:
        What windows measure time by.
    min_change:
        Changes of a value by no more than this are not sent on. 0 is exact.
    alerts:
        Which predictions are alerts.
    emit:
        What the output contains.
    """

    parts: int
    schema: GraphSchema
    reduce: Window | None = None
    forward: Window | None = None
    clock: Clock = "batch"
    min_change: float = 0.0
    alerts: Alerts | None = None
    emit: Emit = "head"

    def __post_init__(self) -> None:
        check_whole("parts", self.parts)
        min_change: Any = self.min_change
        if not isinstance(min_change, Real) or not 0 <= float(min_change) < float("inf"):
            raise ValueError(f"min_change={min_change!r}: must be 0 (exact) or a small positive number")
        if self.emit not in get_args(Emit):
            raise ValueError(f"emit={self.emit!r}: choose one of {', '.join(get_args(Emit))}")
        check_clock(self.clock)

    def for_model(self, model: GNN) -> OperatorConfig:
        """The same settings with the schema that the model needs; raises ValueError for what does not fit."""
        schema = self.schema.for_model(model.in_channels, model.edge_dim)
        if model.scores_edges and schema.edges in ("multi", "keyed"):
            raise ValueError(
                f"edges='{schema.edges}' does not work with a head that scores edges: parallel edges share "
                "one score, and when one copy is deleted the operator that holds the score cannot know "
                "whether another is left. Use edges='simple' or 'append', or a head with edges=False, which "
                "answers queries."
            )
        if self.alerts is not None:
            if model.head is None:
                raise ValueError("alerts need a model with a head, such as GNN(layers, head=Classifier(net))")
            by_class = self.alerts.classes is not None or self.alerts.changed_class
            if by_class and not isinstance(model.head, Classifier):
                raise ValueError(
                    "Alerts: classes and changed_class need a Classifier; a threshold works with any head"
                )
        return replace(self, schema=schema)

    @property
    def sending(self) -> str:
        """All settings that decide when and whether something is sent, as one line."""
        windows = [window and window.to_dict() for window in self.windows]
        clock = self.clock if self.windowed else None
        alerts = self.alerts and asdict(self.alerts)
        return json.dumps([*windows, clock, self.min_change, alerts, self.emit], sort_keys=True)

    @property
    def windows(self) -> tuple[Window | None, Window | None]:
        """The windows of Edge and of Vertex operators."""
        return self.reduce, self.forward

    @property
    def windowed(self) -> bool:
        """Whether any operator has a window."""
        return self.reduce is not None or self.forward is not None
