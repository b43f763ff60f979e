"""Records: small JSON files of a store, with a checksum over their content."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from d3gnn.store.store import Store, StoreError


def create_record(store: Store, path: str, content: dict[str, Any]) -> bool:
    """Create a record atomically; False, and no change, if it exists."""
    whole = content | {"checksum": _checksum(content)}
    return store.create(path, (json.dumps(whole, indent=2) + "\n").encode())


def read_record(store: Store, path: str) -> dict[str, Any] | None:
    """The content of a record; None if there is none. Raises `StoreError` for one that was changed.

    >>> import tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> create_record(store, "a.json", {"name": "june"}), read_record(store, "a.json")
    (True, {'name': 'june'})
    """
    data = store.read(path)
    if data is None:
        return None
    try:
        content = json.loads(data)
        checksum = content.pop("checksum")
    except (ValueError, KeyError, AttributeError, TypeError):
        checksum = None
    if checksum is None or checksum != _checksum(content):
        raise StoreError(
            f"{path} in the store {store.uri} is damaged: its content does not match its checksum. Restore "
            "it from a backup."
        )
    found: dict[str, Any] = content
    return found


def _checksum(content: dict[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
