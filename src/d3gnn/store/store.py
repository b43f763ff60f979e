"""A store: a folder for everything that must survive a machine, on any file system of pyarrow."""

from __future__ import annotations

import errno
import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import fs

from d3gnn.private import open_private, private_folder, read_private, resolved
from d3gnn.store.sealed_json import from_json, to_json
from d3gnn.store.settings_diff import differences

__all__ = [
    "FORK",
    "LAYOUT",
    "OFFSETS",
    "OWNERS",
    "QUERY",
    "SETTINGS",
    "STORE",
    "Store",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreInUse",
    "StoreMismatch",
]

#: Version of the store's layout: folders, names, columns. A store of another layout is refused.
LAYOUT = 3
#: The folder of the store under a checkpoint, unless one is given.
STORE = "graph"
SETTINGS = "settings.json"
#: In a store that is a fork: where its graph comes from.
FORK = "fork.json"

#: The first streaming query that owned the store; a folder of those that took it over.
QUERY, OWNERS, OFFSETS = "query.json", "owners", "offsets"

_TEMPORARY, _ID = ".tmp", "id"
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
_LEFTOVER_SECONDS = 3600.0

#: A piece of a file.
Data: TypeAlias = "bytes | memoryview | pa.Buffer"


class StoreError(RuntimeError):
    """A store cannot be used as it is; the message says what to do."""


class StoreInUse(StoreError):
    """The store belongs to another streaming query."""


class StoreMismatch(StoreError):
    """The store was created with other settings, or by another release."""


