"""The whole dataflow in one process: for tests, notebooks, and as the speed to be held against."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from d3gnn.events import (
    Event,
    EventBatch,
    GraphSchema,
    IntKeys,
    Key,
    Keys,
    Reason,
    StringKeys,
    concat_keys,
    keys_of,
)
from d3gnn.kernel.alerts import Alerts
from d3gnn.kernel.arrays import MappedSpace, Space
from d3gnn.kernel.blocks import LAST_TOPOLOGY, OUTPUT, PAIRS, Block, Kind, block_keys, block_pairs
from d3gnn.kernel.log import MemoryLog, compact
from d3gnn.kernel.operators import (
    Edge,
    Operator,
    Partition,
    Vertex,
    check_alerts,
    check_epsilon,
    check_head,
    make_operator,
    names_of,
)
from d3gnn.kernel.operators.base import AT_ONCE, Moment
from d3gnn.kernel.operators.partition import LogEntry, Partitioned
from d3gnn.kernel.partitioners import Partitioner, make_partitioner
from d3gnn.kernel.topology import Topology
from d3gnn.kernel.windows import (
    Clock,
    Windows,
    check_clock,
    check_time,
    make_window,
    newest_event,
    pair_of,
)
from d3gnn.kernel.windows.pending import Pending
from d3gnn.nn.heads import Head, PairHead
from d3gnn.nn.model import GNN
from d3gnn.types import Bools, Floats, Ints, Small

_FORMAT = "d3gnn-engine-1"


class Update(NamedTuple):
    """A vertex's new embedding, or its tombstone."""

    id: Key
    embedding: Floats
    time: int
    arrival: int
    deleted: bool
    #: What the model's head says; None without a head, NaN where the vertex is gone.
    prediction: float | None = None
    score: float | None = None


class Pair(NamedTuple):
    """The score of two vertices: of those that an edge joins, or that a query has asked for."""

    src: Key
    dst: Key
    score: float  # NaN where the edge is gone
    time: int
    arrival: int
    asked: bool
    deleted: bool


@dataclass(slots=True)
class PairScores:
    """Scores of pairs, as columns; iterate for rows."""

    src: Keys
    dst: Keys
    score: Floats
    time: Ints
    arrival: Ints
    asked: Bools
    deleted: Bools

    def __len__(self) -> int:
        return len(self.score)

    def __iter__(self) -> Iterator[Pair]:
        columns = (self.score, self.time, self.arrival, self.asked, self.deleted)
        rows = zip(
            self.src.to_list(), self.dst.to_list(), *(column.tolist() for column in columns), strict=True
        )
        return (Pair(*row) for row in rows)

    @staticmethod
    def of(blocks: Sequence[Block]) -> PairScores:
        """From blocks of scores."""
        if not blocks:
            none, nothing = np.zeros(0, np.int64), IntKeys(np.zeros(0, np.int64))
            return PairScores(nothing, nothing, np.zeros(0, np.float32), none, none, none > 0, none > 0)
        asked, deleted, time, arrival, score = (
            np.concatenate([block.columns[c] for block in blocks]) for c in range(5)
        )
        src, dst = (concat_keys(keys) for keys in zip(*map(block_pairs, blocks), strict=True))
        return PairScores(src, dst, score, time, arrival, asked > 0, deleted > 0)


class DeadLetter(NamedTuple):
    """An event that could not be applied, and why."""

    event: Event
    reason: str


@dataclass(slots=True)
class Updates:
    """What a batch changed: one row per vertex, as columns; iterate for rows."""

    batch: int
    ids: Keys
    embedding: Floats
    #: Newest event time, and oldest arrival, of the events behind each row.
    time: Ints
    arrival: Ints
    deleted: Bools
    #: What became of each event of the batch, as `d3gnn.events.Reason`.
    status: Small
    dead_letters: list[DeadLetter]
    #: What the model's head says of each row; None without a head.
    prediction: Floats | None = None
    score: Floats | None = None
    #: What a head for pairs says of them; None without one.
    pairs: PairScores | None = None

    def __len__(self) -> int:
        return len(self.time)

    def __iter__(self) -> Iterator[Update]:
        columns = [self.time.tolist(), self.arrival.tolist(), self.deleted.tolist()]
        if self.prediction is not None and self.score is not None:
            columns += [self.prediction.tolist(), self.score.tolist()]
        for id, embedding, *rest in zip(self.ids.to_list(), self.embedding, *columns, strict=True):
            yield Update(id, embedding, *rest)

    def count(self, reason: Reason) -> int:
        """How many events of the batch ended this way."""
        return int(np.count_nonzero(self.status == reason))


