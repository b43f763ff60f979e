"""Batches of another size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from d3gnn.events import EventBatch


def rebatch(batches: Iterable[EventBatch], size: int) -> Iterator[EventBatch]:
    """The same events in batches of `size`; the last one may be smaller.

    >>> from d3gnn.events import EventBatch
    >>> [len(batch) for batch in rebatch([EventBatch.edges([1, 2, 3], [2, 3, 4])], 2)]
    [2, 1]
    """
    if size < 1:
        raise ValueError(f"a batch of {size} events: must be at least 1")
    held: list[EventBatch] = []
    have = 0
    for batch in batches:
        held.append(batch)
        have += len(batch)
        if have < size:
            continue
        whole, begin = EventBatch.concat(held) if len(held) > 1 else held[0], 0
        while have - begin >= size:
            yield whole.between(begin, begin + size)
            begin += size
        have -= begin
        held = [whole.between(begin, len(whole))] if have else []
    if have:
        yield EventBatch.concat(held) if len(held) > 1 else held[0]
