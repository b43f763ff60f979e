"""Loops over touched masters: combine partials, store new values, collect what changed.

`merge` and `finish` stand for the steps of an aggregator: the loops are specialised for each.
"""

from __future__ import annotations

from d3gnn.kernel.aggregators.linear import add_up as merge
from d3gnn.kernel.aggregators.linear import copy_total as finish
from d3gnn.kernel.compiled import inlined, lean
from d3gnn.kernel.operators.master_lists import MESSAGES, NEXT_PARTIAL
from d3gnn.kernel.prefetch import AHEAD, fetch, fetch_row
from d3gnn.kernel.touched import ARRIVAL, TIME, VERTEX, clear
from d3gnn.types import Bytes, Doubles, Floats, Ints, Ints32


@inlined
def combine(
    row: int, first: Ints32, partials: Ints32, states: Floats, slots: Ints32, sums: Doubles, partial: Floats,
    params: Ints, total: Doubles, aggregate: Floats,
) -> None:  # fmt: skip
    """The aggregate of one master, of the partials of all parts; `partial` and `total` are scratch for one
    state each.

    Where `states` has no columns, there is one part, and the partial is what it has as `sums`.
    """
    for k in range(len(total)):
        total[k] = 0.0
    count = 0
    at = first[row] - 1
    while at >= 0:
        if states.shape[1]:
            merge(count == 0, states[at], total, params)
        else:
            for k in range(len(partial)):
                partial[k] = sums[slots[row], k]
            merge(count == 0, partial, total, params)
        count += partials[at, MESSAGES]
        at = partials[at, NEXT_PARTIAL] - 1
    finish(count, total, params, aggregate)


@lean
def combine_partials(
    begin: int, touched: Ints, roots: Floats, first: Ints32, partials: Ints32, states: Floats, slots: Ints32,
    sums: Doubles, params: Ints, root: Floats, aggregate: Floats, partial: Floats, total: Doubles,
) -> None:  # fmt: skip
    """Root and aggregate of the touched masters from number `begin` on."""
    last = begin + len(root)
    for i in range(len(root)):
        fetch(first, touched[min(last, begin + i + 1 + 2 * AHEAD), VERTEX])
        next = touched[min(last, begin + i + 1 + AHEAD), VERTEX]
        fetch_row(roots, next)
        fetch(partials, first[next] - 1)
        if states.shape[1]:
            fetch_row(states, first[next] - 1)
        else:
            fetch_row(sums, slots[next])
        row = touched[begin + i + 1, VERTEX]
        for k in range(roots.shape[1]):
            root[i, k] = roots[row, k]
        combine(row, first, partials, states, slots, sums, partial, params, total, aggregate[i])


@lean
def combine_into_rows(
    touched: Ints, first: Ints32, partials: Ints32, states: Floats, slots: Ints32, sums: Doubles,
    params: Ints, partial: Floats, total: Doubles, begin: int, value: Floats,
) -> None:  # fmt: skip
    """Write the aggregates of touched masters into their values, from column `begin` on."""
    for i in range(touched[0, VERTEX]):
        row = touched[i + 1, VERTEX]
        combine(row, first, partials, states, slots, sums, partial, params, total, value[row, begin:])


@lean
def renew(
    begin: int, kept: int, fresh: Floats, min_change: float, value: Floats, unsent: Bytes, touched: Ints,
    rows: Ints32, values: Floats, time: Ints, arrival: Ints,
) -> int:  # fmt: skip
    """Store new values of the touched rows from number `begin` on. Rows that changed, or were never sent, are
    appended to the columns, which hold `kept` rows; returns how many they hold then.

    A value in which no number changed by more than `min_change` since it was sent stays as it was sent. After
    the last rows the set is empty.
    """
    width = value.shape[1]
    last = begin + len(fresh)
    for i in range(begin, last):
        fetch_row(value, touched[min(last, i + 1 + AHEAD), VERTEX])
        row = touched[i + 1, VERTEX]
        changed = unsent[row] == 1
        if min_change > 0:
            for k in range(width):
                changed |= not abs(fresh[i - begin, k] - value[row, k]) <= min_change
        if min_change == 0 or changed:
            for k in range(width):
                changed |= fresh[i - begin, k] != value[row, k]
                value[row, k] = fresh[i - begin, k]
                values[kept, k] = fresh[i - begin, k]
        if changed:
            rows[kept], time[kept], arrival[kept] = row, touched[i + 1, TIME], touched[i + 1, ARRIVAL]
            unsent[row] = 0
            kept += 1
    if last == touched[0, VERTEX]:
        clear(touched)
    return kept


@lean
def renew_few(
    touched: Ints, roots: Floats, first: Ints32, partials: Ints32, states: Floats, slots: Ints32,
    sums: Doubles, params: Ints, root: Floats, aggregate: Floats, partial: Floats, total: Doubles,
    left: Floats, right: Floats, bias: Floats, relu: bool, fresh: Floats, min_change: float,
    value: Floats, unsent: Bytes, rows: Ints32, values: Floats, time: Ints, arrival: Ints,
) -> int:  # fmt: skip
    """All that happens to a few touched masters, in one call: combine partials, an affine update, `renew`."""
    combine_partials(
        0, touched, roots, first, partials, states, slots, sums, params, root, aggregate, partial, total
    )
    for i in range(len(fresh)):
        for j in range(fresh.shape[1]):
            fresh[i, j] = bias[j]
        add_product(aggregate[i], left, fresh[i])
        add_product(root[i], right, fresh[i])
        for j in range(fresh.shape[1]):
            if relu and fresh[i, j] < 0:
                fresh[i, j] = 0
    return renew(0, 0, fresh, min_change, value, unsent, touched, rows, values, time, arrival)


@inlined
def add_product(row: Floats, weight: Floats, into: Floats) -> None:
    """Add a row times a matrix. Many rows are zero in many places, or everywhere before a first partial."""
    fours = len(row) // 4 * 4
    for k in range(0, fours, 4):
        a, b, c, d = row[k], row[k + 1], row[k + 2], row[k + 3]
        if a != 0.0 or b != 0.0 or c != 0.0 or d != 0.0:
            one, two, three, four = weight[k], weight[k + 1], weight[k + 2], weight[k + 3]
            for j in range(len(into)):
                into[j] += (a * one[j] + b * two[j]) + (c * three[j] + d * four[j])
    for k in range(fours, len(row)):
        for j in range(len(into)):
            into[j] += row[k] * weight[k, j]


@lean
def collect(
    touched: Ints, value: Floats, unsent: Bytes, rows: Ints32, values: Floats, time: Ints, arrival: Ints
) -> None:
    """Collect the touched rows with their values and causes. Empties the set."""
    width = value.shape[1]
    for i in range(touched[0, VERTEX]):
        row = touched[i + 1, VERTEX]
        rows[i], time[i], arrival[i] = row, touched[i + 1, TIME], touched[i + 1, ARRIVAL]
        unsent[row] = 0
        for k in range(width):
            values[i, k] = value[row, k]
    clear(touched)
