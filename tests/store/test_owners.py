"""A store has one owner at a time; a query that takes it over maps its batches onto the log exactly once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3gnn import GraphSchema
from d3gnn.events import EventBatch, Reason
from d3gnn.kernel.log import LogEntry
from d3gnn.store.entry import EntryMeta
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.owners import Owner, Owners
from d3gnn.store.sealed_json import to_json
from d3gnn.store.store import FORK, Store, StoreInUse

SCHEMA = GraphSchema(features={"x": 1})


class Query:
    """A query as far as its batches go: it binds, then logs."""

    def __init__(self, store: Store, name: str, adopt: bool = False) -> None:
        store.fix({"ids": "int", "keys": "int", "parts": 1, "schema": SCHEMA.to_dict()})
        self.name, self.adopt, self.log = name, adopt, GraphLog(store)
        self.owners = Owners(store, self.log)

    def bind(self) -> int:
        return self.owners.bind(self.name, adopt=self.adopt)

    def create(self, number: int) -> bool:
        """Log a batch of one edge, with a clock."""
        events = EventBatch.edges([number], [number + 1])
        meta = EntryMeta.of(number, events, np.array([Reason.APPLIED], np.int8), clock=50, newest_event=60)
        return self.log.create(number, LogEntry(events, np.zeros(1, np.int32)), meta)

    def run(self, batch: int) -> int:
        """One batch; returns its number in the log."""
        number = self.bind() + batch
        self.log.check_next(number)
        assert self.create(number), f"batch {number} was logged by another process"
        return number


def test_a_new_query_goes_on_behind_the_old_one(tmp_path: Path) -> None:
    first, second = Query(Store(tmp_path), "first"), Query(Store(tmp_path), "second", adopt=True)
    assert [first.run(0), first.run(1)] == [0, 1]
    with pytest.raises(StoreInUse, match=r"belongs to the streaming query first.*adopt=True"):
        Query(Store(tmp_path), "second").bind()
    assert [second.run(0), second.run(1)] == [3, 4]
    assert second.owners.newest() == Owner("second", 3)
    separating = second.log.meta(2)
    assert separating is not None
    assert (separating.rows, separating.clock, separating.newest_event) == (0, 50, 60)
    # The flag may stay, or go.
    assert Query(Store(tmp_path), "second", adopt=True).run(2) == 5
    assert Query(Store(tmp_path), "second").run(3) == 6
    assert second.log.graph().num_rows == 8 + 6


@pytest.mark.parametrize("adopt", [False, True])
def test_a_former_owner_is_refused(tmp_path: Path, adopt: bool) -> None:
    first = Query(Store(tmp_path), "first", adopt)
    first.run(0)
    second = Query(Store(tmp_path), "second", adopt=True)
    second.run(0)
    for one in (first, Query(Store(tmp_path), "first", adopt)):  # while it runs, and after a restart
        with pytest.raises(StoreInUse, match=r"until query second took it over.*a new checkpoint"):
            one.run(1)
    Query(Store(tmp_path), "third", adopt=True).run(0)
    with pytest.raises(StoreInUse, match="until query third took it over"):
        second.run(1)


class Interrupted(Store):
    """A store in which something happens around the creation of one file."""

    path = ""
    before: Callable[[], object] = staticmethod(lambda: None)
    after: Callable[[], object] = staticmethod(lambda: None)

    def create(self, path: str, *data: Any) -> bool:
        hit = path.startswith(self.path)
        if hit:
            self.before()
        created = super().create(path, *data)
        if hit:
            self.after()
        return created


def crash() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("path", ["owners/", "log/", "offsets/"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_crash_at_any_moment_of_the_adoption(tmp_path: Path, path: str, moment: str) -> None:
    first = Query(Store(tmp_path), "first")
    first.run(0)
    store = Interrupted(tmp_path)
    store.path = path
    setattr(store, moment, crash)
    with pytest.raises(KeyboardInterrupt):
        Query(store, "second", adopt=True).bind()
    if (path, moment) == ("owners/", "before"):  # nothing has happened yet
        assert first.run(1) == 1
    else:
        with pytest.raises(StoreInUse, match="took it over"):
            first.run(1)
    second = Query(Store(tmp_path), "second", adopt=True)
    numbers = [second.run(0), second.run(1)]
    assert numbers == [second.log.last() - 1, second.log.last()]  # type: ignore[operator]
    assert [second.log.meta(n).rows for n in range(1, numbers[0])].count(0) in (1, 2)  # type: ignore[union-attr]
    assert Query(Store(tmp_path), "second").bind() == numbers[0]


def test_a_batch_that_the_old_query_has_begun(tmp_path: Path) -> None:
    """It has passed its check, and logs its batch before or after the entry that separates the two."""
    first = Query(Store(tmp_path), "first")
    first.run(0)
    store = Interrupted(tmp_path)
    store.path, store.before = "log/", lambda: first.create(1)
    second = Query(store, "second", adopt=True)
    assert second.bind() == 3
    assert first.log.meta(1).rows == 1  # type: ignore[union-attr]

    assert second.run(0) == 3
    second.bind()
    third_store = Interrupted(tmp_path)
    created: list[bool] = []
    third_store.path, third_store.after = "log/", lambda: created.append(second.create(4))
    assert Query(third_store, "third", adopt=True).bind() == 5
    assert created == [False]


def test_a_fork_has_entries_before_it_has_an_owner(tmp_path: Path) -> None:
    query = Query(Store(tmp_path), "first")
    query.create(0)
    Store(tmp_path).create(FORK, to_json({"entries": 1}))
    assert [query.run(0), query.run(1)] == [1, 2]
    assert Query(Store(tmp_path), "first").bind() == 1
