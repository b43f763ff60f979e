"""What runs inside a Python worker: operators over mapped arrays, each batch applied exactly once.

The arrays of (operator, part) lie in files local to the host, so that any worker process can go on where
another left off. Their version says which batch they have taken in:

- one batch behind: process, put what is to be sent into the outbox, stamp the version;
- at this batch already (a retried stage, a second action): what is in the outbox is sent again, and nothing
  changes;
- anything else, or a batch that was begun and not finished: lost. The next run then begins a new epoch.
"""

from __future__ import annotations

import gc
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch

from d3gnn.events import GraphSchema
from d3gnn.kernel.alerts import Alerts
from d3gnn.kernel.arrays import MappedSpace, Space, StateLost
from d3gnn.kernel.blocks import Block
from d3gnn.kernel.operators import Operator, Partition, make_operator, names_of
from d3gnn.kernel.partitioners import Partitioner
from d3gnn.kernel.windows import Clock, Window
from d3gnn.nn.model import GNN
from d3gnn.spark.board import Board
from d3gnn.spark.made_with import MadeWith
from d3gnn.spark.models import get_model
from d3gnn.spark.outbox import Outbox, read_sent
from d3gnn.spark.parcels import Bytes, Delivery, Parcels, Stamp, pack_parcels
from d3gnn.spark.store import Store

#: The store's name under a checkpoint.
STORE = "graph"
#: Files here lie in memory.
_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Plan:
    """All that a worker needs to know; travels with the query."""

    name: str
    store: str
    arrays: str  # folder for the arrays, on each host
    parts: int
    partitioner: Partitioner
    schema: GraphSchema
    model: str  # path of the saved model in the store
    model_version: int
    layers: int
    #: Whether degrees are counted, and whether values go to where edges end, too: as the model wants it.
    degrees: bool = False
    destinations: bool = False
    stop_on_dead_letter: bool = False
    #: Windows of Edge and of Vertex operators.
    reduce: Window | None = None
    forward: Window | None = None
    #: What they tell the time by.
    clock: Clock = "batch"
    #: Changes of no more than this do not travel on.
    epsilon: float = 0.0
    #: Whether the model has a head, and what of that it says comes out.
    says: bool = False
    alerts: Alerts | None = None
    #: Whether the head is for pairs of vertices: then their scores come out.
    pairs: bool = False

    @property
    def sending(self) -> str:
        """What decides on when something is sent, and whether at all, as a line."""
        windows = [window and window.to_dict() for window in (self.reduce, self.forward)]
        clock = self.clock if any(windows) else None
        alerts = self.alerts and asdict(self.alerts)
        return json.dumps([*windows, clock, self.epsilon, alerts], sort_keys=True)

    @property
    def windowed(self) -> bool:
        return self.reduce is not None or self.forward is not None

    @property
    def made_with(self) -> MadeWith:
        """What arrays of this plan are made with."""
        return MadeWith.of(self.model_version, self.sending)

    @property
    def operators(self) -> list[str]:
        """Behind Partition, in the order in which a batch passes them."""
        return names_of(self.layers, self.degrees, self.pairs)

    @property
    def large(self) -> Path:
        """Folder, on each host, for what is too large for memory."""
        arrays = Path(self.arrays)
        in_memory = arrays.is_relative_to(_MEMORY)
        return Path(tempfile.gettempdir()) / f"{arrays.name}-large" if in_memory else arrays


class Done(NamedTuple):
    """What an operator part has to say of a batch."""

    parcels: Parcels
    metrics: dict[str, int]


