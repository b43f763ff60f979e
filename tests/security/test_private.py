"""What another user of the machine has planted is neither believed nor followed, and ours is not readable."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from d3gnn import GraphSchema, LocalEngine
from d3gnn.events import edge, feature
from d3gnn.kernel import compiled
from d3gnn.kernel.mapped_state import MappedPartState
from d3gnn.kernel.operators import PARTITION
from d3gnn.nn import GraphSAGE
from d3gnn.pipeline import StreamingGNN
from d3gnn.private import NotPrivate, open_private, private_folder
from d3gnn.runtime import plan as plans
from d3gnn.runtime.outbox import read_outbox
from d3gnn.runtime.timers import read_timers
from d3gnn.runtime.verify import stored_plan
from d3gnn.runtime.version import BatchVersion
from d3gnn.runtime.worker import Worker
from d3gnn.spark import session
from d3gnn.store.sealed_json import from_json, to_json
from d3gnn.store.store import SETTINGS, Store

Shell = Callable[[str], Any]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


# ------------------------------------------------------------------ arrays


def test_planted_arrays_are_refused_and_nothing_is_emptied(
    shared: Path, tmp_path: Path, other_user: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of the default folder can be computed. Links in it led to files, which were emptied."""
    monkeypatch.setattr(plans, "MEMORY", shared)
    precious = tmp_path / "precious"
    precious.write_text("keep")
    plan = StreamingGNN(GraphSAGE(2, 4, 1), store=tmp_path / "store").plan({"src": "bigint"})
    part = Path(plan.arrays) / "query" / "partition" / "0"
    other_user(f"mkdir -p {part} && ln -s {precious} {part}/header && ln -s {precious} {part}/ids.array")
    with pytest.raises(NotPrivate, match=r"belongs to the user nobody.*name another folder"):
        Worker(plan, "query").state.open(PARTITION, 0)
    assert precious.read_text() == "keep"


@pytest.mark.parametrize("file", ["header", "ids.array"])
def test_links_among_arrays_are_not_followed(tmp_path: Path, file: str) -> None:
    precious, arrays = tmp_path / "precious", tmp_path / "arrays"
    precious.write_text("keep")
    MappedPartState(arrays).close()
    (arrays / file).unlink(missing_ok=True)
    (arrays / file).symlink_to(precious)
    with pytest.raises(NotPrivate, match="is a symbolic link"):
        MappedPartState(arrays).reset()
    assert precious.read_text() == "keep"


def test_a_link_of_another_user_is_not_followed(shared: Path, tmp_path: Path, other_user: Shell) -> None:
    own = tmp_path / "own"
    own.symlink_to(tmp_path / "elsewhere")
    assert StreamingGNN(GraphSAGE(2, 4, 1), store=tmp_path, arrays=own).arrays == str(tmp_path / "elsewhere")
    other_user(f"ln -s {tmp_path} arrays")
    with pytest.raises(NotPrivate, match="is a symbolic link that the user nobody made"):
        StreamingGNN(GraphSAGE(2, 4, 1), store=tmp_path, arrays=shared / "arrays")


def test_files_of_another_user_are_not_read(shared: Path, other_user: Shell) -> None:
    other_user("printf d3sent01 > outbox; head -c 160 /dev/zero > timers; mkfifo fifo; chmod 666 *")
    with pytest.raises(NotPrivate, match="outbox belongs to the user nobody"):
        read_outbox(str(shared / "outbox"), BatchVersion(0, 0, False))
    with pytest.raises(NotPrivate, match="timers belongs to the user nobody"):
        read_timers(shared)
    with pytest.raises(NotPrivate, match="fifo is not a regular file"):
        open_private(shared / "fifo")


# ------------------------------------------------------------------ what we make


