"""Commands to a running query: numbered files in a folder of its store, each with the kind of the command."""

from __future__ import annotations

import logging
import os
import re
from typing import Literal, cast, get_args

from d3gnn.private import NotPrivate
from d3gnn.store.store import Store, StoreError

__all__ = ["CommandKind", "command", "command_numbers", "drop_commands", "read_command"]

#: `refresh` rebuilds all state from the log, `drain` sends everything that is pending in windows, `tick`
#: makes a batch, `finish` drains a run that is to end, `deploy` switches to the model that was deployed last.
CommandKind = Literal["refresh", "drain", "tick", "finish", "deploy"]
_KINDS = get_args(CommandKind)
_NAME = re.compile("[0-9]{12}")
_LARGEST = 10**12 - 1
log = logging.getLogger("d3gnn")
#: Files that are no commands: there is one warning for each.
_ignored: set[str] = set()


def command(path: str | os.PathLike[str], kind: CommandKind) -> int:
    """Send a command to the query that listens at `path`, from any process; returns the command's number.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> command(folder, "refresh"), command(folder, "drain")
    (1, 2)
    """
    if kind not in _KINDS:
        raise ValueError(f"kind={kind!r}: choose one of {', '.join(_KINDS)}")
    store = Store(path)
    while True:
        # A number is taken only after the one before it: the reader never misses a lower one.
        number = max(command_numbers(store), default=0) + 1
        if number > _LARGEST:
            raise StoreError(f"{path} has the file {_name(_LARGEST)}, which no command made: delete it")
        if store.create(_name(number), kind.encode()):
            return number


def command_numbers(store: Store) -> list[int]:
    """The numbers of the commands in a folder, in order."""
    names = store.list("")
    for name in names:
        if not _NAME.fullmatch(name):
            _ignore(store, name, "it has not the name of a command")
    return [int(name) for name in names if _NAME.fullmatch(name)]


def read_command(store: Store, number: int) -> CommandKind | None:
    """The kind of a command; None, and a warning, for a file that is not one of this user's commands."""
    name = _name(number)
    try:
        text = (store.read_own(name) or b"").decode(errors="replace")
    except (NotPrivate, IsADirectoryError) as error:
        _ignore(store, name, str(error))
        return None
    if text in _KINDS:
        return cast(CommandKind, text)
    _ignore(store, name, f"it holds {text[:20]!r}, which is none of {', '.join(_KINDS)}")
    return None


def _ignore(store: Store, name: str, why: str) -> None:
    file = f"{store.uri}/{name}"
    if file not in _ignored:
        _ignored.add(file)
        log.warning("the file %s is ignored among the commands: %s", file, why)


def drop_commands(store: Store, before: int) -> None:
    """Delete the commands below a number. The newest must stay, since the next number follows from it."""
    for number in command_numbers(store):
        if number < before:
            store.delete(_name(number))


def _name(number: int) -> str:
    return f"{number:012d}"
