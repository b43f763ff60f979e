"""Commands to a running query: numbered files in a folder of its store, each with the kind of the command."""

from __future__ import annotations

import os
from typing import Literal, get_args

from d3gnn.store.store import Store

__all__ = ["CommandKind", "command", "command_numbers", "drop_commands", "read_command"]

#: `refresh` rebuilds all state from the log, `drain` sends everything that is pending in windows, `tick`
#: makes a batch, `finish` drains a run that is to end, `deploy` switches to the model that was deployed last.
CommandKind = Literal["refresh", "drain", "tick", "finish", "deploy"]
_KINDS = get_args(CommandKind)


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
        if store.create(_name(number), kind.encode()):
            return number


def command_numbers(store: Store) -> list[int]:
    """The numbers of the commands in a folder, in order."""
    return [int(name) for name in store.list("") if name.isdecimal()]


def read_command(store: Store, number: int) -> str:
    """The kind of a command."""
    return (store.read(_name(number)) or b"").decode()


def drop_commands(store: Store, before: int) -> None:
    """Delete the commands below a number. The newest must stay, since the next number follows from it."""
    for number in command_numbers(store):
        if number < before:
            store.delete(_name(number))


def _name(number: int) -> str:
    return f"{number:012d}"
