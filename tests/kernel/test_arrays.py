"""Mapped arrays outlive their process, and lost or foreign files are detected."""

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
from d3gnn.kernel import part_state as part_state_module
from d3gnn.kernel.arrays import reserve_all
from d3gnn.kernel.mapped_state import MappedPartState, StateLost
from d3gnn.kernel.mapping import NoSpaceLeft
from d3gnn.kernel.part_state import PartState

# The other process imports the arrays only: the whole package would take seconds.
_PROLOGUE = f"""
import sys, types
package = types.ModuleType("d3gnn")
package.__path__ = [{str(Path(d3gnn.__file__).parent)!r}]
sys.modules["d3gnn"] = package
import numpy as np
from d3gnn.kernel.mapped_state import MappedPartState
from d3gnn.kernel.part_state import PartState
from d3gnn.kernel.mapping import NoSpaceLeft
state = MappedPartState(sys.argv[1])

def report(text):
    print(text, flush=True)

"""


def start(folder: Path, code: str) -> subprocess.Popen[str]:
    """Another process that opens the part state and runs `code`."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", _PROLOGUE + code, str(folder)]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def finish(process: subprocess.Popen[str], answer: str = "") -> str:
    out, err = process.communicate(answer, timeout=60)
    assert process.returncode == 0, err
    return out.strip()


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    """Wait until the other process prints this word."""
    assert process.stdout is not None
    assert process.stdout.readline().strip() == word


@pytest.fixture(params=["memory", "mapped"])
def part_state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PartState]:
    if request.param == "memory":
        yield PartState()
        return
    mapped = MappedPartState(tmp_path / "space")
    yield mapped
    mapped.close()


def test_growth_keeps_contents_and_fills_with_zeros(part_state: PartState) -> None:
    array = part_state.array("a", np.int32, 3)
    expected = np.zeros((0, 3), np.int32)
    for rows in (1, 5, 64, 65, 1000):
        array.reserve(rows)
        assert len(array.data) >= rows
        assert (array.data[: len(expected)] == expected).all()
        assert not array.data[len(expected) :].any()
        array.data[...] = np.arange(array.data.size).reshape(array.data.shape)
        expected = array.data.copy()


def test_growth_is_geometric_and_never_shrinks(part_state: PartState) -> None:
    array = part_state.array("a", np.int8)
    sizes = set()
    for rows in range(0, 20_000, 7):
        array.reserve(rows)
        sizes.add(len(array.data))
    array.reserve(1)
    assert len(array.data) == max(sizes) >= 19_999
    assert len(sizes) < 25


def test_generation_increases_only_when_an_array_moves(part_state: PartState) -> None:
    array = part_state.array("a", np.int8)
    array.reserve(10)
    before = part_state.generation
    array.reserve(len(array.data))
    assert part_state.generation == before
    array.reserve(len(array.data) + 1)
    assert part_state.generation > before


def test_the_same_name_returns_the_same_array(part_state: PartState) -> None:
    array = part_state.array("a", np.int16)
    assert part_state.array("a", np.int16) is array
    array.reserve(100)
    array.data[9] = 1
    assert part_state.nbytes == 10 * 2, "bytes up to the last row that was written"


def test_zero_width_arrays_have_rows_and_no_bytes(part_state: PartState) -> None:
    array = part_state.array("a", np.float32, 0)
    array.reserve(100)
    assert array.data.shape[0] >= 100
    assert array.data.shape[1] == 0
    assert part_state.nbytes == 0


def test_arrays_that_share_rows_stay_equally_long(
    part_state: PartState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Separately, a wide array would grow less than a narrow one, and rows would be written past its end."""
    monkeypatch.setattr(part_state_module, "_LARGE", 2**12)
    narrow, wide, empty = (
        part_state.array("n", np.uint8),
        part_state.array("w", np.int64, 8),
        part_state.array("e", "f4", 0),
    )
    for rows in range(1, 20_000, 700):
        if rows > len(narrow.data):
            reserve_all((narrow, wide, empty), rows)
        assert len(wide.data) == len(narrow.data) >= rows


def test_versions_and_the_dirty_flag(part_state: PartState) -> None:
    assert (part_state.version, part_state.dirty) == ((0, 0), False)
    part_state.begin()
    assert (part_state.version, part_state.dirty) == ((0, 0), True)
    part_state.commit(3, 14)
    assert (part_state.version, part_state.dirty) == ((3, 14), False)


