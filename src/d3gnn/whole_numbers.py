"""Settings that are whole numbers."""

from __future__ import annotations


def check_whole(name: str, given: object, least: int = 1) -> None:
    """Raise ValueError for a setting that is no integer of at least `least`.

    >>> check_whole("parts", "2")
    Traceback (most recent call last):
    ValueError: parts='2': must be an integer of at least 1
    """
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise ValueError(f"{name}={given!r}: must be an integer of at least {least}")
