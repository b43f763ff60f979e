"""Arrays outlive the process that filled them, and say so when they do not hold what is asked for."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

import d3gnn
from d3gnn.kernel import arrays
from d3gnn.kernel.arrays import MappedSpace, Space, StateLost, reserve_all
from d3gnn.kernel.mapping import NoSpaceLeft

# Another process with the arrays alone: the whole package would take seconds to import.
_PROLOGUE = f"""
import sys, types
package = types.ModuleType("d3gnn")
package.__path__ = [{str(Path(d3gnn.__file__).parent)!r}]
sys.modules["d3gnn"] = package
import numpy as np
from d3gnn.kernel.arrays import MappedSpace, Space
from d3gnn.kernel.mapping import NoSpaceLeft
space = MappedSpace(sys.argv[1])

def say(text):
    print(text, flush=True)

"""


def start(folder: Path, code: str) -> subprocess.Popen[str]:
    """Another process that has opened the space and goes on with `code`."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", _PROLOGUE + code, str(folder)]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def finish(process: subprocess.Popen[str], answer: str = "") -> str:
    out, err = process.communicate(answer, timeout=60)
    assert process.returncode == 0, err
    return out.strip()


def heard(process: subprocess.Popen[str], word: str) -> None:
    """Wait until the other process says this."""
    assert process.stdout is not None
    assert process.stdout.readline().strip() == word


@pytest.fixture(params=["memory", "mapped"])
def space(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Space]:
    if request.param == "memory":
        yield Space()
        return
    mapped = MappedSpace(tmp_path / "space")
    yield mapped
    mapped.close()


def test_growth_keeps_contents_and_fills_with_zeros(space: Space) -> None:
    array = space.array("a", np.int32, 3)
    expected = np.zeros((0, 3), np.int32)
    for rows in (1, 5, 64, 65, 1000):
        array.reserve(rows)
        assert len(array.data) >= rows
        assert (array.data[: len(expected)] == expected).all()
        assert not array.data[len(expected) :].any()
        array.data[...] = np.arange(array.data.size).reshape(array.data.shape)
        expected = array.data.copy()


def test_growth_is_geometric_and_never_shrinks(space: Space) -> None:
    array = space.array("a", np.int8)
    sizes = set()
    for rows in range(0, 20_000, 7):
        array.reserve(rows)
        sizes.add(len(array.data))
    array.reserve(1)
    assert len(array.data) == max(sizes) >= 19_999
    assert len(sizes) < 25


def test_generation_goes_up_when_an_array_moves_and_only_then(space: Space) -> None:
    array = space.array("a", np.int8)
    array.reserve(10)
    before = space.generation
    array.reserve(len(array.data))
    assert space.generation == before
    array.reserve(len(array.data) + 1)
    assert space.generation > before


def test_same_name_is_the_same_array(space: Space) -> None:
    array = space.array("a", np.int16)
    assert space.array("a", np.int16) is array
    array.reserve(100)
    array.data[9] = 1
    assert space.nbytes == 10 * 2, "bytes up to the last row that was written"


def test_zero_width_arrays_have_rows_and_no_bytes(space: Space) -> None:
    array = space.array("a", np.float32, 0)
    array.reserve(100)
    assert array.data.shape[0] >= 100
    assert array.data.shape[1] == 0
    assert space.nbytes == 0