class Runtime:
    """The operators of one plan in one worker process."""

    _made: dict[tuple[Plan, str], Runtime] = {}  # noqa: RUF012  # one for each query and process

    @staticmethod
    def of(plan: Plan, query: str) -> Runtime:
        runtime = Runtime._made.get((plan, query))
        if runtime is None:
            runtime = Runtime._made[plan, query] = Runtime(plan, query)
        return runtime

    def __init__(self, plan: Plan, query: str) -> None:
        self.plan, self.query = plan, query
        torch.set_num_threads(1)  # the tasks are the parallelism
        self._spaces: dict[tuple[str, int], MappedSpace] = {}
        self._operators: dict[str, Operator[Any]] = {}
        self._settled: set[str] = set()

    def close(self) -> None:
        """Let go of all files, of which there are hundreds, and Spark's callbacks want low numbers."""
        self._operators.clear()
        self.__dict__.pop("partition", None)
        for space in self._spaces.values():
            space.close()
        self._spaces.clear()

    @cached_property
    def model(self) -> GNN:
        model = get_model(Store(self.plan.store), self.plan.model).eval()
        for layer in model.layers:
            layer.prepare()
        return model

    @cached_property
    def partition(self) -> Partition:
        plan = self.plan
        space = self.space("partition", 0)
        return Partition(plan.schema, plan.parts, plan.partitioner, space, plan.destinations, plan.pairs)

    @cached_property
    def board(self) -> Board:
        return Board(self.plan.arrays, self.plan.operators, self.plan.parts)

    def operator(self, name: str) -> Operator[Any]:
        """Vertex or Edge l, by name."""
        operator = self._operators.get(name)
        if operator is None:
            plan = self.plan
            windows = plan.reduce, plan.forward
            operator = make_operator(
                name, self.model, plan.parts, plan.schema, self.space, windows, plan.epsilon, plan.alerts,
                tells_vertices=False,
            )  # fmt: skip
            self._operators[name] = operator
        return operator

    def space(self, operator: str, part: int) -> Space:
        space = self._spaces.get((operator, part))
        if space is None or not space.is_current():
            space = self._spaces[operator, part] = MappedSpace(self.folder(operator, part))
            # Whoever has deleted the files has deleted what is known of them.
            self._operators.pop(operator, None)
            self.__dict__.pop(operator, None)
        return space

    def folder(self, operator: str, part: int) -> Path:
        # By query: arrays that an earlier one has left, whose checkpoint was deleted, must not pass for ours.
        return Path(self.plan.arrays) / self.query / operator / str(part)

    def outbox(self, operator: str, part: int) -> Outbox:
        return Outbox(self.folder(operator, part), self.plan.large / self.query / operator / str(part))

    def sweep(self) -> None:
        """Delete what other queries of this pipeline have left here."""
        for folder in Path(self.plan.arrays).glob("*-*-*-*-*"):
            if folder.name != self.query and (folder / "partition" / "0" / "header").exists():
                shutil.rmtree(folder, ignore_errors=True)
                shutil.rmtree(self.plan.large / folder.name, ignore_errors=True)

    def run(self, name: str, part: int, parcels: Iterable[Bytes], sources: int) -> Done:
        """Take one part through one batch."""
        delivery = Delivery.of(parcels, sources)
        stamp = delivery.stamp
        space = self.space(name, part)
        operator = self.operator(name)
        assert isinstance(space, MappedSpace)
        with space.locked():
            if stamp.refresh:
                self.expect_older(name, part, space, stamp)
            else:
                if (sent := self.sent(name, part, space, stamp)) is not None:
                    return Done(sent, {"kept": 1, "parcels": len(sent), "bytes": sent.nbytes})
                self.expect(name, part, space, stamp)
            begun = time.perf_counter()
            before = operator.metrics.copy()
            space.begin()
            if stamp.refresh:
                space.reset()
            waiting = operator.pending(part)
            merged = 0 if waiting is None else waiting.merged
            # Only now, with this batch not taken in, is it certain that nobody writes over what was sent.
            blocks = delivery.blocks(read_sent)
            out = operator.process(part, blocks, stamp.moment)
            metrics = {key: operator.metrics[key] - before[key] for key in operator.metrics}
            if waiting is not None:
                # Before the version is stamped: a batch that was taken in is on the board, whoever dies then.
                self.board.write(name, part, waiting)
                metrics |= {"pending": len(waiting), "oldest_ms": waiting.age_ms(stamp.clock)}
                metrics["merged"] = waiting.merged - merged
            sent = self.send(name, part, space, stamp, out)
            metrics["busy_us"] = int((time.perf_counter() - begun) * 1e6)
            metrics |= {"parcels": len(sent), "bytes": sent.nbytes}
        self.settle(name)
        return Done(sent, metrics)

    def settle(self, name: str) -> None:
        """After an operator's first batch in this process: what is loaded by now is here to stay.

        Spark collects garbage after every task, and would look at all of it each time.
        """
        if name not in self._settled:
            self._settled.add(name)
            gc.collect()
            gc.freeze()

    def sent(self, name: str, part: int, space: Space, stamp: Stamp) -> Parcels | None:
        """What was sent in this batch, if it was taken in already and not in a refresh."""
        if space.dirty or space.version != (stamp.epoch, stamp.batch + 1):
            return None
        return self.outbox(name, part).sent(stamp)

    def expect(self, name: str, part: int, space: Space, stamp: Stamp) -> None:
        """The arrays must be one batch behind, and whole."""
        if not space.dirty and space.version == (stamp.epoch, stamp.batch + 1):
            space.begin()  # what was sent is lost, and so is what could make it again: the next run sees it
        if space.dirty or space.version != (stamp.epoch, stamp.batch):
            found = "a batch that was begun and not finished" if space.dirty else f"{space.version}"
            raise StateLost(
                f"{name}, part {part}: the arrays in {self.folder(name, part)} hold {found}, but batch "
                f"{stamp.batch} of epoch {stamp.epoch} needs {(stamp.epoch, stamp.batch)}. Start the query "
                "again: it will rebuild them from the graph log."
            )

    def expect_older(self, name: str, part: int, space: Space, stamp: Stamp) -> None:
        """A worker that a stopped run has left behind must not undo what a later run has begun anew."""
        if space.version[0] > stamp.epoch:
            raise StateLost(
                f"{name}, part {part}: epoch {space.version[0]} has begun in {self.folder(name, part)}, so "
                f"what is left of epoch {stamp.epoch} comes too late"
            )

    def send(self, name: str, part: int, space: Space, stamp: Stamp, blocks: Iterable[Block]) -> Parcels:
        """Make parcels of the blocks of this batch and stamp the version, in this order."""
        outbox = self.outbox(name, part)
        if stamp.refresh:
            # All of the graph, and no part of it comes again: if need be it is done anew from its input. So
            # it goes through Spark, which has disks for it; and nothing older may pass for it.
            outbox.clear()
            parcels = pack_parcels(stamp, part, self.plan.parts, blocks)
        else:
            parcels = outbox.send(stamp, part, self.plan.parts, blocks)
        space.commit(stamp.epoch, stamp.batch + 1)
        return parcels


def default_arrays(name: str, store: str) -> str:
    """Where the arrays of a pipeline lie on the host."""
    store = absolute(store)
    root = _MEMORY if _MEMORY.is_dir() else Path(tempfile.gettempdir())
    return str(root / f"d3gnn-{name}-{hashlib.sha256(store.encode()).hexdigest()[:12]}")


def absolute(path: str | Path) -> str:
    """A local path as seen from anywhere; a URI as it is."""
    return str(path) if ":/" in str(path) else str(Path(path).resolve())
