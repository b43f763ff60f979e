"""Errors of sources."""

from __future__ import annotations


class EdgeListError(ValueError):
    """An input that cannot be read; the message has the file, what is wrong, and what to do."""
