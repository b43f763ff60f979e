"""The warning about vertices without features."""

from __future__ import annotations

from d3gnn.cli.reports import Totals


def missing_features(totals: Totals, *, trained: bool, rule: object) -> str:
    """A warning if most vertices lack a feature; empty if not.

    Without a trained model and with the rule `hash`, features are not expected.
    """
    if 2 * totals.lacking <= totals.vertices or (rule == "hash" and not trained):
        return ""
    return (
        f"warning: {totals.lacking:,} of {totals.vertices:,} vertices lack a feature. The model sees "
        f"{_INPUT.get(str(rule), 'the numbers of --missing')} instead, and what it says of them may mean "
        "nothing. Look for an input that is missing, or for ids that differ between the inputs"
    )


_INPUT = {"zero": "zeros", "hash": "random numbers"}
