"""Small JSON files of a store, each with a checksum of its content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

_CHECKSUM = "checksum"


def to_json(content: Mapping[str, Any]) -> bytes:
    """An object as a JSON file with its checksum.

    >>> content = from_json(to_json({"parts": 2}))
    >>> content
    {'parts': 2}
    >>> from_json(to_json({"parts": 2}).replace(b"2", b"3", 1))
    Traceback (most recent call last):
    ValueError: its content does not match its checksum
    """
    return (json.dumps({**content, _CHECKSUM: _checksum(content)}, indent=2) + "\n").encode()


def from_json(data: bytes, *, unsealed: bool = False) -> dict[str, Any]:
    """The content of such a file; raises ValueError if it was changed, or has no checksum (unless
    `unsealed`).
    """
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    checksum = content.pop(_CHECKSUM, None)
    if checksum is None and not unsealed:
        raise ValueError("it has no checksum")
    if checksum is not None and checksum != _checksum(content):
        raise ValueError("its content does not match its checksum")
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content).encode()).hexdigest()[:32]
