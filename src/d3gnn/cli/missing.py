"""The option `--missing`: the model's input where a vertex lacks a feature."""

from __future__ import annotations

from typing import Any

from d3gnn.cli.options import named_numbers

#: The rules of `GraphSchema`, and the one of `d3gnn fork`.
_RULES = ("zero", "hash", "mean")


def parse_missing(text: str | None) -> Any:
    """A rule, or numbers by the names of features, from `zero` or `x=0.5,risk=1`.

    >>> parse_missing("zero"), parse_missing("x=0.5,risk=1:2")
    ('zero', {'x': 0.5, 'risk': (1.0, 2.0)})
    """
    if text is None or text in _RULES:
        return text
    return named_numbers("--missing", text)
