"""Files of a store are complete or absent, the first writer wins, and a store belongs to one query."""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from d3gnn import GraphSchema
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.owners import Owners
from d3gnn.store.store import LAYOUT, Store, StoreError, StoreFull, StoreInUse, StoreMismatch

SETTINGS = {
    "ids": "int",
    "keys": "int",
    "parts": 2,
    "partitioner": {"name": "hdrf"},
    "schema": GraphSchema(features={"x": 4}).to_dict(),
}


@pytest.fixture(params=["local", "other"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return Store(tmp_path / "store")
    # For pyarrow this is no local file system, so the store does not use links.
    return Store("store", fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))


def leftovers(folder: Path) -> list[Path]:
    return list(folder.glob("**/.tmp/*"))


def test_the_first_writer_wins(store: Store, tmp_path: Path) -> None:
    assert not store.exists("log/a")
    assert store.create("log/a", b"first")
    assert not store.create("log/a", b"second")
    assert store.read("log/a") == b"first"
    assert store.exists("log/a")
    assert leftovers(tmp_path) == []


def test_names_are_listed_in_order(store: Store) -> None:
    assert store.list("log") == []
    for name in ("b", "a", "c"):
        store.create(f"log/{name}", b"")
    assert store.list("log") == ["a", "b", "c"]
    assert store.list("") == []  # unfinished files are not listed
    store.delete("log/b")
    store.delete("log/b")
    assert store.list("log") == ["a", "c"]


def test_a_file_can_be_read_from_any_position(store: Store) -> None:
    store.create("data", b"0123456789")
    with store.open_input("data") as file:
        file.seek(7)
        assert file.read() == b"789"
    assert store.read("nothing") is None
    with pytest.raises(FileNotFoundError):
        store.open_input("nothing")


def test_compressed_files_are_read_without_decompression(store: Store) -> None:
    assert store.create("a.gz", b"not compressed")
    assert store.read("a.gz") == b"not compressed"


def test_paths_and_uris_open_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(tmp_path / "a b").create("x", b"1")
    monkeypatch.chdir(tmp_path)
    for uri in ("a b", f"{tmp_path}/a b/", f"file://{tmp_path}/a%20b", f"file:{tmp_path}/a%20b"):
        assert Store(uri).read("x") == b"1", uri


def test_a_folder_that_cannot_be_opened_is_named() -> None:
    with pytest.raises(StoreError, match=r"the store gopher://x cannot be opened: .* s3, gs, hdfs"):
        Store("gopher://x")


def test_a_store_can_be_pickled(store: Store) -> None:
    store.create("x", b"1")
    there = pickle.loads(pickle.dumps(store))
    assert there.read("x") == b"1"
    assert repr(there) == repr(store) == f"Store({store.uri!r})"


# ---------------------------------------------------------------------- ownership and settings


def owners(store: Store) -> Owners:
    store.fix(SETTINGS)
    return Owners(store, GraphLog(store))


def test_a_store_belongs_to_one_query(store: Store) -> None:
    owners(store).bind("query-1")
    owners(store).bind("query-1")
    again = pickle.loads(pickle.dumps(store))
    owners(again).bind("query-1")
    with pytest.raises(StoreInUse) as refused:
        owners(again).bind("query-2")
    text = str(refused.value)
    assert f"the store {store.uri} belongs to the streaming query query-1" in text
    assert "query query-2 cannot use it" in text
    assert "name another store" in text
    assert "checkpoint" in text


def test_old_temporary_files_are_deleted_when_a_query_starts(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create("x", b"1")
    old, young = tmp_path / ".tmp" / "old", tmp_path / ".tmp" / "young"
    for path in (old, young):
        path.write_bytes(b"half of some")
    os.utime(old, (time.time() - 7200,) * 2)
    owners(store).bind("query-1")
    assert leftovers(tmp_path) == [young]


def test_settings_are_fixed(store: Store) -> None:
    with pytest.raises(StoreError, match="no pipeline has used this folder"):
        _ = store.settings
    store.fix(SETTINGS)
    store.fix(dict(reversed(SETTINGS.items())))
    again = pickle.loads(pickle.dumps(store))
    assert again.settings == {"layout": LAYOUT, **SETTINGS}
    again.fix(SETTINGS)


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"parts": 4}, "parts is 2 in the store, and 4 here."),
    ({"partitioner": {"name": "random"}}, 'partitioner.name is "hdrf" in the store, and "random" here.'),
    (
        {"partitioner": {"name": "hdrf", "balance": 2}},
        "partitioner.balance is absent in the store, and 2 here.",
    ),
    (
        {"schema": GraphSchema(features={"x": 4, "y": 1}).to_dict(), "parts": 3},
        "parts is 2 in the store, and 3 here; schema.features.y is absent in the store, and 1 here.",
    ),
]


