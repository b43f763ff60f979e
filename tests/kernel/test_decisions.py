"""Compiled code and Python read the same columns by the same names."""

from __future__ import annotations

from typing import Any

import numpy as np

from d3gnn.kernel.operators.decisions import LISTS, Decisions, add_entry, make_decisions, named


def test_names_refer_to_the_same_rows_in_python_and_in_compiled_code() -> None:
    decisions = make_decisions(2)
    decisions.rows[:] = np.arange(decisions.rows.size).reshape(decisions.rows.shape)
    decisions.counts[:] = np.arange(len(LISTS)) % 6
    compiled: Decisions = named.py_func(*decisions)  # type: ignore[attr-defined]
    assert [type(columns) for columns in compiled[1:]] == list(LISTS)
    for i in range(len(LISTS)):
        columns: Any = compiled[i + 1]
        for name, column in zip(columns._fields, decisions.of(type(columns)), strict=True):
            assert column.tolist() == getattr(columns, name)[: i % 6].tolist()
            assert np.shares_memory(column, decisions.rows) or not len(column)


def test_every_row_has_one_name() -> None:
    decisions = make_decisions(1)
    assert sum(len(kind._fields) for kind in LISTS) == len(decisions.rows)
    assert decisions.rows.shape[1] == 3, "two vertices in up to three replicas"


def test_entries_are_numbered() -> None:
    counts = make_decisions(1).counts
    assert [add_entry(counts, 2), add_entry(counts, 2), add_entry(counts, 0)] == [0, 1, 0]
    assert counts.tolist() == [1, 0, 2, 0, 0, 0, 0, 0, 0]
