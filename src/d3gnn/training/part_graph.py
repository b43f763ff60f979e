"""What a part of a graph holds, as training reads it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from d3gnn.types import Array, Bools, Floats, Hashes, Ints, Ints32


@dataclass
class PartGraph:
    """Masters, replicas and edges of one part. Nothing of it changes during a training.

    Masters are numbered from 0 in each part, without gaps, and so are replicas.
    """

    part: int
    #: By master: the model's input, and the hash of the id.
    x: Floats
    hashes: Hashes
    #: By replica: the part of the master, and its number there.
    home_part: Ints32
    home: Ints32
    #: By edge: the replicas at both ends, and features, NaN where an edge lacks them.
    src: Ints32
    dst: Ints32
    edge_features: Floats

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(each.nbytes for each in vars(self).values() if isinstance(each, np.ndarray))


@dataclass
class Labels:
    """Labels of masters: numbers of parts and of masters there, and values [n, label_width]."""

    part: Ints32
    master: Ints32
    values: Floats
    #: Which of them are for testing only.
    test: Bools
    #: Hashes of the ids, by which a seeded fraction is chosen.
    hashes: Hashes
    time: Ints

    def __len__(self) -> int:
        return len(self.part)

    def take(self, rows: Array) -> Labels:
        """The labels at these rows, or where they are true."""
        return Labels(*(column[rows] for column in vars(self).values()))
