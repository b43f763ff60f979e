"""LocalEngine: the whole dataflow in one process."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from d3gnn.events import Event, EventBatch, GraphSchema, Key
from d3gnn.events.keys import IntKeys, Keys, StringKeys, keys_of
from d3gnn.kernel.alerts import Alerts
from d3gnn.kernel.log import LogEntry
from d3gnn.kernel.mapped_state import MappedPartState
from d3gnn.kernel.operators import (
    PARTITION,
    ChainSpec,
    Edge,
    Emit,
    Operator,
    OperatorConfig,
    Partition,
    Vertex,
)
from d3gnn.kernel.operators.base import IMMEDIATE
from d3gnn.kernel.part_state import PartState
from d3gnn.kernel.partitioners import Partitioner
from d3gnn.kernel.windows import Clock, Windows, check_time, pair_of
from d3gnn.kernel.windows.clock import Clocks
from d3gnn.kernel.windows.pending import Pending
from d3gnn.nn.model import GNN
from d3gnn.private import resolved
from d3gnn.runtime.chain import Chain
from d3gnn.runtime.coordinator import NO_EVENTS, PlannedBatch
from d3gnn.runtime.local_coordinator import LocalCoordinator
from d3gnn.runtime.local_scoring import LocalScorer
from d3gnn.runtime.local_training import TrainingResult, check_replaces, train_engine
from d3gnn.runtime.lookup import vertex_values
from d3gnn.runtime.output import OutputSpec
from d3gnn.runtime.saved_engine import SavedEngine, save_engine
from d3gnn.runtime.state_backend import MappedBackend, MemoryBackend, StateBackend
from d3gnn.runtime.updates import Updates
from d3gnn.store.named_ids import NamedIds
from d3gnn.training.live_parts import LiveGraph
from d3gnn.training.loop import Epoch
from d3gnn.training.metrics import Metrics
from d3gnn.training.scoring import Scoring
from d3gnn.training.settings import Training
from d3gnn.types import Floats


class LocalEngine:
    """Exact, incremental GNN inference: after every batch of events, the embeddings that a static forward
    pass over the current graph would return, at a cost that follows what the batch touches.

    parts:
        Logical parts that the edges are spread over. One is fastest in one process; more behave as they do
        on a cluster.
    partitioner:
        `hdrf`, `random`, or one with its own settings (`HDRF(balance=1.0)`).
    arrays:
        Keep state in memory-mapped files under this folder instead of in memory. Existing state there is
        deleted: use `save` and `load` to keep an engine.
    window:
        Delay what changes at a vertex and send it on merged with later changes: a window (`d3gnn.windows`)
        for all operators, or a pair for the partial aggregates of Edge operators and the values of Vertex
        operators. `drain` sends what is pending.
    clock:
        The time that windows use: when a `batch` is processed, or the newest `event` time so far, in
        microseconds.
    min_change:
        Changes of a vertex's value by no more than this, in each number since it was sent, are not sent on.
        Cheaper, and no longer exact. See docs/layers.md.
    alerts:
        Which predictions are alerts; see `d3gnn.Alerts`.
    emit:
        `head`: the rows that the model's head is for (alerts, if there are any; predictions; scores of
        pairs), or embeddings without a head. `all`: embeddings of all changed vertices as well.
    threads:
        Threads that run parts side by side, where a batch is large enough. Use at least as many parts. The
        embeddings do not depend on it, bit for bit.
    scoring:
        Score predictions by the labels that arrive; see `d3gnn.training.Scoring`.
    partition_threads:
        Threads that choose the parts of large batches of new edges. With more than one, the parts differ from
        run to run, and with them the last bits of embeddings.

    >>> from d3gnn import LocalEngine, events
    >>> from d3gnn.nn import GraphSAGE
    >>> engine = LocalEngine(GraphSAGE(4, hidden_channels=8, num_layers=2, out_channels=2, seed=0))
    >>> updates = engine.apply([events.edge("ann", "bob", time=1), events.edge("bob", "cho", time=2)])
    >>> sorted(update.id for update in updates)
    ['ann', 'bob', 'cho']
    >>> [update.id for update in engine.apply([events.delete_edge("bob", "cho", time=3)])]
    ['cho']
    >>> engine.embeddings(["bob"]).shape
    (1, 2)
    """

    def __init__(
        self,
        model: GNN,
        *,
        parts: int = 1,
        partitioner: str | Partitioner = "hdrf",
        schema: GraphSchema | None = None,
        arrays: str | Path | None = None,
        window: Windows = None,
        clock: Clock = "batch",
        min_change: float = 0.0,
        alerts: Alerts | None = None,
        emit: Emit = "head",
        threads: int = 1,
        scoring: Scoring | None = None,
        partition_threads: int = 1,
    ) -> None:
        #: As it was given: weights that are laid out for inference cannot be trained.
        self.trainable = copy.deepcopy(GNN.check(model))
        self.model = model = self.trainable.prepared()
        reduce, forward = pair_of(window)
        config = OperatorConfig(
            parts, schema or GraphSchema(), reduce, forward, clock, min_change, alerts, emit
        ).for_model(model)
        self.config, self.chain = config, ChainSpec.of(model)
        self.schema, self.parts = config.schema, parts
        self._output = OutputSpec.of(self.chain, config)
        self.batch = 0
        self._state: StateBackend[PartState] | StateBackend[MappedPartState] = (
            MemoryBackend() if arrays is None else MappedBackend(resolved(arrays), fresh=True)
        )
        self.partition = Partition(
            self.schema, parts, partitioner, self._state.open(PARTITION, 0), self.chain.destinations,
            self.chain.pairs, partition_threads,
        )  # fmt: skip
        self._coordinator = LocalCoordinator(self.partition, config)
        self._threads = threads
        self._build_chain()
        self._scorer = (
            None if scoring is None else LocalScorer(scoring, self.trainable, self.partition, config)
        )
        #: The context of the current batch.
        self.context = IMMEDIATE
        self._partition_seconds = 0.0

    def _build_chain(self) -> None:
        self._chain = Chain(self.model, self.config, self._state.open, self._threads)
        operators = self._chain.operators
        self.vertices = [operator for operator in operators if isinstance(operator, Vertex)]
        edges = [operator for operator in operators if isinstance(operator, Edge)]
        #: Those of layers: without Edge 0, which counts degrees.
        self.edges = edges[-len(self.model.layers) :]

    def __repr__(self) -> str:
        return f"LocalEngine({self.model}, parts={self.parts}, vertices={len(self)}, batch={self.batch})"

    def __len__(self) -> int:
        """The number of vertices."""
        return self.partition.vertex_count

    def apply(self, events: EventBatch | pa.Table | Iterable[Event], clock: int | None = None) -> Updates:
        """Process a batch of events; returns what it changed.

        clock:
            The arrival, in microseconds, of events that have none; now, unless given. It never goes back:
            after a smaller one, it advances by as much as the next ones do.
        """
        clock = time.time_ns() // 1000 if clock is None else check_time(clock)
        return self._apply(EventBatch.of(events), clock)

    def drain(self, clock: int | None = None) -> Updates:
        """Send everything that is pending in windows: the embeddings are then those of the current graph.

        clock:
            As for `apply`; that of the last batch, unless given.
        """
        clock = self._coordinator.clocks.batch if clock is None else check_time(clock)
        return self._apply(NO_EVENTS, clock, drain=True)

    def refresh(self) -> Updates:
        """Rebuild all state from the log: one full forward pass over the current graph."""
        types, watermark = self.partition.types, self.partition.watermark
        self._state.begin()
        self._state.reset()
        self.partition.types, self.partition.watermark = types, watermark
        planned = self._coordinator.rebuild(self.batch, NO_EVENTS, self._coordinator.clocks.batch)
        return self._run(planned, NO_EVENTS)

    def train(
        self,
        training: Training | None = None,
        *,
        progress: Callable[[Epoch], None] | None = None,
    ) -> TrainingResult:
        """Train the model on the current graph and its labels, and use it from now on.

        The gradient is exactly that of a static pass over the whole graph. Afterwards all embeddings are
        recomputed, by a refresh; the result has the updates that it emitted.

        training:
            Epochs, loss, optimiser and so on.
        progress:
            Called after every epoch, with its loss and scores.

        >>> from d3gnn import LocalEngine, Training, events
        >>> from d3gnn.nn import Classifier, GraphSAGE
        >>> engine = LocalEngine(GraphSAGE(4, 8, num_layers=2, out_channels=2, seed=0, head=Classifier()))
        >>> _ = engine.apply([events.edge(i, (i * 7) % 20, time=1) for i in range(20)])
        >>> _ = engine.apply([events.label(i, i % 2, time=2) for i in range(20)])
        >>> result = engine.train(Training(epochs=30, holdout=0))
        >>> result.trained.epochs[-1].loss < result.trained.epochs[0].loss
        True
        """
        result = train_engine(self, training or Training(), progress)
        if self._scorer is not None:
            self._scorer.scorer.trained(self.trainable)
        return result

    def training_due(self) -> str | None:
        """Why a training is due, by the trigger of `scoring=`; None if it is not."""
        return None if self._scorer is None else self._scorer.scorer.due

    def scores(self) -> dict[str, Metrics]:
        """Prequential scores, with `scoring=`: `recent`, over the window, and in `total`."""
        return {} if self._scorer is None else self._scorer.scorer.metrics()

    def use(self, model: GNN) -> Updates:
        """Replace the model by another one with the same chain of operators and the same widths: rebuilds all
        state.
        """
        check_replaces(GNN.check(model), self.trainable)
        self.trainable = copy.deepcopy(model)
        self.model = self.trainable.prepared()
        self._chain.close()
        self._build_chain()
        return self.refresh()

    def live_graph(self) -> LiveGraph:
        """The graph as training reads it; valid until the next batch."""
        edges = [operator for operator in self._chain.operators if isinstance(operator, Edge)]
        return LiveGraph(self.model, self.partition, self.vertices[0], edges)

    def forget(self, ids: Iterable[Key]) -> Updates:
        """Erase vertices with all their edges, so that no state names them, and rebuild all state."""
        self._coordinator.forget(NamedIds(ids))
        return self.refresh()

    def embeddings(self, ids: Sequence[Key] | Keys | None = None) -> Floats:
        """Embeddings of these vertices, or of all; one row each, NaN for an id that does not exist.

        With windows they are the embeddings that were emitted: pending changes follow with `drain`.
        """
        return self._values(self.vertices[-1], ids)

    def inputs(self, ids: Sequence[Key] | Keys | None = None) -> Floats:
        """The model's input for these vertices, or for all: features, or initial values where they have none.

        One row each [n, in_channels], NaN for an id that does not exist.
        """
        return self._values(self.vertices[0], ids)[:, : self.model.in_channels]  # degrees may follow

    def _values(self, operator: Vertex, ids: Sequence[Key] | Keys | None) -> Floats:
        if isinstance(ids, str | int):
            raise TypeError(f"ids={ids!r}: give a list of ids, as in [{ids!r}]")
        keys = self.ids() if ids is None else ids if isinstance(ids, IntKeys | StringKeys) else keys_of(ids)
        return vertex_values(self.partition, operator, keys)[0]

    def ids(self) -> Keys:
        """The ids of all vertices, in the order of their first events."""
        return self.partition.live_ids()

    def pending(self) -> dict[str, int]:
        """The number of vertices that are pending in the windows of each operator that has one."""
        return {operator: metrics["pending"] for operator, metrics in self.window_metrics().items()}

    def window_metrics(self) -> dict[str, dict[str, int]]:
        """For each operator with a window: `pending` vertices, the age of the oldest (`oldest_ms`), changes
        that were `merged` with another one, and vertices that were sent (`forwards`).

        At Edge operators, merged over forwards is the number of further edges in each partial aggregate; at
        Vertex operators, merged is the number of forwards saved.
        """
        metrics: dict[str, dict[str, int]] = {}
        for operator, window in self._windows():
            total = metrics.get(operator.name)
            if total is None:
                forwards = self._chain.counts(operator.id)["forwards"]
                empty = {"pending": 0, "oldest_ms": 0, "merged": 0, "forwards": forwards}
                total = metrics[operator.name] = empty
            total["pending"] += len(window)
            total["oldest_ms"] = max(total["oldest_ms"], window.age_ms(self.context.now))
            total["merged"] += window.merged
        return metrics

    def next_deadline(self) -> int | None:
        """When the next pending vertex is due, in microseconds; None if nothing is pending."""
        due = (window.next_deadline() for _, window in self._windows())
        return min((deadline for deadline in due if deadline is not None), default=None)

    def save(self, folder: str | Path) -> Updates | None:
        """Write model, graph and settings to a folder, in open formats.

        Pending changes are drained first, since a loaded engine would not emit them. Returns what that
        changed, or None if nothing was pending.
        """
        drained = self.drain() if any(self.pending().values()) else None
        save_engine(self, self._coordinator, Path(folder))
        return drained

    @staticmethod
    def load(folder: str | Path, *, arrays: str | Path | None = None) -> LocalEngine:
        """The engine that `save` wrote, rebuilt by one forward pass.

        arrays:
            As for `LocalEngine`: the new engine's folder of state.
        """
        saved = SavedEngine.read(Path(folder))
        engine = LocalEngine(saved.model, arrays=arrays, **saved.arguments)
        engine.batch, engine.partition.types = saved.batch, saved.types
        engine.partition.watermark = saved.watermark
        if saved.graph is not None:
            engine.restore(saved.graph, saved.clocks)
        else:
            engine._coordinator.restore(None, saved.clocks)
        return engine

    def restore(self, graph: LogEntry, clocks: Clocks | None = None) -> Updates:
        """Take a compacted log instead of the engine's own, and build all state from it."""
        self._coordinator.restore(graph, clocks or Clocks())
        return self.refresh()

    @property
    def epoch(self) -> int:
        """The number of rebuilds, from 1 on."""
        return self._coordinator.epoch

    @property
    def metrics(self) -> Counter[str]:
        """Since the engine was made: busy microseconds of each operator (`edge-1_us`), bytes that it received
        (`edge-1_bytes`) without the topology, those of the topology (`topology_bytes`), and all `bytes`.
        """
        chain, topology = self._chain, self._chain.topology_bytes
        names = [operator.name for operator in chain.operators]
        found = {"partition_us": int(self._partition_seconds * 1e6), "topology_bytes": topology}
        for name, seconds, nbytes in zip(names, chain.seconds, chain.received, strict=True):
            found |= {f"{name}_us": int(seconds * 1e6), f"{name}_bytes": nbytes}
        return Counter(found | {"bytes": topology * len(names) + sum(chain.received)})

    @property
    def imbalance(self) -> float:
        """Time of the busiest part over the mean."""
        seconds = self._chain.part_seconds
        total = sum(seconds)
        return max(seconds) * self.parts / total if total else 1.0

    def memory(self) -> dict[str, int]:
        """Bytes of each operator's state, over all parts."""
        return self._state.sizes()

    def _windows(self) -> Iterator[tuple[Operator[Any], Pending]]:
        """What is pending in each operator and part that has a window."""
        for lane in self._chain.lanes:
            for operator in lane.operators:
                for part in lane.parts:
                    if (window := operator.pending(part)) is not None:
                        yield operator, window

    def _apply(self, events: EventBatch, clock: int, drain: bool = False) -> Updates:
        begun = time.perf_counter()
        self._state.begin()
        planned = self._coordinator.next_batch(self.batch, events, clock, drain)
        self._partition_seconds += time.perf_counter() - begun
        return self._run(planned, events)

    def _run(self, planned: PlannedBatch, events: EventBatch) -> Updates:
        """The operators behind Partition, one after the other."""
        version, _, result = planned
        self.context = version.context
        if self._scorer is not None and not version.refresh:
            self._scorer.before(events, result, self.vertices[-1])
        blocks = self._chain.run(result.blocks, version)
        self.batch += 1
        self._state.commit(version.epoch, self.batch)
        keys, width = self.partition.ids.keys, self.model.out_channels
        updates = Updates.of(self.batch - 1, events, result, blocks, self._output, width, keys)
        if self._scorer is not None:
            self._scorer.after(updates, refresh=version.refresh)
        return updates
