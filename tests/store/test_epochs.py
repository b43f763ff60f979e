"""Epochs of a pipeline on a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from d3gnn.events import GraphSchema
from d3gnn.store.epochs import Epochs, StoreUnreachable
from d3gnn.store.store import Store


def test_every_epoch_is_another_one_and_only_the_newest_counts(tmp_path: Path) -> None:
    here, elsewhere = Epochs(Store(tmp_path)), Epochs(Store(tmp_path))
    first = here.begin(batch=0, run=1, built_with=(1, 2, 3))
    assert elsewhere.newest() == first
    second = elsewhere.begin(batch=4, run=2)
    assert second.value > first.value
    assert (here.is_current(first.value), here.is_current(second.value)) == (False, True)


def test_an_epoch_that_two_hosts_begin_at_the_same_time_has_one_value(tmp_path: Path) -> None:
    here, elsewhere = Epochs(Store(tmp_path)), Epochs(Store(tmp_path))
    assert here.newest() is elsewhere.newest() is None  # both will try the first number
    one, other = here.begin(batch=0, run=1), elsewhere.begin(batch=0, run=2)
    assert one.number < other.number
    assert here.is_current(other.value)
    assert not here.is_current(one.value)


def test_the_same_number_in_a_copy_of_the_store_is_another_epoch(tmp_path: Path) -> None:
    one = Epochs(Store(tmp_path / "a")).begin(batch=0, run=1)
    other = Epochs(Store(tmp_path / "b")).begin(batch=0, run=1)
    assert one.number == other.number
    assert one.value != other.value


def test_a_lost_epoch_is_not_current_and_says_what_is_lost_first(tmp_path: Path) -> None:
    epochs = Epochs(Store(tmp_path))
    epoch = epochs.begin(batch=0, run=1)
    epochs.lose(epoch.value, "edge-1, part 0")
    epochs.lose(epoch.value, "edge-1, part 1")
    assert not epochs.is_current(epoch.value)
    assert Epochs(Store(tmp_path)).why_lost(epoch.value) == "edge-1, part 0"
    assert epochs.is_current(epochs.begin(batch=1, run=1).value)


def test_old_files_are_dropped_and_numbers_go_on(tmp_path: Path) -> None:
    store = Store(tmp_path)
    epochs = Epochs(store)
    for batch in range(20):
        epochs.lose(epochs.begin(batch, run=1).value, "lost")
    assert len(store.list("epochs")) < 10
    assert len(store.list("lost")) < 12
    assert Epochs(store).begin(20, run=1).number == 21


def test_an_empty_folder_in_place_of_the_store_is_noticed(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.fix({"ids": "int", "keys": "int", "parts": 1, "schema": GraphSchema().to_dict()})
    epochs = Epochs(store)
    epochs.require_store()
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    (tmp_path / "store").mkdir()
    with pytest.raises(StoreUnreachable, match="Nothing was written"):
        epochs.require_store()
