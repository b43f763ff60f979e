"""Which labels are trained on, held out, or for testing: by id, so that it does not depend on the parts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from d3gnn.training.part_graph import Labels
from d3gnn.training.row_modules import mix
from d3gnn.training.settings import Training
from d3gnn.types import Array, Bools, Hashes, Ints


class Split(NamedTuple):
    """Rows of labels."""

    train: Ints
    holdout: Ints
    test: Ints


def chosen(hashes: Hashes, share: float, seed: int, purpose: int) -> Bools:
    """A share of ids, chosen by a seed; `purpose` tells independent choices apart."""
    drawn: Array = mix(hashes ^ np.uint64(seed * 8191 + purpose)) >> np.uint64(11)
    return drawn < share * 2.0**53


def split(labels: Labels, settings: Training) -> Split:
    """The rows of labels for each purpose."""
    test = labels.test | chosen(labels.hashes, settings.test, settings.seed, 1)
    if settings.test_column is not None:
        width = labels.values.shape[1]
        if not 0 <= settings.test_column < width:
            raise ValueError(
                f"test_column={settings.test_column}: a label has {width} numbers; declare more with "
                "GraphSchema(label_width=)"
            )
        test = test | (labels.values[:, settings.test_column] != 0)
    holdout = ~test & chosen(labels.hashes, settings.holdout, settings.seed, 2)
    return Split(*(np.flatnonzero(rows) for rows in (~test & ~holdout, holdout, test)))


def targets(labels: Labels, settings: Training) -> Array:
    """The values of labels without the mark of tests."""
    if settings.test_column is None:
        return labels.values
    return np.delete(labels.values, settings.test_column, 1)
