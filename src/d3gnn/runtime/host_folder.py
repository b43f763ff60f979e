"""The random id of a pipeline's folder of arrays on one host.

A packet that names a file carries the id of the folder that the file is in. Another host may have a file of
the same name: its id differs.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from d3gnn.private import open_private, private_folder, read_private

ID_BYTES = 16
#: The name of its file.
HOST_ID = "host-id"


def host_folder_id(arrays: str | Path) -> bytes:
    """The id of the folder `arrays` on this host; made with the folder if need be.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> host_folder_id(folder) == host_folder_id(folder) != host_folder_id(tempfile.mkdtemp())
    True
    """
    folder = private_folder(arrays)
    path = folder / HOST_ID
    while True:
        with suppress(FileNotFoundError):
            found = read_private(path)
            if len(found) == ID_BYTES:
                return found
            path.unlink()
        fresh = folder / f"{HOST_ID}.{secrets.token_hex(8)}"
        file = open_private(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.write(file, secrets.token_bytes(ID_BYTES))
        finally:
            os.close(file)
        with suppress(FileExistsError):
            os.link(fresh, path)
        fresh.unlink()
