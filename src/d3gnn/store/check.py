"""A check of everything in a store: every byte of every file, and how the entries of the log are linked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from d3gnn.store.dead_letters import read_dead_letters
from d3gnn.store.deployments import DEPLOYMENTS
from d3gnn.store.gaps import ranges
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.models import NAMES, read_model_file
from d3gnn.store.names import (
    DEAD_LETTERS,
    LOG,
    MODELS,
    SNAPSHOTS,
    dead_letters_path,
    entry_path,
    files_in,
    snapshot_path,
)
from d3gnn.store.runs import RUNS
from d3gnn.store.seal import Seal
from d3gnn.store.store import (
    FORK,
    OFFSETS,
    OWNERS,
    QUERY,
    SETTINGS,
    Store,
    StoreDamaged,
    StoreError,
    StoreMismatch,
)
from d3gnn.store.training_records import TRAINED


@dataclass(frozen=True)
class Damage:
    """A file that is missing, or is not as it was written."""

    path: str
    problem: str
    #: The batch that it is of; None for settings and models.
    batch: int | None = None


@dataclass
class StoreReport:
    """What a check of a store has found."""

    #: How many files of each kind there are.
    entries: int = 0
    snapshots: int = 0
    models: int = 0
    dead_letters: int = 0
    #: The newest batch of which the log has a trace; -1 for an empty log.
    last: int = -1
    damages: list[Damage] = field(default_factory=list)
    #: Files that d3gnn did not write. They are ignored.
    strays: list[str] = field(default_factory=list)
    #: By batch after which the graph is known (-1 for the empty one): the newest batch up to which undamaged
    #: entries follow it.
    reach: dict[int, int] = field(default_factory=dict)
    #: Batches whose entry is damaged or missing, and those whose entry does not follow the one before.
    bad: set[int] = field(default_factory=set)
    unlinked: set[int] = field(default_factory=set)

    @property
    def damaged_batches(self) -> str:
        """The batches with damaged files, such as `batches 3 to 5 and 9`; empty without damage."""
        found = sorted({damage.batch for damage in self.damages if damage.batch is not None})
        return ranges(found) if found else ""

    def intact(self, upto: int | None = None) -> int | None:
        """The newest batch, up to this one, of which undamaged files give the graph; None if there is none.

        -1 is the empty graph, before the first batch.
        """
        upto = self.last if upto is None else upto
        found = [min(reach, upto) for base, reach in self.reach.items() if base <= upto]
        return max(found, default=None)


def check_store(store: Store, on_entry: Callable[[int, int], None] = lambda done, total: None) -> StoreReport:
    """Read and check all files of a store. `on_entry` gets the entries done, and all."""
    report = StoreReport()
    try:
        log = GraphLog(store)
    except StoreMismatch:
        raise
    except StoreError as error:
        report.damages.append(Damage(SETTINGS, str(error)))
        return report
    _check_owner(store, report)
    _check_models(store, report)
    for match in files_in(store, DEAD_LETTERS, report.strays):
        report.dead_letters += 1
        batch = int(match["number"])
        with _noting(report, dead_letters_path(batch), batch):
            read_dead_letters(store, batch)
    files_in(store, LOG, report.strays)
    files_in(store, SNAPSHOTS, report.strays)
    report.strays += [f"control/{name}" for name in store.list("control") if not name.isdecimal()]
    _check_log(store, log, report, on_entry)
    return report


class _noting:  # noqa: N801  # used like a function
    """Adds the damage that is found in the block to a report; `damaged` tells whether there was any."""

    def __init__(self, report: StoreReport, path: str, batch: int | None = None) -> None:
        self._report, self._path, self._batch = report, path, batch
        self.damaged = False

    def __enter__(self) -> _noting:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.damaged = isinstance(error, StoreDamaged | FileNotFoundError)
        if self.damaged:
            self._report.damages.append(Damage(self._path, str(error), self._batch))
        return self.damaged


def _check_owner(store: Store, report: StoreReport) -> None:
    paths = [f"{folder}/{name}" for folder in (OWNERS, OFFSETS, RUNS) for name in store.list(folder)]
    for path in (QUERY, FORK, *paths):
        with _noting(report, path):
            store.read_json(path)


def _check_models(store: Store, report: StoreReport) -> None:
    for folder in (NAMES, DEPLOYMENTS, TRAINED):
        for name in store.list(folder):
            with _noting(report, f"{folder}/{name}"):
                store.read_json(f"{folder}/{name}")
    for match in files_in(store, MODELS, report.strays):
        report.models += 1
        path = f"{MODELS}/{match.string}"
        with _noting(report, path):
            read_model_file(store, path)


def _check_log(
    store: Store, log: GraphLog, report: StoreReport, on_entry: Callable[[int, int], None]
) -> None:
    batches, snapshots = _batches(store, LOG), _batches(store, SNAPSHOTS)
    report.entries, report.snapshots = len(batches), len(snapshots)
    if not batches and not snapshots:
        report.reach[-1] = -1
        return
    report.last = max(batches[-1:] + snapshots[-1:])
    first = _first(batches, snapshots)
    digests = _check_entries(log, report, first, set(batches), set(snapshots), on_entry)
    bases = [-1] if first == 0 else []
    for batch in snapshots:
        path = snapshot_path(batch)
        with _noting(report, path, batch) as noting:
            read = log.read_snapshot(batch)
            if read is not None and not log.is_linked(batch, read[1], digests.get(batch)):
                problem = (
                    f"it is of another history of the store than the entries from {entry_path(batch)} on"
                )
                raise StoreDamaged.of(path, store.uri, problem)
        if not noting.damaged and batch in digests:
            bases.append(batch)
    stops = sorted(report.bad | report.unlinked)
    for base in bases:
        stop = next((stop for stop in stops if stop > base), report.last + 1)
        # Where two entries are not linked, either may be the wrong one: neither counts.
        doubtful = stop in report.unlinked and stop not in report.bad and stop - 1 > base
        report.reach[base] = stop - 1 - doubtful


def _batches(store: Store, folder: str) -> list[int]:
    return [int(match["number"]) for match in files_in(store, folder, [])]


def _first(batches: list[int], snapshots: list[int]) -> int:
    """The first batch that must have an entry: older ones may be deleted where a snapshot has their graph."""
    if batches and snapshots and batches[0] <= snapshots[-1] + 1:
        return batches[0]
    return 0


def _check_entries(
    log: GraphLog,
    report: StoreReport,
    first: int,
    batches: set[int],
    snapshots: set[int],
    on_entry: Callable[[int, int], None],
) -> dict[int, bytes]:
    """Check the entries in order; returns the digests of those that have a snapshot, from the entry after it
    where the entry itself is damaged.
    """
    digests: dict[int, bytes] = {}
    previous = log.origin(0) if first == 0 else None
    for batch in range(first, report.last + 1):
        path = entry_path(batch)
        found: Seal | None = None
        with _noting(report, path, batch):
            found = log.read_sealed(batch) if batch in batches else None
            if found is None:
                raise FileNotFoundError("it is missing")
        if found is None:
            report.bad.add(batch)
        else:
            with _noting(report, path, batch) as noting:
                log.check_link(batch, found, previous)
            if noting.damaged:
                report.unlinked.add(batch)
            if batch in snapshots:
                digests[batch] = found.digest
            if batch - 1 in snapshots:
                digests.setdefault(batch - 1, found.previous)
        previous = found and found.digest
        on_entry(batch - first + 1, report.last - first + 1)
    return digests
