"""Files and folders of this user alone.

Arrays, sockets and compiled code are kept where every user of the machine may create files, such as /dev/shm
and /tmp, under names that can be guessed. So folders are made for this user only (mode 0700) and files, too
(0600). What is there already counts only if it belongs to this user and no other user may change it, and
symbolic links are not followed: the user who made a link chooses the file that is read or emptied.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

_FOLDER, _FILE = 0o700, 0o600
#: A FIFO in place of a file must not block.
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK


class NotPrivate(PermissionError):
    """A file or folder belongs to another user, or others may change it; the message says what to do."""


def private_folder(path: str | Path, *, tighten: bool = False) -> Path:
    """Make a folder for this user only, and those above it that are missing; or check the one that is there.

    An existing folder of this user is used as it is, also if others may read it, unless `tighten` makes it
    private. One that belongs to another user, or that others may write to, raises `NotPrivate`.
    """
    path = Path(path)
    with suppress(FileExistsError):
        try:
            path.mkdir(_FOLDER)
        except FileNotFoundError:
            private_folder(path.parent)
            path.mkdir(_FOLDER)
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise NotPrivate(
            f"{path} is a symbolic link, which is not followed here: remove it, or name the folder that it "
            "leads to"
        )
    if not stat.S_ISDIR(found.st_mode):
        raise FileExistsError(errno.EEXIST, "is a file where a folder is needed", str(path))
    if found.st_uid != os.geteuid():
        raise NotPrivate(
            f"{path} belongs to {user_name(found.st_uid)}, who could read and change what is kept there: "
            "have it removed, or name another folder (a new one inside it also works, if you trust its owner)"
        )
    if found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)):
        raise NotPrivate(
            f"other users may write to {path} (mode {stat.S_IMODE(found.st_mode):04o}): if its content is "
            f"yours, run `chmod go-w {path}`; else name another folder"
        )
    if tighten and found.st_mode & 0o077:
        path.chmod(_FOLDER)
    return path


def open_private(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """Open a file of this user, and nothing else; with O_CREAT, one that is made is for this user only.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "file"
    >>> os.close(open_private(path, os.O_CREAT | os.O_WRONLY))
    >>> oct(path.stat().st_mode & 0o777)
    '0o600'
    """
    try:
        file = os.open(path, flags & ~os.O_TRUNC | _SAFE, _FILE)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise NotPrivate(f"{path} is a symbolic link, which is not followed here: remove it") from None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise NotPrivate(f"{path} is not a regular file: remove it")
        if found.st_uid != os.geteuid():
            raise NotPrivate(f"{path} belongs to {user_name(found.st_uid)}: have it removed")
        if found.st_mode & 0o077:  # of an earlier release
            os.fchmod(file, _FILE)
        if flags & os.O_TRUNC:  # only now: of another file, nothing may be lost
            os.ftruncate(file, 0)
    except BaseException:
        os.close(file)
        raise
    return file


def read_private(path: str | Path) -> bytes:
    """The content of a file of this user."""
    with os.fdopen(open_private(path), "rb") as file:
        return file.read()


def resolved(path: str | Path) -> Path:
    """An absolute path without symbolic links; raises `NotPrivate` for a link that another user made."""
    path = Path(path).expanduser().absolute()
    for place in (*reversed(path.parents), path):
        if place.is_symlink():
            # As the kernel has it for shared folders: the owner of a folder may also redirect what is in it.
            trusted = (0, os.geteuid(), place.parent.stat().st_uid)
            if (owner := place.lstat().st_uid) not in trusted:
                raise NotPrivate(f"{place} is a symbolic link that {user_name(owner)} made: have it removed")
    return path.resolve()


def user_name(uid: int) -> str:
    """A user, for a message."""
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user with id {uid}"


def _is_own_group(gid: int) -> bool:
    """Whether this group has no member but this user. Where every user has such a group, folders are writable
    to the group by default.
    """
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
