"""Which streaming query owns a store, and which entry of the log is its first batch.

A query numbers its batches from 0, the log its entries from the first query of the store on. The log's number
of a query's batch is therefore `offset` + its number there. A query that takes over a store is safe against
the query before it, which may still run, and against a crash between any two of these steps:

1. It creates the next file in `owners/`: from now on all earlier owners are refused, in their next batch.
2. It creates the next entry of the log, without events. An earlier owner that passed its check before step 1
   may try to create the same entry: only one of the two can. If that is the earlier owner, its batch counts,
   and the new query tries the entry after it.
3. It writes its offset, the number after its empty entry. It processes no batch before.

After a crash it repeats the steps that are missing. That may leave a second empty entry, which changes
nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from d3gnn.events import EventBatch
from d3gnn.store.entry import EntryMeta
from d3gnn.store.graph_log import NO_ENTRY, GraphLog
from d3gnn.store.input_hash import input_hash
from d3gnn.store.sealed_json import to_json
from d3gnn.store.store import FORK, OFFSETS, OWNERS, QUERY, Store, StoreInUse

__all__ = ["Owner", "Owners"]


class Owner(NamedTuple):
    """A query that owns a store, or owned it."""

    query: str
    #: The log's number of its batch 0.
    offset: int


class Owners:
    """The owners of a store, one after the other.

    >>> import tempfile
    >>> from d3gnn.events import GraphSchema
    >>> store = Store(tempfile.mkdtemp())
    >>> store.fix({"ids": "int", "keys": "int", "parts": 1, "schema": GraphSchema().to_dict()})
    >>> owners = Owners(store, GraphLog(store))
    >>> owners.bind("first"), owners.bind("second", adopt=True)
    (0, 1)
    """

    def __init__(self, store: Store, log: GraphLog) -> None:
        self._store, self._log = store, log
        self._bound: Owner | None = None
        self._following = ""  # the file of the next owner

    def bind(self, query: str, *, adopt: bool = False) -> int:
        """Make this query the owner, or check that it is; returns the log's number of its batch 0.

        With `adopt`, a query that never owned the store takes it over from its owner. Raises `StoreInUse` if
        another query owns the store.
        """
        bound = self._bound
        if bound is None or bound.query != query or self._store.exists(self._following):
            self._bound = None
            bound, self._following = self._bind(query, adopt)
            self._bound = bound
            self._store.sweep()
        return bound.offset

    def newest(self) -> Owner | None:
        """The owner, as far as its offset is known; None before the first query."""
        names = self._store.list(OWNERS)
        for name in reversed(names):
            if (offset := self._read(f"{OFFSETS}/{name}")) is not None:
                return Owner(self._read(f"{OWNERS}/{name}")["query"], offset["offset"])
        first = self._read(QUERY)
        return None if first is None else Owner(first["query"], first.get("offset", 0))

    def _bind(self, query: str, adopt: bool) -> tuple[Owner, str]:
        self._store.check_owner()
        first = self._read(QUERY)
        if first is None:
            fork = self._read(FORK)  # it has entries before it has an owner
            content = {"query": query} | ({} if fork is None else {"offset": fork["entries"]})
            self._store.create(QUERY, to_json(content))
            first = self._read(QUERY)
        while True:
            names = self._store.list(OWNERS)
            queries = [first["query"], *(self._read(f"{OWNERS}/{name}")["query"] for name in names)]
            following = f"{len(names) + 1:06d}.json"
            if queries[-1] == query:
                offset = first.get("offset", 0) if not names else self._offset(names[-1])
                return Owner(query, offset), f"{OWNERS}/{following}"
            if query in queries:
                raise self._taken_over(query, queries[-1])
            if not adopt:
                raise self._in_use(query, queries[-1])
            self._store.create(f"{OWNERS}/{following}", to_json({"query": query}))

    def _offset(self, name: str) -> int:
        """The offset of the newest owner; determined now, if it is not known yet."""
        path = f"{OFFSETS}/{name}"
        if self._read(path) is None:
            self._store.create(path, to_json({"offset": self._separate() + 1}))
        return int(self._read(path)["offset"])

    def _separate(self) -> int:
        """Create an empty entry behind all others; returns its number."""
        nothing = EventBatch.of([])
        while True:
            last = self._log.last()
            before = EntryMeta(-1, 0, 0) if last is None else self._log.meta(last)
            assert before is not None
            meta = replace(
                before, batch=before.batch + 1, rows=0, input_hash=input_hash(nothing), repeated=0, late=0,
                dead=0,
            )  # fmt: skip
            if self._log.create(meta.batch, NO_ENTRY, meta):
                return meta.batch

    def _read(self, path: str) -> Any:
        return self._store.read_json(path)

    def _in_use(self, query: str, owner: str) -> StoreInUse:
        return StoreInUse(
            f"the store {self._store.uri} belongs to the streaming query {owner}, so query {query} cannot "
            f"use it: two queries would mix their graphs. To go on where {owner} left off, start with its "
            "checkpoint. To go on with this new checkpoint on the same graph, start with "
            f"StreamingGNN(..., adopt=True), which ends {owner}. For another graph, name another store "
            "(name= or store=), or delete the folder if that graph is no longer wanted."
        )

    def _taken_over(self, query: str, owner: str) -> StoreInUse:
        return StoreInUse(
            f"the store {self._store.uri} belonged to the streaming query {query}, until query {owner} took "
            f"it over (adopt=True). {query} cannot use it any more, with adopt=True neither: the log has "
            f"gone on without it. Go on with the checkpoint of {owner}; or start a new query, with a new "
            "checkpoint and adopt=True."
        )
