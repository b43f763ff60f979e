"""The plan of a pipeline: everything that a task needs; it travels with the query."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from d3gnn.kernel.aggregators import Aggregator
from d3gnn.kernel.aggregators.base import aggregator_types
from d3gnn.kernel.operators import PARTITION, ChainSpec, OperatorConfig, OperatorId
from d3gnn.kernel.partitioners import Partitioner
from d3gnn.nn.heads import BaseHead
from d3gnn.nn.layer import Layer
from d3gnn.nn.model import GNN
from d3gnn.private import resolved
from d3gnn.runtime.config_fingerprint import ConfigFingerprint
from d3gnn.store.runs import Run
from d3gnn.store.store import Store

#: A file system in memory.
MEMORY = Path("/dev/shm")
#: The end of the name of a folder for files that are too large for memory.
LARGE = "-large"
_LONGEST_NAME = 100
#: The files in the store that have the path of the arrays, and the homes of tasks on a cluster.
_RECORD, _HOMES = "arrays.txt", "homes.txt"


@dataclass(frozen=True)
class Plan:
    """What the tasks of a pipeline run, and where its state is kept."""

    name: str
    #: URI of the store.
    store: str
    #: Folder of the mapped arrays, on each host.
    arrays: str
    partitioner: Partitioner
    #: The chain, the settings of its operators, and the path and version of the model in the store with which
    #: the query starts.
    chain: ChainSpec
    config: OperatorConfig
    model: str
    model_version: int
    #: The deployment that chose the model.
    deployment: int = 0
    stop_on_dead_letter: bool = False
    #: How often vertices were erased from the store: state that is older is rebuilt.
    erasures: int = 0
    #: Whether a new query takes over the store of another one.
    adopt: bool = False
    #: Spark tasks of an operator; with 1, one task runs the whole chain, its parts on this many threads.
    tasks: int = 1
    threads: int = 1
    #: On a cluster: the host of each task. Empty if all tasks run on the host of the driver.
    homes: tuple[str, ...] = ()
    #: The run of the query; None where another program starts it. Worker processes serve one run after the
    #: other with what they have loaded.
    run: Run | None = field(default=None, compare=False)
    #: Classes of the model that are not part of d3gnn: a worker looks them up by name.
    plugins: tuple[type, ...] = ()

    @property
    def parts(self) -> int:
        """Logical parts."""
        return self.config.parts

    @property
    def in_one_task(self) -> bool:
        """Whether one task runs the whole chain."""
        return self.tasks == 1 and not self.homes

    def task(self, part: int) -> int:
        """The task of a part, in all operators behind those that run in the task of Partition."""
        return part * self.tasks // self.parts

    def near(self, sender: OperatorId, part: int) -> frozenset[int]:
        """On a cluster: the parts of the next operator on the host of this operator part."""
        first = sender == PARTITION or sender in self.chain.inputs
        home = self.homes[0 if first else self.task(part)]
        return frozenset(other for other in range(self.parts) if self.homes[self.task(other)] == home)

    @property
    def config_fingerprint(self) -> ConfigFingerprint:
        """The fingerprint of everything that state depends on beside the graph."""
        erasures = f" erasures={self.erasures}" if self.erasures else ""
        return ConfigFingerprint.of(self.model_version, self.config.sending + erasures, self.deployment)

    def register_plugins(self) -> None:
        """Register, in a worker, the classes that a pickled plan brought with it."""
        for plugin in self.plugins:  # layers and heads register themselves by their class name
            if issubclass(plugin, Aggregator):
                plugin.register()

    @property
    def large(self) -> Path:
        """Folder, on each host, for files that are too large for memory."""
        return large_folder(Path(self.arrays))


def plugins_of(model: GNN) -> tuple[type, ...]:
    """The layers, heads and aggregators of a model that are not part of d3gnn."""
    modules = [module for module in model.modules() if isinstance(module, Layer | BaseHead)]
    names = {name for module in modules if isinstance(module, Layer) for name in module.aggr.split(",")}
    aggregators = [each for each in aggregator_types() if each.name in names]
    found = dict.fromkeys([*map(type, modules), *aggregators])
    return tuple(each for each in found if not each.__module__.startswith("d3gnn."))


def large_folder(arrays: Path) -> Path:
    """Folder, on each host, for files beside these arrays that are too large for memory."""
    in_memory = arrays.is_relative_to(MEMORY)
    return Path(tempfile.gettempdir()) / f"{arrays.name}{LARGE}" if in_memory else arrays


def check_name(name: str) -> str:
    """The name of a pipeline, which is part of names of folders; raises ValueError if it cannot be.

    >>> check_name("fraud 2")
    'fraud 2'
    """
    if not isinstance(name, str):
        raise ValueError(f"name={name!r}: must be a string")
    fits = 0 < len(name.encode(errors="replace")) <= _LONGEST_NAME
    if fits and all(character.isalnum() or character in " ._-" for character in name):
        return name
    shown = repr(name if len(name) <= 40 else f"{name[:40]}...")
    raise ValueError(
        f"name={shown}: the name of a pipeline has letters, digits, blanks and any of . _ - , and at most "
        f"{_LONGEST_NAME} bytes"
    )


def default_arrays(name: str, store: str) -> str:
    """The folder for the mapped arrays of a pipeline on a host."""
    name, store = check_name(name), absolute(store)
    root = MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir())
    return str(root / f"d3gnn-{name}-{hashlib.sha256(store.encode()).hexdigest()[:12]}")


def record_arrays(store: Store, name: str, arrays: str) -> None:
    """Keep in the store which folder has the pipeline's arrays, unless it is the default one."""
    custom = None if arrays == default_arrays(name, store.uri) else arrays
    if custom != recorded_arrays(store):
        store.delete(_RECORD)
        if custom is not None:
            store.create(_RECORD, custom.encode())


def recorded_arrays(store: Store) -> str | None:
    """The folder that `record_arrays` kept; None for the default one."""
    path = store.read(_RECORD)
    return None if path is None else path.decode(errors="replace")


def record_homes(store: Store, homes: Sequence[str]) -> None:
    """Keep in the store on which hosts of a cluster the tasks of the pipeline run; none: on no cluster."""
    if homes:
        store.replace(_HOMES, "\n".join(homes).encode())
    else:
        store.delete(_HOMES)


def recorded_homes(store: Store) -> tuple[str, ...]:
    """The hosts that `record_homes` kept."""
    hosts = store.read(_HOMES)
    return () if hosts is None else tuple(hosts.decode(errors="replace").splitlines())


def arrays_on_host(store: Store) -> str:
    """The folder for the arrays of a store's pipeline on this host: that of its last start, or the default
    one.
    """
    return recorded_arrays(store) or default_arrays(store.settings["name"], store.uri)


def absolute(path: str | Path) -> str:
    """A local path made absolute; a URI unchanged."""
    return str(path) if ":/" in str(path) else str(resolved(path))
