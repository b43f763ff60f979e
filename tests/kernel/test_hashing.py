"""Hashes and initial values are stored, so they must never change."""

from __future__ import annotations

import numpy as np
import pytest

from d3gnn.events.keys import keys_of
from d3gnn.kernel.hashing import hash_keys, initial_values

PINNED_INTS = {
    0: 0xE220A8397B1DCDAF,
    1: 0x910A2DEC89025CC1,
    -1: 0xE4D971771B652C20,
    2**40: 0x1FDD7128F310C389,
    -(2**63): 0x481EC0A212A9F3DB,
}
PINNED_STRINGS = {
    "": 0xA706DD2F4D197E6F,
    "ann": 0x381D69E38085E6A3,
    "exactly8": 0x2A31B4B7B1120265,
    "more than eight": 0x208097D8C59F7BAA,
    "é": 0xA97DB34DF00033E7,
}


def test_hashes_of_integers_are_pinned() -> None:
    assert hash_keys(keys_of(list(PINNED_INTS))).tolist() == list(PINNED_INTS.values())


def test_hashes_of_strings_are_pinned() -> None:
    assert hash_keys(keys_of(list(PINNED_STRINGS))).tolist() == list(PINNED_STRINGS.values())


def test_integers_are_hashed_by_splitmix64() -> None:
    # The first outputs of the reference implementation with seed 0: its state grows by a fixed step.
    step = 0x9E3779B97F4A7C15
    states = np.array([0, step, 2 * step % 2**64], np.uint64).view(np.int64)
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert hash_keys(keys_of(states.tolist())).tolist() == expected


def test_similar_strings_have_different_hashes() -> None:
    similar = [
        "",
        "\0",
        "\0\0",
        "a",
        "a\0",
        "a\0\0",
        "b\0",
        "\0a",
        "e",
        "é",
        "e\u0301",
        "a" * 7,
        "a" * 8,
        "a" * 8 + "\0",
    ]
    similar += ["a" * 9, "a" * 16, "a" * 17, "ab" * 8, "ba" * 8, "1", "01"]
    assert len(set(hash_keys(keys_of(similar)).tolist())) == len(similar)


def test_hashes_do_not_depend_on_other_keys() -> None:
    names = ["ann", "bob", "a much longer name", ""]
    expected = hash_keys(keys_of(names)).tolist()
    assert expected == [int(hash_keys(keys_of([name]))[0]) for name in names]
    backwards = keys_of(names).take(np.array([3, 2, 1, 0]))
    assert hash_keys(backwards).tolist() == expected[::-1]


def test_initial_values_are_pinned() -> None:
    of_seven, of_ann = (
        [0.29940855503082275, 0.09874856472015381, 0.20846951007843018],
        [0.9787963628768921, -0.5889540910720825, -0.5612388849258423],
    )
    assert initial_values(keys_of([7]), 3).tolist() == [of_seven]
    assert initial_values(keys_of(["ann"]), 3).tolist() == [of_ann]


def test_initial_values_do_not_depend_on_the_width() -> None:
    np.testing.assert_array_equal(initial_values(keys_of([7]), 8)[:, :3], initial_values(keys_of([7]), 3))


@pytest.mark.parametrize("strings", [False, True])
def test_initial_values_are_spread_evenly(strings: bool) -> None:
    ids = keys_of([f"v{i}" for i in range(20_000)] if strings else list(range(20_000)))
    x = initial_values(ids, 8)
    assert x.dtype == np.float32
    assert x.min() >= -1
    assert x.max() < 1
    assert np.abs(x.mean(axis=0)).max() < 0.02
    assert np.abs(x.std(axis=0) - 3**-0.5).max() < 0.01
    assert np.abs(np.corrcoef(x.T) - np.eye(8)).max() < 0.03
    assert len(np.unique(x, axis=0)) == len(x)


def test_initial_values_of_no_ids() -> None:
    assert initial_values(keys_of([]), 4).shape == (0, 4)