def test_reset_forgets_contents_and_counters_but_keeps_the_version(part_state: PartState) -> None:
    array = part_state.array("a", np.int64, 2)
    array.reserve(10)
    array.data[...] = 7
    part_state.counters("some", 4)[:] = 9
    part_state.commit(1, 2)
    part_state.reset()
    assert not array.data.any()
    assert not part_state.counters("some", 4).any()
    assert part_state.version == (1, 2)


def test_counters_are_found_by_name_and_do_not_overlap(part_state: PartState) -> None:
    for i in range(20):
        part_state.counters(f"name {i}", i + 1)[:] = i
    for i in range(20):
        assert part_state.counters(f"name {i}", i + 1).tolist() == [i] * (i + 1)
    with pytest.raises(ValueError, match="there are 4 counters 'name 3', not 5"):
        part_state.counters("name 3", 5)
    with pytest.raises(ValueError, match="no room for 1000 counters 'many'"):
        part_state.counters("many", 1000)


def test_another_process_continues_over_the_same_arrays(tmp_path: Path) -> None:
    part_state = MappedPartState(tmp_path)
    array = part_state.array("a", np.int64, 2)
    array.reserve(100)
    array.data[:100, 0] = np.arange(100)
    part_state.counters("other", 3)[:] = 7
    part_state.counter("some")[0] = 41
    part_state.commit(2, 8)
    other = start(
        tmp_path,
        "assert state.version == (2, 8) and not state.dirty\n"
        "array = state.array('a', np.int64, 2)\n"
        "assert array.data[:100, 0].tolist() == list(range(100))\n"
        "array.data[:, 1] = 3\n"
        "assert state.counters('other', 3).tolist() == [7, 7, 7]\n"
        "state.counter('some')[0] += 1\n"
        "state.commit(2, 9)\n",
    )
    finish(other)
    assert (array.data[:, 1] == 3).all()
    assert part_state.counter("some")[0] == 42
    assert part_state.version == (2, 9)
    part_state.close()


def test_arrays_that_another_process_grew_are_mapped_again(tmp_path: Path) -> None:
    part_state = MappedPartState(tmp_path)
    array, still = part_state.array("a", np.int32), part_state.array("b", np.int32)
    array.reserve(10)
    still.reserve(10)
    array.data[:10] = 5
    seen = len(array.data)
    generation = part_state.generation
    finish(
        start(
            tmp_path,
            "array = state.array('a', np.int32)\n"
            "with state.locked():\n"
            "    array.reserve(5000)\n"
            "    array.data[4999] = 6\n",
        )
    )
    assert len(array.data) == seen  # not mapped again yet
    with part_state.locked():
        assert part_state.generation > generation
        assert len(array.data) >= 5000
        assert (array.data[:10] == 5).all()
        assert array.data[4999] == 6
        array.data[4999] = 7
    assert finish(start(tmp_path, "report(state.array('a', np.int32).data[4999])")) == "7"
    part_state.close()


