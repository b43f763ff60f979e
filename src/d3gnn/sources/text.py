"""Delimited text as a table: its delimiter, its header and its comments."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from d3gnn.sources.columns import names_ends
from d3gnn.sources.errors import EdgeListError

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_COMMENTS = (b"#", b"%")
_COMMENT_LINE = re.compile(rb"^[ \t]*[#%].*(?:\r?\n|\Z)", re.MULTILINE)
_BLANKS = re.compile(rb"[ \t]+")
_BLANKS_AT_ENDS = re.compile(rb"^[ \t]+|[ \t]+(?=\r?$)", re.MULTILINE)
#: A number, or a date with or without a time and a zone.
_NUMBER = re.compile(r"[+-]?(\d[\d.:/T-]*(e[+-]?\d+)?( [\d.:]+)?([+-][\d:]+)?Z?)?", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"')
#: A header with `src` and one of these is one of the event format, in which a value may equal a column name.
_EVENT_NAMES = {"op", "element", "dst", "time"}
#: Around the numbers of a list, and between them: `[0.1, 0.2]`, `0.1;0.2`, `0.1 0.2`, `0.1|0.2`.
BRACKETS, SEPARATORS = r"[\[\](){}]", r"[\s,;|]+"
_SAMPLE_LINES = 20
_BLOCK = 8 << 20


@dataclass(frozen=True)
class Text:
    """The lines of a file without comments and header, and how to split them."""

    path: Path
    data: bytes
    delimiter: str
    header: list[str] | None
    #: The first character of comments; empty if there are none.
    comment: str = ""

    @classmethod
    def load(cls, path: Path, limit: int | None = None, names: Collection[str] = ()) -> Text:
        """Read a file, gzipped or not, without its comments and its header; at most `limit` bytes of it.

        A first line with all of `names`, the columns that the user named, is a header.
        """
        data = _bytes_of(path, limit)
        comment = _comment(data)
        data = _COMMENT_LINE.sub(b"", data) if comment else data
        sample = _sample(data)
        if not sample:
            raise EdgeListError(
                f"{path} has no rows: it is empty or has only comments; write lines such as `src dst`"
            )
        delimiter = _delimiter(sample)
        if delimiter == " ":
            data = _with_single_blanks(data)
        rows = [_cells(line, delimiter) for line in sample]
        if len(rows[0]) < 2:
            raise EdgeListError(
                f"{path} has fewer than two columns: its first line is {sample[0][:80]!r}; "
                "an edge needs a source and a target, separated by white space, a comma, a tab or a semicolon"
            )
        is_header = (names and set(names) <= set(rows[0])) or _is_header(rows)
        header = rows[0] if is_header else None
        if header is not None:
            data = data.lstrip(b"\r\n").partition(b"\n")[2]
            if not data.strip():
                raise EdgeListError(f"{path} has no rows: it has only a header; write `src dst` lines")
        return cls(path, data, delimiter, header, comment)


def read_text(text: Text, *, as_strings: Sequence[int] = ()) -> Any:
    """The columns, named by position, with the types that all of their values allow."""
    return pa.csv.read_csv(
        pa.BufferReader(text.data),
        # With threads, a process that ends right after a sample aborts if it has imported torch.
        read_options=pa.csv.ReadOptions(
            use_threads=len(text.data) > _BLOCK, autogenerate_column_names=True, block_size=_BLOCK
        ),
        parse_options=pa.csv.ParseOptions(delimiter=text.delimiter),
        convert_options=pa.csv.ConvertOptions(
            column_types={f"f{column}": pa.string() for column in as_strings}
        ),
    )


def sample_lines(path: Path, limit: int) -> list[str]:
    """The first lines of a file, gzipped or not, that are not blank."""
    return [line for line in _bytes_of(path, limit).decode(errors="replace").splitlines() if line.strip()]


def numbers_in(text: str) -> list[str]:
    """The numbers of a list that is written as text.

    >>> numbers_in("[0.1, 0.2]"), numbers_in("3;4"), numbers_in("")
    (['0.1', '0.2'], ['3', '4'], [])
    """
    return [number for number in re.split(SEPARATORS, re.sub(BRACKETS, " ", text)) if number]


def _bytes_of(path: Path, limit: int | None) -> bytes:
    with path.open("rb") as file:
        zipped = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        file.seek(0)
        try:
            data = (gzip.GzipFile(fileobj=file) if zipped else file).read(-1 if limit is None else limit)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise EdgeListError(f"{path} is a damaged gzip file ({error}); fetch it again") from error
    if b"\0" in data[:4096]:
        raise EdgeListError(
            f"{path} is neither text (UTF-8), gzipped text nor Parquet; convert it to one of them"
        )
    if limit is not None and len(data) == limit:
        data = data[: data.rfind(b"\n") + 1] or data  # the last line may be half of one
    return data.removeprefix(_BYTE_ORDER_MARK)


def _comment(data: bytes) -> str:
    # Searching for a newline and a mark is much faster than the regular expression.
    first = data.lstrip()[:1]
    found = (mark for mark in _COMMENTS if first == mark or b"\n" + mark in data)
    return next(found, b"").decode()


def _sample(data: bytes) -> list[str]:
    """The first lines that are not blank."""
    lines: list[str] = []
    start = 0
    while start < len(data) and len(lines) < _SAMPLE_LINES:
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        line = data[start:end].decode("utf-8", errors="replace").strip("\r\n")
        if line.strip():
            lines.append(line)
        start = end + 1
    return lines


def _delimiter(sample: list[str]) -> str:
    """The delimiter that occurs equally often in all lines; else white space."""
    bare = [_QUOTED.sub("", line) for line in sample]
    for mark in "\t,;":
        counts = {line.count(mark) for line in bare}
        if len(counts) == 1 and counts != {0}:
            return mark
    return " "


def _with_single_blanks(data: bytes) -> bytes:
    """One blank between columns and none around the line, as the parser needs."""
    padded = b"\n" + data + b"\n"
    if b"\t" in data or any(run in padded for run in (b"  ", b" \n", b"\n ", b" \r")):
        return _BLANKS.sub(b" ", _BLANKS_AT_ENDS.sub(b"", data))
    return data


def _cells(line: str, delimiter: str) -> list[str]:
    cells = line.split() if delimiter == " " else next(csv.reader([line], delimiter=delimiter))
    return [cell.strip().strip('"') for cell in cells]


def _is_header(rows: list[list[str]]) -> bool:
    """No cell is a number, and either the cells are known names or a number stands below one of them.

    A cell that occurs again below is an id: `u v` above `v w` is two edges. The event format always has a
    header.
    """
    first, below = rows[0], rows[1:]
    if "src" in first and not _EVENT_NAMES.isdisjoint(first):
        return True
    if any(_NUMBER.fullmatch(cell) for cell in first):
        return False
    if any(cell in row for row in below for cell in first):
        return False
    return names_ends(first) or any(_NUMBER.fullmatch(cell) and cell for row in below for cell in row)
