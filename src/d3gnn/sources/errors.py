"""What a source says when it cannot read its input."""

from __future__ import annotations


class EdgeListError(ValueError):
    """An edge list that cannot be read: what was wrong, where, and what to do."""
