"""Two lists for each master, over pools of the part: its links to replicas, and its partial aggregates.

0 ends a list; any other number is that of the next entry plus 1. Entries that are given back form a list of
free ones.
"""

from __future__ import annotations

from d3gnn.kernel.compiled import inlined, lean
from d3gnn.kernel.prefetch import AHEAD, fetch, fetch_row
from d3gnn.kernel.touched import NEVER, touch
from d3gnn.types import Floats, Ints, Ints32

# Columns of a link, by which a replica gets a master's value.
LINK_PART, LINK_SLOT, NEXT_LINK = range(3)
# Columns of a partial aggregate: the part that sent it, how many messages it combines.
PARTIAL_PART, MESSAGES, NEXT_PARTIAL = range(3)
# Counters: links in use, the first free one plus 1; the same for partials.
LINKS, FREE_LINK, PARTIALS, FREE_PARTIAL = range(4)
COUNTERS = 4


@lean
def link(which: Ints32, parts: Ints32, slots: Ints32, first: Ints32, links: Ints32, counters: Ints) -> None:
    """From now on the replica at (part, slot) receives this row's value."""
    for i in range(len(which)):
        at = counters[FREE_LINK] - 1
        if at >= 0:
            counters[FREE_LINK] = links[at, NEXT_LINK]
        else:
            at = counters[LINKS]
            counters[LINKS] += 1
        links[at, LINK_PART] = parts[i]
        links[at, LINK_SLOT] = slots[i]
        links[at, NEXT_LINK] = first[which[i]]
        first[which[i]] = at + 1


@lean
def drop(
    which: Ints32, first_link: Ints32, links: Ints32, first_partial: Ints32, partials: Ints32, counters: Ints
) -> None:
    """Free the links and partials of deleted masters."""
    for row in which:
        while first_link[row] > 0:
            at = first_link[row] - 1
            first_link[row] = links[at, NEXT_LINK]
            links[at, NEXT_LINK] = counters[FREE_LINK]
            counters[FREE_LINK] = at + 1
        while first_partial[row] > 0:
            at = first_partial[row] - 1
            first_partial[row] = partials[at, NEXT_PARTIAL]
            _free_partial(at, partials, counters)


@inlined
def _free_partial(at: int, partials: Ints32, counters: Ints) -> None:
    partials[at, PARTIAL_PART] = -1
    partials[at, NEXT_PARTIAL] = counters[FREE_PARTIAL]
    counters[FREE_PARTIAL] = at + 1


@inlined
def _forget_partial(row: int, source: int, first: Ints32, partials: Ints32, counters: Ints) -> None:
    before = -1
    at = first[row] - 1
    while at >= 0:
        if partials[at, PARTIAL_PART] == source:
            if before < 0:
                first[row] = partials[at, NEXT_PARTIAL]
            else:
                partials[before, NEXT_PARTIAL] = partials[at, NEXT_PARTIAL]
            _free_partial(at, partials, counters)
            return
        before = at
        at = partials[at, NEXT_PARTIAL] - 1


@inlined
def take_partial(
    source: int, row: int, count: int, given: Floats, first: Ints32, partials: Ints32, states: Floats,
    counters: Ints,
) -> None:  # fmt: skip
    """One partial replaces the last one of its sender, or deletes it if its count is 0. Where `states` has no
    columns, the partial is read from the sums of Edge l.
    """
    if count == 0:
        _forget_partial(row, source, first, partials, counters)
        return
    at = first[row] - 1
    while at >= 0 and partials[at, PARTIAL_PART] != source:
        at = partials[at, NEXT_PARTIAL] - 1
    if at < 0:
        at = counters[FREE_PARTIAL] - 1
        if at >= 0:
            counters[FREE_PARTIAL] = partials[at, NEXT_PARTIAL]
        else:
            at = counters[PARTIALS]
            counters[PARTIALS] += 1
        partials[at, PARTIAL_PART] = source
        partials[at, NEXT_PARTIAL] = first[row]
        first[row] = at + 1
    partials[at, MESSAGES] = count
    for k in range(states.shape[1]):
        states[at, k] = given[k]


@lean
def take_partials(
    source: int, full: bool, which: Ints32, counts: Ints32, time: Ints, arrival: Ints, given: Floats,
    first: Ints32, partials: Ints32, states: Floats, counters: Ints, touched: Ints,
) -> None:  # fmt: skip
    """Partials replace the last ones of their sender. A count of 0 deletes one; `full` first deletes all."""
    if full:
        for row in range(len(first)):
            if first[row] > 0:
                _forget_partial(row, source, first, partials, counters)
    last = len(which) - 1
    for i in range(len(which)):
        fetch(first, which[min(last, i + 2 * AHEAD)])
        next = which[min(last, i + AHEAD)]
        fetch(touched, next + 1)
        fetch(partials, first[next] - 1)
        fetch_row(states, first[next] - 1)
        row = which[i]
        if arrival[i] != NEVER:
            touch(touched, row, time[i], arrival[i])
        take_partial(source, row, counts[i], given[i], first, partials, states, counters)