@pytest.mark.parametrize(("change", "text"), CHANGES)
def test_other_settings_are_refused_by_name(store: Store, change: dict[str, Any], text: str) -> None:
    store.fix(SETTINGS)
    with pytest.raises(StoreMismatch) as refused:
        store.fix(SETTINGS | change)
    assert f"the store {store.uri} was created with other settings: {text} Run with" in str(refused.value)


@pytest.mark.parametrize("layout", [1, 99, None])
def test_a_store_of_another_release_is_refused_in_one_line(store: Store, layout: int | None) -> None:
    old = {"parts": 2, "ids": "int"} | ({} if layout is None else {"layout": layout})
    store.create("settings.json", json.dumps(old).encode())
    for use in (lambda: store.fix(SETTINGS), lambda: store.settings):
        with pytest.raises(StoreMismatch) as refused:
            use()
        text = str(refused.value)
        assert f"was created by another release (layout {layout}, expected {LAYOUT})" in text
        assert "a new store and a new checkpoint" in text
        assert "\n" not in text


def test_the_order_of_features_is_a_setting(store: Store) -> None:
    one, other = (GraphSchema(features=f).to_dict() for f in ({"x": 1, "y": 1}, {"y": 1, "x": 1}))
    store.fix({"schema": one})
    with pytest.raises(
        StoreMismatch, match=r"schema\.features are in the order x, y in the store, and y, x here"
    ):
        store.fix({"schema": other})


# ---------------------------------------------------------------------- races, kills and full disks

RACER = """
import sys, time
from pathlib import Path
from d3gnn.store.store import Store
me, root = sys.argv[1:]
store = Store(root + "/store")
Path(root, "ready-" + me).touch()
while not Path(root, "go").exists():
    pass
print("".join("X" if store.create(f"log/{i}", (me * 50000).encode()) else "." for i in range(60)))
"""


def test_only_one_of_racing_processes_wins(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, me, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for me in "ab"
    ]
    wait_for(tmp_path / "ready-a", tmp_path / "ready-b")
    (tmp_path / "go").touch()
    won = [racer.communicate(timeout=60)[0].strip() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    assert [len(w) for w in won] == [60, 60]
    store = Store(tmp_path / "store")
    for i, marks in enumerate(zip(*won, strict=True)):
        assert sorted(marks) == [".", "X"], f"file {i}: {marks}"
        assert store.read(f"log/{i}") == ("ab"[marks.index("X")] * 50000).encode()
    assert leftovers(tmp_path) == []


WRITER = """
import sys
from d3gnn.store.store import Store
store, i = Store(sys.argv[1]), 0
while True:
    store.create(f"log/{i:06d}", b"x" * 3_000_000)
    print(i, flush=True)
    i += 1
"""


@pytest.mark.parametrize("delay", [0.0, 0.002, 0.005, 0.011])
def test_a_killed_writer_leaves_complete_files_only(tmp_path: Path, delay: float) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        for _ in range(3):
            writer.stdout.readline()
        time.sleep(delay)
        writer.kill()
    store = Store(tmp_path)
    names = store.list("log")
    assert len(names) >= 3
    assert {len(store.read(f"log/{name}") or b"") for name in names} == {3_000_000}
    # The next file can be written, whatever the killed writer left.
    assert store.create(f"log/{len(names):06d}", b"next")


def test_without_links_files_are_still_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    store = Store(tmp_path)
    assert store.create("x", b"1")
    assert not store.create("x", b"2")
    assert store.read("x") == b"1"
    assert leftovers(tmp_path) == []


def test_other_errors_are_raised_unchanged(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file where a folder should be")
    with pytest.raises(FileExistsError):
        Store(tmp_path).create("log/x", b"1")


def test_a_full_disk_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = Store(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StoreFull) as refused:
            store.create("log/x", b"1234")
    assert f"no space is left in the store {tmp_path} for log/x (4 bytes)" in str(refused.value)
    assert store.list("log") == []
    assert leftovers(tmp_path) == []
    assert store.create("log/x", b"1234")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a small file system")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_leaves_no_partial_file(small_disk: Path) -> None:
    store = Store(small_disk / "store")
    assert store.create("log/0", b"x" * 600_000)
    with pytest.raises(StoreFull, match="make room, and start again"):
        store.create("log/1", b"x" * 600_000)
    assert store.list("log") == ["0"]
    assert leftovers(small_disk) == []
    store.delete("log/0")
    assert store.create("log/1", b"x" * 600_000)


def test_settings_are_plain_json(tmp_path: Path) -> None:
    store = Store(tmp_path)
    owners(store).bind("query-1")
    assert json.loads((tmp_path / "query.json").read_text())["query"] == "query-1"
    assert json.loads((tmp_path / "settings.json").read_text())["parts"] == 2


def wait_for(*paths: Path) -> None:
    deadline = time.monotonic() + 60
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, "the writer never started"
        time.sleep(0.01)
