"""The files of an output table, and the compacted table beside them.

A streaming query adds files to an output table, and names them in the log `_spark_metadata`; a file that is
not there belongs to an attempt that failed. Nothing here changes that log, so a query may run meanwhile. A
compaction is a folder of Parquet files in `_compacted`, with the newest row of each id, and a manifest that
names the files whose rows it replaces. The newest rows are those of the compaction and of the files after it.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from d3gnn.store.store import Store, StoreError

_LOG, _COMPACTED = "_spark_metadata", "_compacted"
_MANIFEST = re.compile(r"\d{6,}\.parquet")
_META = b"d3gnn.compaction"
_FOLDER = re.compile(r"\d{6}-[0-9a-f]{8}")


@dataclass(frozen=True)
class Compaction:
    """A compacted table."""

    #: From 1, in order.
    number: int
    #: Its folder.
    folder: str
    #: The newest batch in it, by the log of the sink; -1 if the table has no such log.
    batch: int
    rows: int
    #: Names of the files that it replaces.
    files: tuple[str, ...]


class OutputTable:
    """An output table in a folder, on any file system that pyarrow reaches."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path).rstrip("/")
        self._store = Store(self.path)
        self._compacted = Store(f"{self.path}/{_COMPACTED}")

    def files(self) -> tuple[list[str], int]:
        """Names of the committed files, and the newest batch, -1 without a log of the sink."""
        logged = {name.partition(".")[0]: name for name in self._store.list(_LOG)}
        if not logged:
            return [name for name in self._store.list("") if name.endswith(".parquet")], -1
        batches = sorted(int(number) for number in logged if number.isdecimal())
        # A compact file of the log has all entries before it, too.
        compact = max((batch for batch in batches if logged[str(batch)].endswith(".compact")), default=0)
        names: dict[str, None] = {}
        for batch in batches:
            if batch >= compact:
                content = (self._store.read(f"{_LOG}/{logged[str(batch)]}") or b"").decode()
                for line in content.splitlines()[1:]:  # the first line is the version of the format
                    names[unquote(json.loads(line)["path"]).rpartition("/")[2]] = None
        return list(names), batches[-1]

    def compactions(self) -> list[Compaction]:
        """All compactions that are complete, in order."""
        found = []
        for name in self._compacted.list(""):
            if _MANIFEST.fullmatch(name) and (data := self._compacted.read(name)) is not None:
                found.append(_manifest(f"{self.path}/{_COMPACTED}/{name}", data))
        return found

    def newest_compaction(self) -> Compaction | None:
        """The compaction to read; None if there is none."""
        return max(self.compactions(), key=lambda each: each.number, default=None)

    def paths(self, names: Iterable[str]) -> list[str]:
        """The paths of files of the table."""
        return [f"{self.path}/{name}" for name in names]

    def folder(self, compaction: Compaction) -> str:
        """The path of a compacted table."""
        return f"{self.path}/{_COMPACTED}/{compaction.folder}"

    def next_compaction(self) -> Compaction:
        """A compaction of all files of the table, to be written to its folder and then committed."""
        last = self.newest_compaction()
        number = 1 if last is None else last.number + 1
        names, batch = self.files()
        return Compaction(number, f"{number:06d}-{uuid.uuid4().hex[:8]}", batch, 0, tuple(names))

    def commit(self, compaction: Compaction) -> None:
        """Make a compaction the one that is read, once its files are written."""
        if not self._compacted.create(f"{compaction.number:06d}.parquet", _to_parquet(compaction)):
            raise StoreError(
                f"{self.path} was compacted by another process at the same time: nothing is lost, and there "
                "is nothing left to do"
            )

    def sweep(self, keep: int) -> None:
        """Delete all compactions but the newest ones."""
        compactions = self.compactions()
        for old in compactions[:-keep]:
            self._compacted.delete(f"{old.number:06d}.parquet")
        kept = {each.folder for each in compactions[-keep:]}
        for folder in self._compacted.folders(""):
            # Not one of the newest number: another process may be writing it.
            is_old = _FOLDER.fullmatch(folder) and int(folder[:6]) < compactions[-1].number
            if is_old and folder not in kept:
                self._compacted.delete_folder(folder)

    def delete(self, names: Iterable[str]) -> int:
        """Delete files of the table; returns how many there were."""
        here = set(self._store.list(""))
        gone = [name for name in names if name in here]
        for name in gone:
            self._store.delete(name)
            self._store.delete(f".{name}.crc")
        return len(gone)


def _to_parquet(compaction: Compaction) -> pa.Buffer:
    """The manifest: the files as rows, everything else as metadata."""
    plain = asdict(compaction)
    names = pa.table({"file": pa.array(plain.pop("files"), pa.string())})
    sink = pa.BufferOutputStream()
    pq.write_table(names.replace_schema_metadata({_META: json.dumps(plain)}), sink)
    return sink.getvalue()


def _manifest(path: str, data: bytes) -> Compaction:
    try:
        table = pq.read_table(pa.BufferReader(data))
        return Compaction(**json.loads(table.schema.metadata[_META]), files=tuple(table["file"].to_pylist()))
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged: delete it, and compact the table again ({error})") from error