def test_arrays_that_share_rows_stay_equally_long(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """On its own, a wide array would fall behind a narrow one, and rows would be written past its end."""
    monkeypatch.setattr(arrays, "_LARGE", 2**12)
    narrow, wide, empty = space.array("n", np.uint8), space.array("w", np.int64, 8), space.array("e", "f4", 0)
    for rows in range(1, 20_000, 700):
        if rows > len(narrow.data):
            reserve_all((narrow, wide, empty), rows)
        assert len(wide.data) == len(narrow.data) >= rows


def test_versions_and_the_dirty_flag(space: Space) -> None:
    assert (space.version, space.dirty) == ((0, 0), False)
    space.begin()
    assert (space.version, space.dirty) == ((0, 0), True)
    space.commit(3, 14)
    assert (space.version, space.dirty) == ((3, 14), False)


def test_reset_forgets_contents_and_counters_but_keeps_the_version(space: Space) -> None:
    array = space.array("a", np.int64, 2)
    array.reserve(10)
    array.data[...] = 7
    space.counters[:] = 9
    space.commit(1, 2)
    space.reset()
    assert not array.data.any()
    assert not space.counters.any()
    assert space.version == (1, 2)


def test_another_process_goes_on_where_one_left_off(tmp_path: Path) -> None:
    space = MappedSpace(tmp_path)
    array = space.array("a", np.int64, 2)
    array.reserve(100)
    array.data[:100, 0] = np.arange(100)
    space.counters[5] = 41
    space.commit(2, 8)
    other = start(
        tmp_path,
        "assert space.version == (2, 8) and not space.dirty\n"
        "array = space.array('a', np.int64, 2)\n"
        "assert array.data[:100, 0].tolist() == list(range(100))\n"
        "array.data[:, 1] = 3\n"
        "space.counters[5] += 1\n"
        "space.commit(2, 9)\n",
    )
    finish(other)
    assert (array.data[:, 1] == 3).all()
    assert space.counters[5] == 42
    assert space.version == (2, 9)
    space.close()


def test_what_another_process_grew_is_mapped_anew(tmp_path: Path) -> None:
    space = MappedSpace(tmp_path)
    array, still = space.array("a", np.int32), space.array("b", np.int32)
    array.reserve(10)
    still.reserve(10)
    array.data[:10] = 5
    seen = len(array.data)
    generation = space.generation
    finish(
        start(
            tmp_path,
            "array = space.array('a', np.int32)\n"
            "with space.locked():\n"
            "    array.reserve(5000)\n"
            "    array.data[4999] = 6\n",
        )
    )
    assert len(array.data) == seen  # nobody looked yet
    with space.locked():
        assert space.generation > generation
        assert len(array.data) >= 5000
        assert (array.data[:10] == 5).all()
        assert array.data[4999] == 6
        array.data[4999] = 7
    assert finish(start(tmp_path, "say(space.array('a', np.int32).data[4999])")) == "7"
    space.close()


def test_lock_excludes_another_process(tmp_path: Path) -> None:
    MappedSpace(tmp_path).close()
    holder = start(tmp_path, "with space.locked():\n    say('locked')\n    input()\nsay('free')\ninput()\n")
    heard(holder, "locked")
    file = os.open(tmp_path / "header", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert holder.stdin is not None
    print(file=holder.stdin, flush=True)
    heard(holder, "free")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(file)
    finish(holder, "\n")


def test_no_increment_is_lost_between_processes(tmp_path: Path) -> None:
    add = (
        "import time\n"
        "for i in range(150):\n"
        "    with space.locked():\n"
        "        seen = int(space.counters[0])\n"
        "        time.sleep(0.0001)\n"
        "        space.counters[0] = seen + 1\n"
    )
    for process in [start(tmp_path, add) for _ in range(3)]:
        finish(process)
    space = MappedSpace(tmp_path)
    assert space.counters[0] == 450
    space.close()


def test_a_process_killed_in_the_middle_leaves_a_dirty_header_and_a_free_lock(tmp_path: Path) -> None:
    space = MappedSpace(tmp_path)
    array = space.array("a", np.int32)
    array.reserve(1)
    space.commit(1, 4)
    victim = start(
        tmp_path,
        "with space.locked():\n"
        "    space.begin()\n"
        "    array = space.array('a', np.int32)\n"
        "    array.reserve(1000)\n"
        "    array.data[:] = 1\n"
        "    say('half way')\n"
        "    input()\n"
        "    space.commit(1, 5)\n",
    )
    heard(victim, "half way")
    victim.send_signal(signal.SIGKILL)
    victim.communicate(timeout=60)
    with space.locked():  # would wait for ever if the dead still held it
        assert space.dirty
        assert space.version == (1, 4)
    space.close()
    successor = MappedSpace(tmp_path)
    assert successor.dirty
    assert successor.version == (1, 4)
    successor.close()


def test_something_else_is_refused(tmp_path: Path) -> None:
    space = MappedSpace(tmp_path)
    space._header[0] += 1
    space.close()
    with pytest.raises(StateLost, match=r"something else than arrays: choose another folder"):
        MappedSpace(tmp_path)


def test_arrays_of_another_layout_are_lost(tmp_path: Path) -> None:
    space = MappedSpace(tmp_path)
    array = space.array("a", np.int64)
    array.reserve(10)
    array.data[:10] = 7
    space.counters[:3] = 9
    space.commit(2, 5)
    space._header[1] += 1
    space.close()
    space = MappedSpace(tmp_path)
    assert space.version == (0, 0)
    assert not space.dirty
    assert not space.counters.any()
    assert not space.array("a", np.int64).data.any()
    space.commit(1, 1)
    space.close()
    assert MappedSpace(tmp_path).version == (1, 1), "from then on it is as any other"


@pytest.mark.parametrize("damage", ["an array", "the header"])
def test_arrays_of_which_half_is_gone_are_lost(tmp_path: Path, damage: str) -> None:
    space = MappedSpace(tmp_path)
    for name in "ab":
        space.array(name, np.int64).reserve(10)
        space.array(name, np.int64).data[:10] = 7
    space.commit(2, 5)
    space.close()
    assert MappedSpace(tmp_path).version == (2, 5)
    if damage == "an array":
        (tmp_path / "a.array").unlink()
    else:
        os.truncate(tmp_path / "header", 100)
    space = MappedSpace(tmp_path)
    assert space.version == (0, 0)
    assert not space.array("b", np.int64).data.any()
    space.array("a", np.int64).reserve(10)
    space.commit(1, 1)
    space.close()
    assert MappedSpace(tmp_path).version == (1, 1)


@contextmanager
def small_file_system(folder: Path, size: str = "64k") -> Iterator[None]:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no `mount` here")
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize(
    ("file_system", "fits", "too_much"), [("64k", 1000, 10**6), ("16m", 5 * 10**6, 10**8)]
)
def test_full_file_system_is_an_error_and_not_a_signal(
    tmp_path: Path, file_system: str, fits: int, too_much: int
) -> None:
    with small_file_system(tmp_path, file_system):
        # In a process of its own: what is to be seen is that it lives on.
        fill = (
            "array = space.array('a', np.int8)\n"
            f"array.reserve({fits})\n"
            "array.data[:] = 1\n"
            "try:\n"
            f"    array.reserve({too_much})\n"
            "except NoSpaceLeft as error:\n"
            "    say(f'{error.errno} {error.filename}')\n"
            "array.data[:] += 1\n"
            "assert (array.data == 2).all()\n"
            "other = MappedSpace(sys.argv[1]).array('a', np.int8)\n"
            "assert len(other.data) == len(array.data), 'the file is as it was'\n"
            "assert (other.data == 2).all()\n"
        )
        assert finish(start(tmp_path, fill)) == f"{errno.ENOSPC} {tmp_path}"


def test_no_room_is_told_with_size_and_folder(tmp_path: Path) -> None:
    space = MappedSpace(tmp_path)
    with (
        patch("os.posix_fallocate", side_effect=OSError(errno.ENOSPC, "full")),
        pytest.raises(NoSpaceLeft, match=r"no room for 80,000 bytes.*free some") as caught,
    ):
        space.array("a", np.int64).reserve(10_000)
    assert caught.value.filename == str(tmp_path)
    with (
        patch("os.posix_fallocate", side_effect=OSError(errno.EIO, "broken")),
        pytest.raises(OSError, match="broken") as other,
    ):
        space.array("a", np.int64).reserve(10_000)
    assert not isinstance(other.value, NoSpaceLeft)
    space.close()


def test_a_space_that_nobody_holds_holds_no_file(tmp_path: Path) -> None:
    def open_files() -> int:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files()
    for i in range(20):
        MappedSpace(tmp_path / str(i)).array("a", np.int8).reserve(10)
    assert open_files() == before
