"""Format numbers, durations and text for tables."""

from __future__ import annotations

import math
import re
from typing import Any

from d3gnn.bench.report.section import Cell, Loss

#: Shown for missing values.
DASH = "—"


def number(value: Any, unit: str = "") -> str:
    """Format with three significant digits and thousands separators; a dash for None.

    >>> number(1234567), number(45678.9), number(3.14159, "ms"), number(2e-7), number(None)
    ('1,234,567', '45,679', '3.14 ms', '2.0e-07', '—')
    """
    if value is None:
        return DASH
    if isinstance(value, bool) or not isinstance(value, int | float):
        return one_line(value)
    text = f"{value:,}" if isinstance(value, int) else _fraction(value)
    return f"{text} {unit}" if unit else text


def _fraction(value: float) -> str:
    size = abs(value)
    if not math.isfinite(value) or size == 0:
        return f"{value:g}"
    if size < 1e-5:
        return f"{value:.1e}"
    # Rounding may add a digit in front: 9.996 is 10.0.
    before = math.floor(math.log10(float(f"{size:.2e}")))
    return f"{value:,.{max(0, 2 - before)}f}"


def one_line(value: Any) -> str:
    """Text on one line; a dash if it is missing."""
    if value is None or value == "":
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(str(value).split())


def percent(value: float | None) -> str:
    return DASH if value is None else f"{100 * value:.0f} %"


def error(value: Any) -> str:
    return f"{value:.1e}" if isinstance(value, int | float) else one_line(value)


def duration(seconds: float) -> str:
    """Format seconds in s, ms or us.

    >>> duration(0.0000123), duration(0.25), duration(90.0)
    ('12.3 us', '250 ms', '90.0 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{_fraction(seconds / size)} {unit}"
    return f"{_fraction(seconds * 1e6)} us"


def times(ratio: float | None) -> Cell:
    """Format a speed-up; a `Loss` if it is below 1.

    >>> str(times(12.34)), str(times(0.4)), times(None)
    ('12.3 x', 'slower: 0.4 x', '—')
    """
    if ratio is None:
        return DASH
    return Loss(f"slower: {_below_one(ratio)} x") if ratio < 1 else f"{_fraction(ratio)} x"


def _below_one(ratio: float) -> str:
    """Enough digits that a ratio below 1 is never rounded to 1."""
    return f"{ratio:.3g}" if ratio < 0.9995 else f"{math.floor(ratio * 1e6) / 1e6:.6g}"


def slug(text: str) -> str:
    """A part of a file name.

    >>> slug("Power law, 2 M <edges>")
    'power-law-2-m-edges'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