def test_arrays_and_stores_are_for_this_user_only(
    shared: Path, pipeline: Callable[..., Any], other_user: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "MEMORY", shared)
    monkeypatch.setattr("d3gnn.runtime.outbox.LARGE", 0)  # outboxes go to the folder for large files
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    run = pipeline()
    run.process([edge(1234567, 2, time=1), feature(1234567, [1.0, 2.0], time=1), feature(2, [1.0], time=1)])
    LocalEngine(GraphSAGE(2, 4, 1), schema=GraphSchema(features={"x": 2}), arrays=shared / "engine")
    made = [*shared.rglob("*"), *Path(run.plan.store).rglob("*")]
    assert {"header", "in-use", "timers", "outbox-0-0", SETTINGS} <= {path.name for path in made}
    assert len([path for path in made if path.name.startswith("outbox")]) == 1
    assert {path for path in made if mode(path) != (0o700 if path.is_dir() else 0o600)} == set()
    assert mode(Path(run.plan.store)) == 0o700
    found = other_user(f"cat {run.folder}/header; ls {run.folder}; ls *-large; ls engine")
    assert (found.stdout, found.stderr.count("Permission denied")) == ("", 4)


def test_a_store_may_be_in_a_folder_that_others_read(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store").chmod(0o755)
    Store(tmp_path / "store").create("log/1", b"")
    assert mode(tmp_path / "store") == 0o755, "the user's choice"
    assert (mode(tmp_path / "store" / "log"), mode(tmp_path / "store" / "log" / "1")) == (0o700, 0o600)
    (tmp_path / "link").symlink_to(tmp_path / "store")
    assert Store(tmp_path / "link").create("log/2", b"")


def test_a_store_that_others_may_change_is_refused(shared: Path, other_user: Shell) -> None:
    (shared / "open").mkdir()
    (shared / "open").chmod(0o777)
    with pytest.raises(NotPrivate, match=r"others? users may write to .*open \(mode 0777\).*chmod go-w"):
        Store(shared / "open").create("log/1", b"")
    other_user("mkdir theirs; ln -s theirs link")
    for name in ("theirs", "link"):
        with pytest.raises(NotPrivate, match="the user nobody"):
            Store(shared / name).fix({"parts": 1})
    own_group, group = shared / "own group", shared / "group"
    for folder, gid in ((own_group, 0), (group, 1)):
        folder.mkdir()
        os.chown(folder, -1, gid)
        folder.chmod(0o775)
    assert private_folder(own_group) == own_group, "where each user has a group, this is how folders are made"
    with pytest.raises(NotPrivate, match="chmod go-w"):
        private_folder(group)


# ------------------------------------------------------------------ sockets and code


@pytest.mark.parametrize("planted", ["mkdir {}", "ln -s /root {}", "mkdir {0} && chmod 777 {0}"])
def test_a_planted_folder_for_sockets_is_not_used(
    shared: Path, other_user: Shell, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    other_user(planted.format(shared / f"d3gnn-{os.getuid()}"))
    folder = session._short_folder()
    try:
        assert folder.parent != shared
        assert (folder.lstat().st_uid, mode(folder)) == (os.getuid(), 0o700)
    finally:
        folder.rmdir()


def test_planted_code_is_not_run(
    shared: Path, tmp_path: Path, other_user: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numba loads compiled code from its cache, whoever wrote it."""
    asked, name = shared / "cache", Path(compiled._folder()).name
    other_user(f"mkdir -p {asked}/{name} {shared}/d3gnn-{os.getuid()}/{name}; chmod -R 777 .")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(asked))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = Path(compiled._folder.__wrapped__())
    assert (folder.lstat().st_uid, mode(folder) & 0o022) == (os.getuid(), 0)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    with pytest.raises(NotPrivate, match="belongs to the user nobody"):
        compiled._folder.__wrapped__()


# ------------------------------------------------------------------ names


@pytest.mark.parametrize(
    "name", ["x/../../..", "a\0b", "", "n" * 300, "ü" * 60, "../x", "a\nb", 7, "\ud800"], ids=ascii
)
def test_names_that_are_no_names_of_folders(name: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^name=") as caught:
        StreamingGNN(GraphSAGE(2, 4, 1), name=name, store=tmp_path / "store")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_name_in_the_store_is_checked_too(pipeline: Callable[..., Any], tmp_path: Path) -> None:
    run = pipeline("fraud 2")
    settings = Path(run.plan.store) / SETTINGS
    settings.write_bytes(to_json(from_json(settings.read_bytes()) | {"name": "x/../../../etc"}))
    with pytest.raises(ValueError, match=r"^name='x/../../../etc'"):
        stored_plan(run.plan.store)