def test_lock_excludes_another_process(tmp_path: Path) -> None:
    MappedPartState(tmp_path).close()
    holder = start(
        tmp_path, "with state.locked():\n    report('locked')\n    input()\nreport('free')\ninput()\n"
    )
    wait_for(holder, "locked")
    file = os.open(tmp_path / "header", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert holder.stdin is not None
    print(file=holder.stdin, flush=True)
    wait_for(holder, "free")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(file)
    finish(holder, "\n")


def test_no_increment_is_lost_between_processes(tmp_path: Path) -> None:
    add = (
        "import time\n"
        "for i in range(150):\n"
        "    with state.locked():\n"
        "        seen = int(state.counter('some')[0])\n"
        "        time.sleep(0.0001)\n"
        "        state.counter('some')[0] = seen + 1\n"
    )
    for process in [start(tmp_path, add) for _ in range(3)]:
        finish(process)
    part_state = MappedPartState(tmp_path)
    assert part_state.counter("some")[0] == 450
    part_state.close()


def test_a_killed_process_leaves_a_dirty_header_and_a_free_lock(tmp_path: Path) -> None:
    part_state = MappedPartState(tmp_path)
    array = part_state.array("a", np.int32)
    array.reserve(1)
    part_state.commit(1, 4)
    victim = start(
        tmp_path,
        "with state.locked():\n"
        "    state.begin()\n"
        "    array = state.array('a', np.int32)\n"
        "    array.reserve(1000)\n"
        "    array.data[:] = 1\n"
        "    report('half way')\n"
        "    input()\n"
        "    state.commit(1, 5)\n",
    )
    wait_for(victim, "half way")
    victim.send_signal(signal.SIGKILL)
    victim.communicate(timeout=60)
    with part_state.locked():  # would block if the killed process still held the lock
        assert part_state.dirty
        assert part_state.version == (1, 4)
    part_state.close()
    successor = MappedPartState(tmp_path)
    assert successor.dirty
    assert successor.version == (1, 4)
    successor.close()


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    part_state = MappedPartState(tmp_path)
    part_state._header[0] += 1
    part_state.close()
    with pytest.raises(StateLost, match=r"other files than arrays: choose another folder"):
        MappedPartState(tmp_path)


def test_arrays_of_another_layout_are_lost(tmp_path: Path) -> None:
    part_state = MappedPartState(tmp_path)
    array = part_state.array("a", np.int64)
    array.reserve(10)
    array.data[:10] = 7
    part_state.counters("some", 4)[:] = 9
    part_state.commit(2, 5)
    part_state._header[1] += 1
    part_state.close()
    part_state = MappedPartState(tmp_path)
    assert part_state.version == (0, 0)
    assert not part_state.dirty
    assert not part_state.counters("some", 4).any()
    assert not part_state.array("a", np.int64).data.any()
    part_state.commit(1, 1)
    part_state.close()
    assert MappedPartState(tmp_path).version == (1, 1), "it is usable from then on"


@pytest.mark.parametrize("damage", ["an array", "the header"])
def test_incomplete_arrays_are_lost(tmp_path: Path, damage: str) -> None:
    part_state = MappedPartState(tmp_path)
    for name in "ab":
        part_state.array(name, np.int64).reserve(10)
        part_state.array(name, np.int64).data[:10] = 7
    part_state.commit(2, 5)
    part_state.close()
    assert MappedPartState(tmp_path).version == (2, 5)
    if damage == "an array":
        (tmp_path / "a.array").unlink()
    else:
        os.truncate(tmp_path / "header", 100)
    part_state = MappedPartState(tmp_path)
    assert part_state.version == (0, 0)
    assert not part_state.array("b", np.int64).data.any()
    part_state.array("a", np.int64).reserve(10)
    part_state.commit(1, 1)
    part_state.close()
    assert MappedPartState(tmp_path).version == (1, 1)


@contextmanager
def small_file_system(folder: Path, size: str = "64k") -> Iterator[None]:
    command = ["mount", "-t", "tmpfs", "-o", f"mode=700,size={size}", "tmpfs", str(folder)]
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
        # In another process, which must survive.
        fill = (
            "array = state.array('a', np.int8)\n"
            f"array.reserve({fits})\n"
            "array.data[:] = 1\n"
            "try:\n"
            f"    array.reserve({too_much})\n"
            "except NoSpaceLeft as error:\n"
            "    report(f'{error.errno} {error.filename}')\n"
            "array.data[:] += 1\n"
            "assert (array.data == 2).all()\n"
            "other = MappedPartState(sys.argv[1]).array('a', np.int8)\n"
            "assert len(other.data) == len(array.data), 'the file has not changed'\n"
            "assert (other.data == 2).all()\n"
        )
        assert finish(start(tmp_path, fill)) == f"{errno.ENOSPC} {tmp_path}"


def test_the_error_of_a_full_disk_names_size_and_folder(tmp_path: Path) -> None:
    part_state = MappedPartState(tmp_path)
    with (
        patch("os.posix_fallocate", side_effect=OSError(errno.ENOSPC, "full")),
        pytest.raises(NoSpaceLeft, match=r"no room for 80,000 bytes.*free some") as caught,
    ):
        part_state.array("a", np.int64).reserve(10_000)
    assert caught.value.filename == str(tmp_path)
    with (
        patch("os.posix_fallocate", side_effect=OSError(errno.EIO, "broken")),
        pytest.raises(OSError, match="broken") as other,
    ):
        part_state.array("a", np.int64).reserve(10_000)
    assert not isinstance(other.value, NoSpaceLeft)
    part_state.close()


def test_an_unreferenced_state_keeps_no_file_open(tmp_path: Path) -> None:
    def open_files() -> int:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files()
    for i in range(20):
        MappedPartState(tmp_path / str(i)).array("a", np.int8).reserve(10)
    assert open_files() == before
