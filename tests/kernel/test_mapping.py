"""Files in memory are mapped in large pages if the system has them, and are complete in any case."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from d3gnn.kernel.mapping import LARGE_PAGE, allocate, map_file

_MEMORY = Path("/dev/shm")


@pytest.fixture(params=["memory", "disk"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    if request.param == "memory" and not _MEMORY.is_dir():
        pytest.skip("there are no files in memory here")
    with tempfile.TemporaryFile(dir=_MEMORY if request.param == "memory" else tmp_path) as opened:
        yield opened.fileno()


def test_growth_keeps_contents_and_fills_with_zeros(file: int, tmp_path: Path) -> None:
    expected = np.zeros(0, np.uint8)
    rng = np.random.default_rng(0)
    sizes = [
        100,
        5000,
        LARGE_PAGE - 1,
        LARGE_PAGE + 1,
        3 * LARGE_PAGE - 7,
        3 * LARGE_PAGE,
        7 * LARGE_PAGE + 9,
    ]
    for size in sizes:
        allocate(file, size, tmp_path)
        assert os.fstat(file).st_size == size
        assert os.fstat(file).st_blocks * 512 >= size, "all of it is allocated"
        found = map_file(file, size, whole=size % 2 == 0)
        assert (found[: len(expected)] == expected).all()
        assert not found[len(expected) :].any()
        found[:] = rng.integers(0, 256, size, np.uint8)
        expected = found.copy()


def test_maps_of_one_file_are_the_same_memory(file: int, tmp_path: Path) -> None:
    size = 2 * LARGE_PAGE
    allocate(file, size, tmp_path)
    one, other = map_file(file, size), map_file(file, size, whole=True)
    one[::4096] = 7
    assert (other[::4096] == 7).all()
    del one
    assert (other[::4096] == 7).all()


def test_a_map_outlives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * LARGE_PAGE)
    file = os.open(path, os.O_RDWR)
    found = map_file(file, LARGE_PAGE)
    os.close(file)
    path.unlink()
    assert (found == ord("x")).all()


def test_an_empty_file_cannot_be_mapped(file: int) -> None:
    with pytest.raises(OSError, match="cannot map 0 bytes"):
        map_file(file, 0)


def _mapped_in_large_pages(address: int) -> int:
    """Kilobytes in large pages of the memory range at an address."""
    here, found = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            here = int(line.split("-")[0], 16) == address
        elif here and line.startswith("ShmemPmdMapped"):
            found = int(line.split()[1])
    return found


def test_large_pages_are_used_if_the_system_has_them(tmp_path: Path) -> None:
    size = 8 * LARGE_PAGE
    with tempfile.TemporaryFile(dir=_MEMORY) as opened:
        file = opened.fileno()
        allocate(file, size, tmp_path)
        found = map_file(file, size)
        found[:] = 1
        if not _has_large_pages(file):
            pytest.skip("this kernel makes no large pages of files in memory")
        assert found.ctypes.data % LARGE_PAGE == 0
        # Fragmented memory may have too few large pages for all of them.
        assert _mapped_in_large_pages(found.ctypes.data) > 0


def _has_large_pages(file: int) -> bool:
    """Whether the system creates large pages, checked in another way than the code does."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    return setting.exists() and "[deny]" not in setting.read_text() and release >= (6, 1)
