"""Sealed Parquet files: checksums over every byte, and over the file before.

A seal is a block of fixed size between the data and the footer of a Parquet file. Readers do not look there,
since Parquet finds all data by its distance from the start.

    data | seal: kind, digest before, digest of data, digest of footer, digest of these four | footer

The last digest stands for the whole file and, through the digest before, for all files of its chain. The
footer has a digest of its own, so that metadata is checked without reading the data.
"""

from __future__ import annotations

import struct
from enum import Enum
from hashlib import sha256
from typing import NamedTuple

import pyarrow as pa

#: Stands for "no file before".
NO_DIGEST = bytes(16)
_SEAL = struct.Struct("<8s16s16s16s16s")
_LENGTH = struct.Struct("<I4s")  # the end of a Parquet file: length of the footer, magic
_MAGIC = b"PAR1"
#: Read at once from the end of a file, where most footers fit.
_TAIL = 1 << 16


class Kind(Enum):
    """What a sealed file is: a file of one kind does not pass for one of another."""

    ENTRY = b"d3entry1"
    SNAPSHOT = b"d3snaps1"
    DEAD_LETTERS = b"d3deadl1"


class SealBroken(ValueError):
    """The content of a file is not what was written."""


class Seal(NamedTuple):
    """What the seal of an undamaged file says."""

    #: Digest of the file before it in the chain.
    previous: bytes
    #: Digest of the file, and of all before it.
    digest: bytes


def digest_of(*pieces: bytes | memoryview) -> bytes:
    """A checksum of 16 bytes."""
    hasher = sha256()
    for piece in pieces:
        hasher.update(piece)
    return hasher.digest()[:16]


def seal(kind: Kind, content: pa.Buffer, previous: bytes = NO_DIGEST) -> tuple[list[memoryview], bytes]:
    """A Parquet file as the pieces of a sealed one, and its digest.

    >>> import pyarrow.parquet as pq
    >>> sink = pa.BufferOutputStream()
    >>> pq.write_table(pa.table({"x": [1, 2]}), sink)
    >>> pieces, digest = seal(Kind.ENTRY, sink.getvalue())
    >>> data = b"".join(pieces)
    >>> pq.read_table(pa.BufferReader(data))["x"].to_pylist(), open_sealed(Kind.ENTRY, data).digest == digest
    ([1, 2], True)
    >>> open_sealed(Kind.ENTRY, data[:20] + b"?" + data[21:])
    Traceback (most recent call last):
    d3gnn.store.seal.SealBroken: its content does not match its checksum
    """
    whole = memoryview(content)
    cut = len(whole) - _footer_bytes(whole)
    data, footer = whole[:cut], whole[cut:]
    fields = kind.value, previous, digest_of(data), digest_of(footer)
    digest = digest_of(*fields)
    return [data, memoryview(_SEAL.pack(*fields, digest)), footer], digest


def open_sealed(kind: Kind, content: bytes) -> Seal:
    """The seal of a file, after a check of all of its bytes; raises `SealBroken`."""
    whole = memoryview(content)
    footer = _footer_bytes(whole)
    found, data_digest = _open(kind, whole[-footer - _SEAL.size :])
    if digest_of(whole[: -footer - _SEAL.size]) != data_digest:
        raise SealBroken("its content does not match its checksum")
    return found


def read_footer(kind: Kind, source: pa.NativeFile) -> tuple[Seal, pa.Buffer]:
    """The seal and the footer of an open file, after a check of both; the footer alone is a Parquet file
    without data.
    """
    size = source.size()
    tail = memoryview(source.read_at(min(size, _TAIL), max(0, size - _TAIL)))
    wanted = _footer_bytes(tail, size) + _SEAL.size
    if wanted > len(tail):
        tail = memoryview(source.read_at(wanted, size - wanted))
    found, _ = _open(kind, tail[-wanted:])
    return found, pa.py_buffer(_MAGIC + bytes(tail[-wanted + _SEAL.size :]))


def _footer_bytes(tail: memoryview, size: int | None = None) -> int:
    """Bytes of the footer, with its length and the magic, of a file of which this is the end."""
    size = len(tail) if size is None else size
    if size < _SEAL.size + _LENGTH.size:
        raise SealBroken(f"it has only {size} bytes")
    length, magic = _LENGTH.unpack(tail[-_LENGTH.size :])
    if magic != _MAGIC or length + _LENGTH.size > size - len(_MAGIC):
        raise SealBroken("it is not a whole Parquet file")
    return int(length) + _LENGTH.size


def _open(kind: Kind, tail: memoryview) -> tuple[Seal, bytes]:
    """The seal at the begin of this end of a file, and the digest that the data should have."""
    if len(tail) < _SEAL.size:
        raise SealBroken("it has no checksum: d3gnn did not write it")
    *fields, digest = _SEAL.unpack_from(tail)
    found, previous, data_digest, footer_digest = fields
    if digest != digest_of(*fields):
        known = found in {each.value for each in Kind}
        raise SealBroken("its checksum is damaged" if known else "it has no checksum: d3gnn did not write it")
    if found != kind.value:
        raise SealBroken(f"it is of another kind ({Kind(found).name.lower()})")
    if footer_digest != digest_of(tail[_SEAL.size :]):
        raise SealBroken("its metadata does not match its checksum")
    return Seal(previous, digest), data_digest
