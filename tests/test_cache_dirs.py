from __future__ import annotations

from pathlib import Path

from d3gnn.cache_dirs import first_writable, own_cache_dirs


def test_the_first_folder_that_can_be_written_to_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    blocked, free = tmp_path / "file" / "folder", tmp_path / "a" / "b"
    assert first_writable([blocked, free, tmp_path]) == free
    assert free.is_dir()
    assert first_writable([blocked]) is None
    assert first_writable([]) is None


def test_folders_that_others_may_change_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    assert first_writable([tmp_path / "open", tmp_path / "link", tmp_path / "own"]) == tmp_path / "own"
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700


def test_what_belongs_to_code_lies_beside_it(tmp_path: Path) -> None:
    assert own_cache_dirs(tmp_path)[0] == tmp_path / "__pycache__"
