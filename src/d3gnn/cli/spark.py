"""Spark for a command: a session with its log in a file, and errors of one line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from d3gnn.cli.console import fail, user_mistakes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The exit code for errors that neither options nor input caused.
FAILED = 3
#: Errors of this package inside Python tasks that users can correct, as the last line of a traceback.
_OWN = re.compile(
    r"^d3gnn[\w.]*\.(?:DeadLetterFound|Store\w+|LogGap|ReplayMismatch|NotPrivate): (.+)$",
    re.MULTILINE,
)
_KNOWN = (
    # A pattern of Spark's message, and the message for the user.
    (
        r"CSV header does not conform to the schema.*?Header: (.*?)\n.*?Schema: (.*?)\n.*?CSV file: (\S+)",
        "{2} has the columns {0}, but the files before it have {1}; all files need the same columns",
    ),
    (
        r"PARQUET_COLUMN_DATA_TYPE_MISMATCH.*?file (\S+?)\. .*?column \[(.*?)\]\. Expected Spark type (\S+), "
        r"actual Parquet type (\S+?)\.",
        "{0} has {3} in the column {1}, but the files before it have {2}; write them with the same types",
    ),
    (
        r"CANNOT_READ_FILE_FOOTER.*?file:? ?(\S+?)\.? ",
        "{0} is not a complete Parquet file",
    ),
    (
        r"(?:FILE_NOT_EXIST|FileNotFoundException).*?(file:\S+)",
        "{0} was removed before it was read; put it back",
    ),
    (
        r"No space left on device",
        "the disk is full; free some space and run again: nothing is lost",
    ),
    (r"Multiple streaming queries are concurrently using (\S+)", "another process uses {0}; stop it first"),
)


@contextmanager
def spark_session(
    log: Path, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session for this command, or the active one; Java and the workers log to `log`.

    master:
        By default, all cores of this machine.
    """
    from pyspark.sql import SparkSession

    from d3gnn.spark.session import session

    if SparkSession.getActiveSession() is not None:
        yield session()
        return
    with _standard_error_to(log):  # Java inherits it
        spark = session(master or "local[*]", **dict(settings or {}))
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def plain_errors(log: Path) -> Iterator[None]:
    """Turn errors of Spark into one line and an exit code."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from d3gnn.private import NotPrivate
    from d3gnn.spark.homes import HomesError
    from d3gnn.spark.java import NoJava
    from d3gnn.store.store import StoreError

    try:
        with user_mistakes(NoJava, StoreError, NotPrivate, HomesError):
            yield
    except (PySparkException, Py4JError) as error:
        if (problem := known_problem(error)) is not None:
            fail(problem)
        fail(f"Spark stopped: {first_words(error)} (more in {log})", FAILED)


@contextmanager
def _standard_error_to(log: Path) -> Iterator[None]:
    """Redirect the standard error that new processes inherit; Python's own stays as it is."""
    kept, ours = os.dup(2), sys.stderr
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        if _is_standard_error(ours):
            sys.stderr = os.fdopen(os.dup(kept), "w", buffering=1, encoding=ours.encoding, errors=ours.errors)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        if sys.stderr is not ours:
            sys.stderr.close()
            sys.stderr = ours


def _is_standard_error(file: object) -> bool:
    try:
        return file.fileno() == 2  # type: ignore[attr-defined,no-any-return]
    except (AttributeError, OSError):
        return False


def known_problem(error: BaseException) -> str | None:
    """The error that stopped a query, in one line, if the user can correct it."""
    text = f"{error}\n{getattr(error, '_stackTrace', '')}"  # the stack has all causes
    if own := _OWN.findall(text):
        return str(own[-1])
    for pattern, message in _KNOWN:
        if found := re.search(pattern, text, re.DOTALL):
            return message.format(*(group.strip().removeprefix("file://") for group in found.groups()))
    return None


def first_words(error: BaseException) -> str:
    """Any other error in one line: the end of a Python traceback, or the last cause in Spark."""
    text = f"{error}\n{getattr(error, '_stackTrace', '')}"
    if "Traceback (most recent call last)" in text:
        ends = re.findall(r"^([A-Za-z_][\w.]*: .+)$", text.rpartition("Traceback")[2], re.MULTILINE)
        text = ends[0] if ends else text
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes or lines[:1])[-1][:300]
