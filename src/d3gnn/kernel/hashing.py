"""Hash functions. They must never change: stored tables and initial values depend on them."""

from __future__ import annotations

import numpy as np

from d3gnn.events.keys import IntKeys, Keys
from d3gnn.kernel.compiled import compiled
from d3gnn.types import Bytes, Floats, Hashes, Ints

_STEP = np.uint64(0x9E3779B97F4A7C15)
_A = np.uint64(0xBF58476D1CE4E5B9)
_B = np.uint64(0x94D049BB133111EB)


@compiled
def mix(h: np.uint64) -> np.uint64:
    """The finalizer of splitmix64, a bijection of 64-bit integers."""
    h = np.uint64(h) + _STEP
    h = (h ^ (h >> np.uint64(30))) * _A
    h = (h ^ (h >> np.uint64(27))) * _B
    return h ^ (h >> np.uint64(31))


@compiled
def hash_ints(values: Ints, out: Hashes) -> None:
    for i in range(len(values)):
        out[i] = mix(np.uint64(values[i]))


@compiled
def hash_strings(offsets: Ints, data: Bytes, out: Hashes) -> None:
    for i in range(len(offsets) - 1):
        begin, end = offsets[i], offsets[i + 1]
        h = mix(np.uint64(end - begin))  # tells "a" from "a\0"
        word = np.uint64(0)
        shift = np.uint64(0)
        for j in range(begin, end):
            word |= np.uint64(data[j]) << shift
            shift += np.uint64(8)
            if shift == np.uint64(64):
                h = mix(h ^ word)
                word = np.uint64(0)
                shift = np.uint64(0)
        out[i] = mix(h ^ word)


@compiled
def fill_initial(seed: np.uint64, row: Floats) -> None:
    """The initial value of a vertex: uniform in [-1, 1), a function of its id alone."""
    for j in range(len(row)):
        bits = mix(seed + np.uint64(j + 1) * _STEP) >> np.uint64(40)
        row[j] = np.float32(np.int64(bits)) * np.float32(2.0**-23) - np.float32(1.0)


def hash_keys(keys: Keys) -> Hashes:
    """A 64-bit hash of each key; integers never collide."""
    out = np.empty(len(keys), np.uint64)
    if isinstance(keys, IntKeys):
        hash_ints(keys.values, out)
    else:
        hash_strings(keys.offsets, keys.data, out)
    return out


def initial_values(keys: Keys, width: int) -> Floats:
    """Inputs of vertices without features, one row per id.

    >>> from d3gnn.events.keys import keys_of
    >>> initial_values(keys_of(["ann", "bob"]), 2).shape
    (2, 2)
    """
    out = np.empty((len(keys), width), np.float32)
    for seed, row in zip(hash_keys(keys), out, strict=True):
        fill_initial(seed, row)
    return out
