"""A store: a folder for everything that must survive a machine, on any file system of pyarrow."""

from __future__ import annotations

import errno
import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from pyarrow import fs

__all__ = [
    "FORK",
    "LAYOUT",
    "OWNERS",
    "QUERY",
    "SETTINGS",
    "STORE",
    "Store",
    "StoreError",
    "StoreFull",
    "StoreInUse",
    "StoreMismatch",
]

#: Version of the store's layout: folders, names, columns. A store of another layout is refused.
LAYOUT = 2
#: The folder of the store under a checkpoint, unless one is given.
STORE = "graph"
SETTINGS = "settings.json"
#: In a store that is a fork: where its graph comes from.
FORK = "fork.json"

#: The first streaming query that owned the store; a folder of those that took it over.
QUERY, OWNERS = "query.json", "owners"

_TEMPORARY = ".tmp"
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
_LEFTOVER_SECONDS = 3600.0


class StoreError(RuntimeError):
    """A store cannot be used as it is; the message says what to do."""


class StoreInUse(StoreError):
    """The store belongs to another streaming query."""


class StoreMismatch(StoreError):
    """The store was created with other settings, or by another release."""


class StoreFull(StoreError):
    """No space is left; the file was not written."""


class Store:
    """A folder of small files that are created atomically and never change.

    uri:
        A local path, or a URI that `pyarrow.fs.FileSystem.from_uri` takes: `s3://`, `gs://`, `hdfs://`,
        `abfs://`, `file://`.
    filesystem:
        The file system that `uri` is a path on, for custom credentials or any fsspec file system.

    >>> import tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> store.create("log/1", b"first"), store.create("log/1", b"second"), store.read("log/1")
    (True, False, b'first')
    """

    def __init__(self, uri: str | os.PathLike[str], filesystem: fs.FileSystem | None = None) -> None:
        self.uri = os.fspath(uri)
        self._given = filesystem
        self._fs, self._root = _open(self.uri) if filesystem is None else (filesystem, self.uri.rstrip("/"))
        self._local = Path(self._root) if isinstance(self._fs, fs.LocalFileSystem) else None
        self._settings: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"Store({self.uri!r})"

    def __reduce__(self) -> Any:
        return Store, (self.uri, self._given)

    # ------------------------------------------------------------------ files

    def create(self, path: str, data: bytes | pa.Buffer) -> bool:
        """Create a file atomically; False, and no change, if it exists.

        The first writer wins. That is certain on local file systems with hard links. Elsewhere the file is
        written under a temporary name and moved if the final name is still free: never half a file, but two
        writers at the same moment may both return True, and the file of the later one stays.
        """
        temporary = f"{_TEMPORARY}/{PurePosixPath(path).name}.{uuid.uuid4().hex}"
        try:
            if self._local is not None:
                return self._create_by_link(self._local / path, self._local / temporary, data)
            return self._create_by_move(path, temporary, data)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise StoreFull(
                f"no space is left in the store {self.uri} for {path} ({memoryview(data).nbytes:,} bytes). "
                "It was not written, and nothing is lost: make room, and start again."
            ) from error

    def read(self, path: str) -> bytes | None:
        """The content of a file; None if there is no such file."""
        try:
            with self._fs.open_input_stream(self._at(path), compression=None) as stream:
                content: bytes = stream.read()
                return content
        except FileNotFoundError:
            return None

    def open_input(self, path: str) -> pa.NativeFile:
        """A file, open for reading at any place."""
        return self._fs.open_input_file(self._at(path))

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        if self._local is not None:
            return (self._local / path).exists()
        return bool(self._fs.get_file_info(self._at(path)).type != fs.FileType.NotFound)

    def list(self, folder: str) -> list[str]:
        """Names of the files in a folder, sorted; none if there is no such folder."""
        if self._local is not None:
            try:
                with os.scandir(self._local / folder) as found:  # names and kinds only: no stat of each file
                    return sorted(file.name for file in found if file.name[0] != "." and file.is_file())
            except FileNotFoundError:
                return []
        return sorted(info.base_name for info in self._files(folder) if info.base_name[0] != ".")

    def delete(self, path: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            self._fs.delete_file(self._at(path))

    def sweep(self) -> None:
        """Delete the temporary files of processes that were killed while writing."""
        for info in self._files(_TEMPORARY):
            if info.mtime is not None and info.mtime.timestamp() < time.time() - _LEFTOVER_SECONDS:
                self.delete(f"{_TEMPORARY}/{info.base_name}")

    # ------------------------------------------------------------------ owner and settings

    def owner(self) -> str:
        """The streaming query that the store belongs to; empty before the first one. See `Owners`."""
        names = self.list(OWNERS)
        path = f"{OWNERS}/{names[-1]}" if names else QUERY
        return str(self._json(path)["query"]) if self.exists(path) else ""

    def fix(self, settings: Mapping[str, Any]) -> None:
        """Write the settings that are fixed for the life of the store; raises `StoreMismatch` for other ones.

        `settings` holds values of JSON. Below the top level the order of items counts: that of the features
        is the order of the model's input.
        """
        here: dict[str, Any] = json.loads(self.to_json({"layout": LAYOUT, **settings}))
        if not self.exists(SETTINGS):
            if self.list("log"):
                raise StoreError(
                    f"the store {self.uri} has a log, but no {SETTINGS}: d3gnn fork was interrupted while it "
                    "wrote it, or the file was deleted. Delete the folder and fork again, or restore the file"
                )
            self.write_settings(settings)
        stored = self._read_settings()
        if different := "; ".join(_differences(stored, here)):
            raise StoreMismatch(
                f"the store {self.uri} was created with other settings: {different}. Run with the store's "
                "settings; or write a new store with these from its graph (StreamingGNN.fork, d3gnn fork) "
                "and start with a new checkpoint. For another graph, name another store (name= or store=)."
            )
        self._settings = stored

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """Write the settings of a store that has none."""
        self.create(SETTINGS, self.to_json({"layout": LAYOUT, **settings}))

    def assume(self, settings: Mapping[str, Any]) -> None:
        """Take these for the settings, in this process, until they are written."""
        self._settings = {"layout": LAYOUT, **settings}

    @staticmethod
    def to_json(content: Any) -> bytes:
        """The content of a JSON file in a store."""
        return (json.dumps(content, indent=2) + "\n").encode()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that `fix` wrote, in this run or an earlier one."""
        if self._settings is None:
            self._settings = self._read_settings()
        return self._settings

    def _read_settings(self) -> dict[str, Any]:
        settings = self._json(SETTINGS)
        if settings.get("layout") != LAYOUT:
            raise StoreMismatch(
                f"the store {self.uri} was created by another release (layout {settings.get('layout')}, "
                f"expected {LAYOUT}): read the events from the start with a new store and a new checkpoint"
            )
        # Stores of earlier releases have no rule for missing features: it was always this one.
        settings.get("schema", {}).setdefault("missing", "hash")
        return settings

    # ------------------------------------------------------------------

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _json(self, path: str) -> dict[str, Any]:
        text = self.read(path)
        if text is None:
            raise StoreError(
                f"there is no {path} in {self.uri}: no pipeline has used this folder as its store"
            )
        content: dict[str, Any] = json.loads(text)
        return content

    def _create_by_link(self, final: Path, temporary: Path, data: bytes | pa.Buffer) -> bool:
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary.parent.mkdir(exist_ok=True)
        made = True
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, final)
            except FileExistsError:
                made = False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                made = not final.exists()
                if made:
                    temporary.rename(final)
        finally:
            temporary.unlink(missing_ok=True)
        # The folder is not synced, which would double the time: on a power failure, file systems with a
        # journal lose the newest names first, so Spark's commit of the batch is lost before its entry.
        return made

    def _create_by_move(self, path: str, temporary: str, data: bytes | pa.Buffer) -> bool:
        for name in (path, temporary):
            self._fs.create_dir(self._at(str(PurePosixPath(name).parent)), recursive=True)
        try:
            with self._fs.open_output_stream(self._at(temporary), compression=None) as stream:
                stream.write(data)
            if self.exists(path):
                return False
            self._fs.move(self._at(temporary), self._at(path))
            return True
        finally:
            self.delete(temporary)

    def _files(self, folder: str) -> Iterator[fs.FileInfo]:
        for info in self._fs.get_file_info(fs.FileSelector(self._at(folder), allow_not_found=True)):
            if info.type == fs.FileType.File:
                yield info


def _open(uri: str) -> tuple[fs.FileSystem, str]:
    if not _URI.match(uri):
        return fs.LocalFileSystem(), str(Path(uri).expanduser().absolute())
    try:
        # Hadoop's s3a is s3 to pyarrow.
        filesystem, root = fs.FileSystem.from_uri(re.sub("^s3[an]:", "s3:", uri))
    except pa.ArrowInvalid as error:
        raise StoreError(
            f"the store {uri} cannot be opened: {error}. A store is a local path or a URI that pyarrow "
            "reaches: file, s3, gs, hdfs, abfs; others work with Store(path, filesystem=...)."
        ) from error
    return filesystem, root.rstrip("/")


def _differences(theirs: Mapping[str, Any], mine: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Each setting that differs, as `name is this in the store, and that here`."""
    for name in [*theirs, *(name for name in mine if name not in theirs)]:
        full = prefix + name
        if name not in theirs or name not in mine:
            there, here = (json.dumps(s[name]) if name in s else "absent" for s in (theirs, mine))
            yield f"{full} is {there} in the store, and {here} here"
        elif isinstance(theirs[name], dict) and isinstance(mine[name], dict):
            yield from _differences(theirs[name], mine[name], f"{full}.")
            if list(theirs[name]) != list(mine[name]) and set(theirs[name]) == set(mine[name]):
                there, here = (", ".join(s[name]) for s in (theirs, mine))
                yield f"{full} are in the order {there} in the store, and {here} here"
        elif theirs[name] != mine[name]:
            yield f"{full} is {json.dumps(theirs[name])} in the store, and {json.dumps(mine[name])} here"