class StoreDamaged(StoreError):
    """A file of the store is not as it was written, or belongs to another history of the store."""

    @staticmethod
    def of(path: str, store: str, problem: object) -> StoreDamaged:
        """About the file at `path` in the store."""
        return StoreDamaged(
            f"{path} in the store {store} is damaged: {problem}. Restore it from a backup; "
            "`d3gnn verify --deep` lists all damage, and `d3gnn repair` drops it."
        )


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
        self._id = ""

    def __repr__(self) -> str:
        return f"Store({self.uri!r})"

    def __reduce__(self) -> Any:
        return Store, (self.uri, self._given)

    # ------------------------------------------------------------------ files

    def create(self, path: str, *data: Data) -> bool:
        """Create a file of these pieces atomically; False, and no change, if it exists.

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
                f"no space is left in the store {self.uri} for {path} ({_nbytes(data):,} bytes). "
                "It was not written, and nothing is lost: make room, and start again."
            ) from error

    def replace(self, path: str, *data: Data) -> None:
        """Put new content in the place of a file, or create it: a reader finds the old or the new one.

        Only for a stopped pipeline: all else relies on files that never change.
        """
        temporary = f"{_TEMPORARY}/{PurePosixPath(path).name}.{uuid.uuid4().hex}"
        self.create(temporary, *data)
        if self._local is not None:
            private_folder((self._local / path).parent)
            (self._local / temporary).replace(self._local / path)
        else:  # on object stores, a write replaces a file as a whole
            with self._fs.open_output_stream(self._at(path), compression=None) as stream:
                for piece in data:
                    stream.write(piece)
            self.delete(temporary)

    def walk(self) -> Iterator[str]:
        """The paths of all files in the store, in order, with those that are being written."""
        selector = fs.FileSelector(self._root, allow_not_found=True, recursive=True)
        root = self._fs.normalize_path(self._root)
        for info in sorted(self._fs.get_file_info(selector), key=lambda info: str(info.path)):
            if info.type == fs.FileType.File:
                yield info.path[len(root) :].lstrip("/")

    @property
    def local(self) -> Path | None:
        """The folder, on a local file system."""
        return self._local

    def read(self, path: str) -> bytes | None:
        """The content of a file; None if there is no such file."""
        try:
            with self._fs.open_input_stream(self._at(path), compression=None) as stream:
                content: bytes = stream.read()
                return content
        except FileNotFoundError:
            return None

    def read_json(self, path: str) -> dict[str, Any] | None:
        """The content of a JSON file with a checksum; None if there is no such file."""
        text = self.read(path)
        if text is None:
            return None
        try:
            content = from_json(text, unsealed=path == SETTINGS)
            if path == SETTINGS and content.get("layout") == LAYOUT:  # older layouts had no checksums
                content = from_json(text)
        except ValueError as error:  # also of bytes that are no text
            raise StoreDamaged.of(path, self.uri, error) from error
        return content

    def read_own(self, path: str) -> bytes | None:
        """The content of a file, which must be a regular one of this user where files have owners."""
        if self._local is None:
            return self.read(path)
        try:
            return read_private(self._local / path)
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

    def folders(self, folder: str) -> Sequence[str]:
        """Names of the folders in a folder, sorted; none if there is no such folder."""
        found = self._fs.get_file_info(fs.FileSelector(self._at(folder), allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)

    def delete_folder(self, path: str) -> None:
        """Remove a folder with all that is in it, if it is there."""
        with suppress(FileNotFoundError):
            self._fs.delete_dir(self._at(path))

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

    def check_owner(self) -> None:
        """Make the folder, for this user only, or check that no other user may change it; raises `NotPrivate`
        if one may. Other file systems than local ones have rights of their own.
        """
        if self._local is not None:
            private_folder(self._local)

    def owner(self) -> str:
        """The streaming query that the store belongs to; empty before the first one. See `Owners`."""
        names = self.list(OWNERS)
        found = self.read_json(f"{OWNERS}/{names[-1]}" if names else QUERY)
        return "" if found is None else str(found["query"])

    def fix(self, settings: Mapping[str, Any]) -> None:
        """Write the settings that are fixed for the life of the store; raises `StoreMismatch` for other ones.

        `settings` holds values of JSON. Below the top level the order of items counts: that of the features
        is the order of the model's input.
        """
        self.check_owner()
        here: dict[str, Any] = json.loads(json.dumps({"layout": LAYOUT, **settings}))
        if not self.exists(SETTINGS):
            if self.list("log") or self.list("snapshots"):
                raise StoreDamaged.of(
                    SETTINGS,
                    self.uri,
                    "it is missing, but the store has a graph log. If `d3gnn fork` was interrupted while it "
                    "wrote this store, delete the folder and fork again",
                )
            self.write_settings(settings)
        stored = self._read_settings()
        if different := "; ".join(differences(stored, here)):
            raise StoreMismatch(
                f"the store {self.uri} was created with other settings: {different}. Run with the store's "
                "settings; or write a new store with these from its graph (StreamingGNN.fork, d3gnn fork) "
                "and start with a new checkpoint. For another graph, name another store (name= or store=)."
            )
        self._settings = stored

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """Write the settings of a store that has none."""
        self.create(SETTINGS, to_json({"layout": LAYOUT, **settings, _ID: self._id or uuid.uuid4().hex}))

    def assume(self, settings: Mapping[str, Any]) -> None:
        """Take these for the settings, in this process, until they are written."""
        self._settings, self._id = {"layout": LAYOUT, **settings}, uuid.uuid4().hex

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that `fix` wrote, in this run or an earlier one."""
        if self._settings is None:
            self._settings = self._read_settings()
        return self._settings

    @property
    def id(self) -> str:
        """A random name that only this store has, so that files of other stores do not pass for its own."""
        if not self._id:
            self._read_settings()
        return self._id

    def _read_settings(self) -> dict[str, Any]:
        settings = self._json(SETTINGS)
        self._id = settings.pop(_ID, "")
        if settings.get("layout") != LAYOUT:
            raise StoreMismatch(
                f"the store {self.uri} was created by another release (layout {settings.get('layout')}, "
                f"expected {LAYOUT}): read the events from the start with a new store and a new checkpoint"
            )
        return settings

    # ------------------------------------------------------------------

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _json(self, path: str) -> dict[str, Any]:
        content = self.read_json(path)
        if content is None:
            raise StoreError(
                f"there is no {path} in {self.uri}: no pipeline has used this folder as its store"
            )
        return content

    def _create_by_link(self, final: Path, temporary: Path, data: Sequence[Data]) -> bool:
        self.check_owner()
        private_folder(final.parent)
        private_folder(temporary.parent)
        made = True
        try:
            with os.fdopen(open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                for piece in data:
                    file.write(piece)
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

    def _create_by_move(self, path: str, temporary: str, data: Sequence[Data]) -> bool:
        for name in (path, temporary):
            self._fs.create_dir(self._at(str(PurePosixPath(name).parent)), recursive=True)
        try:
            with self._fs.open_output_stream(self._at(temporary), compression=None) as stream:
                for piece in data:
                    stream.write(piece)
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
        return fs.LocalFileSystem(), str(resolved(uri))
    try:
        # Hadoop's s3a is s3 to pyarrow.
        filesystem, root = fs.FileSystem.from_uri(re.sub("^s3[an]:", "s3:", uri))
    except pa.ArrowInvalid as error:
        raise StoreError(
            f"the store {uri} cannot be opened: {error}. A store is a local path or a URI that pyarrow "
            "reaches: file, s3, gs, hdfs, abfs; others work with Store(path, filesystem=...)."
        ) from error
    return filesystem, root.rstrip("/")


def _nbytes(data: Sequence[Data]) -> int:
    return sum(memoryview(piece).nbytes for piece in data)