class LocalEngine:
    """Exact, incremental GNN inference: events in, and after every batch the embeddings that a static forward
    pass over the current graph would give, at a cost that follows what the batch touches.

    parts:
        Logical parts that the edges are spread over. One is fastest in one process; more behave as they will
        on a cluster.
    partitioner:
        `hdrf`, `random`, or one with settings of its own (`HDRF(balance=1.0)`).
    folder:
        Keep the arrays in memory-mapped files under this folder instead of in memory. What is there is lost:
        `save` and `load` keep an engine.
    window:
        Lets what changes wait for more to change: a window (`d3gnn.windows`) for all operators, or one for
        partial aggregates at Edge operators and one for values at Vertex operators. `drain` sends what waits.
    clock:
        What windows tell the time by: when a `batch` is taken in, or the newest `event` time so far, in
        microseconds.
    epsilon:
        Changes of a vertex's value by no more than this, in any of its numbers since it was sent, do not
        travel on: cheaper, and no longer exact. See docs/layers.md.
    alerts:
        Of what the model's head says, what comes out; everything unless given.

    >>> from d3gnn import LocalEngine, events
    >>> from d3gnn.nn import GraphSAGE
    >>> engine = LocalEngine(GraphSAGE([4, 8, 2], seed=0))
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
        parts: int = 1,
        partitioner: str | Partitioner = "hdrf",
        schema: GraphSchema | None = None,
        folder: str | Path | None = None,
        window: Windows = None,
        clock: Clock = "batch",
        epsilon: float = 0.0,
        alerts: Alerts | None = None,
    ) -> None:
        self.model = model.eval()
        self.schema = (schema or GraphSchema()).for_model(model.in_width, model.edge_in)
        check_head(model, self.schema)
        self._says, self._scores = isinstance(model.head, Head), isinstance(model.head, PairHead)
        self.parts, self.folder = parts, folder
        self.epoch, self.batch = 1, 0
        self.clock, self.epsilon = check_clock(clock), check_epsilon(epsilon)
        self.alerts = check_alerts(alerts, model)
        self._now, self._newest = 0, 0
        self.metrics: Counter[str] = Counter()
        #: Seconds of each part, in all operators behind Partition.
        self.part_seconds = [0.0] * parts
        self._log = MemoryLog()
        self._opened: dict[tuple[str, int], Space] = {}
        self.partition = Partition(
            self.schema, parts, partitioner, self._space("partition", 0), model.reads_destinations,
            self._scores,
        )  # fmt: skip
        #: Of Edge operators and of Vertex operators.
        self.windows = pair_of(window)
        names = names_of(len(model.layers), model.degrees is not None, self._scores)
        chain = [
            make_operator(name, model, parts, self.schema, self._space, self.windows, epsilon, alerts)
            for name in names
        ]
        self.vertices = [operator for operator in chain if isinstance(operator, Vertex)]
        #: Those of layers: not the one that counts degrees, where there is one.
        self.edges = [operator for operator in chain if isinstance(operator, Edge)][-len(model.layers) :]
        #: When the batch at hand is taken in.
        self.moment = AT_ONCE
        # Each with the names of its clock and of the bytes that it takes in (topology, which rides along
        # everywhere, aside), and the bytes of a row of each kind.
        self._chain: list[tuple[Operator[Any], str, str, list[int]]] = [
            (operator, f"{operator.name}_us", f"{operator.name}_bytes", [0] * len(Kind)) for operator in chain
        ]
        self._topology_row_bytes = [0] * len(Kind)
        for layer in model.layers:
            layer.prepare()

    def __repr__(self) -> str:
        return f"LocalEngine({self.model}, parts={self.parts}, vertices={len(self)}, batch={self.batch})"

    def __len__(self) -> int:
        """How many vertices there are."""
        return self.partition.vertex_count

    def apply(self, events: EventBatch | pa.Table | Iterable[Event], clock: int | None = None) -> Updates:
        """Take in a batch of events; what it changed.

        `clock` is the arrival, in microseconds, of events that have none; the time of day unless given. It
        never goes back.
        """
        clock = time.time_ns() // 1000 if clock is None else check_time(clock)
        return self._apply(EventBatch.of(events), clock)

    def drain(self, clock: int | None = None) -> Updates:
        """Send all that waits in windows: the embeddings are then those of the graph as it is.

        `clock` is that of the last batch unless given.
        """
        return self._apply(EventBatch.of([]), self._now if clock is None else check_time(clock), drain=True)

    def pending(self) -> dict[str, int]:
        """How many vertices wait in the windows of each operator that has one."""
        return {operator: said["pending"] for operator, said in self.window_metrics().items()}

    def window_metrics(self) -> dict[str, dict[str, int]]:
        """Of each operator that has a window: how many vertices are `pending`, for how long the oldest waits
        (`oldest_ms`), how many changes were `merged` with another one, how many vertices were sent
        (`forwards`).

        At Edge operators, merged over forwards is how many more edges each partial aggregate brought along;
        at Vertex operators, merged is how many forwards were saved.
        """
        found: dict[str, dict[str, int]] = {}
        for operator, waiting in self._waiting():
            nothing = {"pending": 0, "oldest_ms": 0, "merged": 0, "forwards": operator.metrics["forwards"]}
            said = found.setdefault(operator.name, nothing)
            said["pending"] += len(waiting)
            said["oldest_ms"] = max(said["oldest_ms"], waiting.age_ms(self.moment.now))
            said["merged"] += waiting.merged
        return found

    def next_deadline(self) -> int | None:
        """When the next of those that wait is due, in microseconds; None if nothing waits."""
        due = (waiting.next_deadline() for _, waiting in self._waiting())
        return min((deadline for deadline in due if deadline is not None), default=None)

    def _waiting(self) -> Iterator[tuple[Operator[Any], Pending]]:
        """What waits in each operator and part that has a window."""
        for operator, *_ in self._chain:
            for part in range(self.parts):
                if (waiting := operator.pending(part)) is not None:
                    yield operator, waiting

    def _apply(self, batch: EventBatch, clock: int, drain: bool = False) -> Updates:
        begun = time.perf_counter()
        self._begin()
        self._now = max(self._now, clock)
        result = self.partition.process(batch, self._now)
        if self.clock == "event":
            self._newest = max(self._newest, newest_event(batch, result.status, self._now))
        self.moment = self._moment(drain)
        self._log.append(result.entry)
        self.metrics["partition_us"] += int((time.perf_counter() - begun) * 1e6)
        return self._run(batch, result)

    def _moment(self, drain: bool) -> Moment:
        return Moment(self._newest if self.clock == "event" else self._now, drain)

    def refresh(self) -> Updates:
        """Rebuild everything from the log: one full forward pass over the graph as it is."""
        entry = compact(self._log.entries, self.schema, self.parts)
        return self._rebuild(entry)

    def embeddings(self, ids: Sequence[Key] | Keys | None = None) -> Floats:
        """Embeddings of these vertices, or of all; one row each, NaN for an id that does not exist.

        With windows they are those that were sent: what waits is in them after a `drain`.
        """
        keys = self.ids() if ids is None else ids if isinstance(ids, IntKeys | StringKeys) else keys_of(ids)
        out = np.full((len(keys), self.model.out_width), np.nan, np.float32)
        part, row = self.partition.locate(keys)
        for p in range(self.parts):
            here = part == p
            if here.any():
                out[here] = self.vertices[-1].values(p, row[here])
        return out

    def ids(self) -> Keys:
        """The ids of all vertices, in the order in which their ids were first seen."""
        return self.partition.live_ids()

    def save(self, folder: str | Path) -> Updates | None:
        """Write model, graph and settings to a folder, in open formats.

        What waits in windows is sent first, since no engine that is loaded would tell of it; what that
        changed, or None where nothing waited.
        """
        drained = self.drain() if any(self.pending().values()) else None
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save(folder / "model.safetensors")
        entry = compact(self._log.entries, self.schema, self.parts)
        if entry is not None:
            table = entry.events.to_arrow().append_column("part", pa.array(entry.part))
            pq.write_table(table, folder / "graph.parquet")
        else:  # what another engine has left there is none of this one's
            (folder / "graph.parquet").unlink(missing_ok=True)
        settings = {
            "format": _FORMAT,
            "parts": self.parts,
            "partitioner": {"name": self.partition.partitioner.name, **asdict(self.partition.partitioner)},
            "schema": self.schema.to_dict(),
            "batch": self.batch,
            "clock": self._now,
            "newest_event": self._newest,
            "window_clock": self.clock,
            "epsilon": self.epsilon,
            "alerts": None if self.alerts is None else asdict(self.alerts),
            "types": self.partition.types,
            "windows": [window and window.to_dict() for window in self.windows],
        }
        (folder / "engine.json").write_text(json.dumps(settings, indent=2) + "\n")
        return drained

    @staticmethod
    def load(folder: str | Path, *, arrays: str | Path | None = None) -> LocalEngine:
        """The engine that `save` wrote, rebuilt by one forward pass; `arrays` is the folder of a new one."""
        folder = Path(folder)
        try:
            settings = json.loads((folder / "engine.json").read_text())
        except FileNotFoundError:
            raise FileNotFoundError(
                f"no engine at {folder}: save one there with engine.save(folder)"
            ) from None
        if settings.get("format") != _FORMAT:
            raise ValueError(f"{folder} holds an engine of another format: {settings.get('format')!r}")
        reduce, forward = settings.get("windows", (None, None))
        engine = LocalEngine(
            GNN.load(folder / "model.safetensors"),
            settings["parts"],
            make_partitioner(**settings["partitioner"]),
            GraphSchema(**settings["schema"]),
            arrays,
            (reduce and make_window(**reduce), forward and make_window(**forward)),
            settings.get("window_clock", "batch"),
            settings.get("epsilon", 0.0),
            Alerts(**settings["alerts"]) if settings.get("alerts") else None,
        )
        engine.batch, engine._now = settings["batch"], settings["clock"]
        engine._newest = settings.get("newest_event", 0)
        engine.partition.types = settings["types"]
        if (folder / "graph.parquet").exists():
            table = pq.read_table(folder / "graph.parquet")
            part = np.asarray(table["part"]).astype(np.int32)
            engine._rebuild(LogEntry(EventBatch.from_arrow(table.drop_columns("part")), part))
        return engine

    @property
    def imbalance(self) -> float:
        """Time of the busiest part over the mean."""
        total = sum(self.part_seconds)
        return max(self.part_seconds) * self.parts / total if total else 1.0

    def memory(self) -> dict[str, int]:
        """Bytes set aside by each operator, over all parts."""
        used: dict[str, int] = {}
        for (operator, _), space in self._opened.items():
            used[operator] = used.get(operator, 0) + space.nbytes
        return used

    def _rebuild(self, entry: LogEntry | None) -> Updates:
        self.epoch += 1
        self.moment = self._moment(drain=True)._replace(anew=True)
        types = self.partition.types
        self._begin()
        for space in self._opened.values():
            space.reset()
        self.partition.types = types
        if entry is None:
            nothing = EventBatch.edges(np.zeros(0, np.int64), np.zeros(0, np.int64))
            return self._run(nothing, self.partition.process(nothing, self._now))
        self._log.replace(entry)
        result = self.partition.process(entry.events, self._now, replay=entry.part)
        return self._run(entry.events, result)

    def _run(self, batch: EventBatch, result: Partitioned) -> Updates:
        """Partition has spoken: the rest of the chain, operator by operator."""
        metrics = self.metrics
        riders = [block for block in result.blocks if block.kind <= LAST_TOPOLOGY]
        blocks = [block for block in result.blocks if block.kind > LAST_TOPOLOGY]
        # Topology rides along the whole chain: its bytes are the same everywhere.
        mine, riding = self._by_part(riders, self._topology_row_bytes)
        topology = [Topology(part) for part in mine]
        metrics["topology_bytes"] += riding
        all_moved = riding * len(self._chain)
        begun = time.perf_counter()
        for operator, microseconds, taken, row_bytes in self._chain:
            mine, moved = self._by_part(blocks, row_bytes)
            blocks = self._step(operator, topology, mine)
            ended = time.perf_counter()
            metrics[microseconds] += int((ended - begun) * 1e6)
            metrics[taken] += moved
            all_moved += moved
            begun = ended
        metrics["bytes"] += all_moved
        self.batch += 1
        if self.folder is not None:  # nobody else comes upon arrays in memory
            for space in self._opened.values():
                space.commit(self.epoch, self.batch)
        return self._updates(batch, result, blocks)

    def _by_part(self, blocks: list[Block], row_bytes: list[int]) -> tuple[list[list[Block]], int]:
        """Blocks by the part that they go to, and the bytes of all of them; those of a row of each kind are
        found out once.
        """
        mine: list[list[Block]] = [[] for _ in range(self.parts)]
        total = 0
        for block in blocks:
            mine[block.target].append(block)
            kind, rows = block.kind, len(block.columns[0])
            if rows and not row_bytes[kind]:
                row_bytes[kind] = sum([column.nbytes for column in block.columns]) // rows
            total += row_bytes[kind] * rows
            if block.blob is not None:
                total += block.blob.nbytes
        return mine, total

    def _step(
        self, operator: Operator[Any], topology: list[Topology], mine: list[list[Block]]
    ) -> list[Block]:
        if self.parts == 1:
            return operator.step(0, topology[0], mine[0], self.moment)
        sent: list[Block] = []
        moment, seconds = self.moment, self.part_seconds
        begun = time.perf_counter()
        try:
            for part in range(self.parts):
                sent += operator.step(part, topology[part], mine[part], moment)
                ended = time.perf_counter()
                seconds[part] += ended - begun
                begun = ended
        finally:  # after an error, too: nothing may be left for another batch
            sent += operator.together()
        return sent

    def _updates(self, batch: EventBatch, result: Partitioned, blocks: list[Block]) -> Updates:
        dead: list[DeadLetter] = []
        status = result.status
        if not result.clean:
            bad = np.flatnonzero(status >= Reason.NULL_ID).tolist()
            reasons = (Reason(reason).text for reason in status[bad].tolist())
            dead = [DeadLetter(*letter) for letter in zip(batch.rows(bad), reasons, strict=True)]
        scores: PairScores | None = None
        if self._scores:
            scores = PairScores.of([block for block in blocks if block.kind == PAIRS])
            blocks = [block for block in blocks if block.kind == OUTPUT]
        if not blocks:
            empty = np.zeros(0, np.int64)
            embedding = np.zeros((0, self.model.out_width), np.float32)
            return Updates(
                self.batch, IntKeys(empty), embedding, empty, empty, empty > 0, status, dead, pairs=scores
            )
        deleted, when, arrival, embedding = blocks[0].columns[:4]
        if len(blocks) > 1:
            deleted, when, arrival, embedding = (
                np.concatenate([block.columns[c] for block in blocks]) for c in range(4)
            )
        said: tuple[Floats | None, Floats | None] = None, None
        if self._says:
            both = np.concatenate([block.columns[4] for block in blocks])
            said = both[:, 0], both[:, 1]
        ids = concat_keys([block_keys(block) for block in blocks])
        gone = deleted.view(np.bool_)
        return Updates(self.batch, ids, embedding, when, arrival, gone, status, dead, *said, scores)

    def _begin(self) -> None:
        if self.folder is not None:
            for space in self._opened.values():
                space.begin()

    def _space(self, operator: str, part: int) -> Space:
        space = self._opened.get((operator, part))
        if space is None:
            where = self.folder
            if where is None:
                space = Space()
            else:
                space = MappedSpace(Path(where) / operator / str(part))
                space.reset()  # the log is this engine's own: what another one left behind is of no use
                space.commit(0, 0)
            self._opened[operator, part] = space
        return space
