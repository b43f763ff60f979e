"""Erasure of rows from an output table: a local folder of Parquet files, which Spark's file sink wrote.

Spark reads such a table by the log of the sink, `_spark_metadata`, which has the name and the size of each
file. Files are replaced under their names, then their sizes in that log are corrected. A crash in between
leaves sizes that differ; the next erasure corrects them. Compacted tables (`compacted_table.py`) have no such
log.

A process that was killed leaves unfinished files, which nobody reads. What they name is not known, so they
count as found, and are deleted.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from d3gnn.store.compacted_table import OutputTable
from d3gnn.store.named_ids import NamedIds

__all__ = ["check_table", "erase_from_table", "search_table"]

_SINK_LOG, _TEMPORARY = "_spark_metadata", ".forget"


def check_table(folder: str | Path) -> Path:
    """The folder of a table from which rows can be erased; raises ValueError for other ones."""
    path = Path(folder)
    if "://" in str(folder) or not path.is_dir():
        raise ValueError(
            f"{folder}: there is no such folder; an output table is a local folder of Parquet files"
        )
    if (path / "_delta_log").exists():
        raise ValueError(
            f"{path} is a Delta table: delete the rows with Delta's DELETE, and their files with VACUUM"
        )
    others = {file.suffix for file in path.iterdir() if file.name.startswith("part-")} - {".parquet"}
    if others:
        raise ValueError(
            f"{path} has files of another format ({', '.join(sorted(others))}): only Parquet tables are "
            "supported, delete the rows from others yourself"
        )
    return path


def search_table(folder: Path, ids: NamedIds) -> Counter[str]:
    """The number of rows that name one of the ids, in each file that does; other files count as one row."""
    found: Counter[str] = Counter()
    for file in _files(folder):
        if file.suffix == ".parquet":
            found[str(file)] = _rows_in(file, folder, ids)
        elif file.suffix != ".crc" and file.parent.name != _SINK_LOG:
            found[str(file)] = int(ids.in_text(file.read_bytes()))
    return +found


def erase_from_table(folder: Path, ids: NamedIds) -> None:
    """Delete the rows that name one of the ids, also from files that failed tasks have left."""
    for file in _files(folder):
        if file.name.endswith(_TEMPORARY):
            file.unlink()
        elif file.suffix == ".parquet" and _rows_in(file, folder, ids):
            if _is_whole(file):
                _rewrite(file, ids)
            else:
                file.unlink()
    for log in (folder / _SINK_LOG).glob("[0-9]*"):
        _correct_sizes(log, folder)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _rows_in(file: Path, folder: Path, ids: NamedIds) -> int:
    """The number of rows of a Parquet file that name one of the ids; 1 for an unfinished one."""
    if _is_whole(file):
        return ids.in_parquet(str(file))
    if file in _files_of_readers(folder):
        raise ValueError(f"{file} is damaged: restore it from a backup, or delete it with the whole table")
    return 1


def _is_whole(file: Path) -> bool:
    try:
        pq.read_metadata(file)
    except pa.ArrowInvalid:
        return False
    return True


def _files_of_readers(folder: Path) -> set[Path]:
    """The files that readers of the table read: those in the log of the sink, and compacted tables."""
    opened = OutputTable(folder)
    found = {folder / name for name in opened.files()[0]} if (folder / _SINK_LOG).is_dir() else set()
    for compaction in opened.compactions():
        found |= set(Path(opened.folder(compaction)).glob("*.parquet"))
    return found


def _rewrite(file: Path, ids: NamedIds) -> None:
    with pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as opened:
        table, columns = opened.read(), opened.metadata.schema
        # Types stay as Spark wrote them.
        int96 = any(columns.column(i).physical_type == "INT96" for i in range(len(columns)))
        groups = opened.metadata.num_row_groups
        codec = opened.metadata.row_group(0).column(0).compression if groups else "SNAPPY"
    kept = table.filter(pa.array(~ids.in_rows(table)))
    temporary = file.with_name(f".{file.name}{_TEMPORARY}")
    pq.write_table(
        kept, temporary, compression="none" if codec == "UNCOMPRESSED" else codec.lower(), store_schema=False,
        use_deprecated_int96_timestamps=int96,
    )  # fmt: skip
    _replace(temporary, file)


def _replace(temporary: Path, file: Path) -> None:
    """Put a new file in the place of one, whose checksum, which Hadoop keeps beside it, is then wrong."""
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    temporary.replace(file)


def _correct_sizes(log: Path, folder: Path) -> None:
    """Make one file of the sink's log show the sizes that files have."""
    version, *lines = log.read_text(encoding="utf-8").splitlines()
    corrected = [_corrected(line, folder) for line in lines]
    if corrected != lines:
        temporary = log.with_name(f".{log.name}{_TEMPORARY}")
        temporary.write_text("\n".join([version, *corrected]), encoding="utf-8")
        _replace(temporary, log)


def _corrected(line: str, folder: Path) -> str:
    entry: dict[str, Any] = json.loads(line)
    file = folder / Path(unquote(urlparse(entry["path"]).path)).name
    if not file.exists() or file.stat().st_size == entry["size"]:
        return line
    entry |= {"size": file.stat().st_size, "modificationTime": int(file.stat().st_mtime * 1000)}
    return json.dumps(entry, separators=(",", ":"), ensure_ascii=False)
