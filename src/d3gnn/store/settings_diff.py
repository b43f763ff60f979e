"""How the settings of a store differ from those of a pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def differences(theirs: Mapping[str, Any], mine: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Each setting that differs, as `name is this in the store, and that here`."""
    for name in [*theirs, *(name for name in mine if name not in theirs)]:
        full = prefix + name
        if name not in theirs or name not in mine:
            there, here = (json.dumps(s[name]) if name in s else "absent" for s in (theirs, mine))
            yield f"{full} is {there} in the store, and {here} here"
        elif isinstance(theirs[name], dict) and isinstance(mine[name], dict):
            yield from differences(theirs[name], mine[name], f"{full}.")
            if list(theirs[name]) != list(mine[name]) and set(theirs[name]) == set(mine[name]):
                there, here = (", ".join(s[name]) for s in (theirs, mine))
                yield f"{full} are in the order {there} in the store, and {here} here"
        elif theirs[name] != mine[name]:
            yield f"{full} is {json.dumps(theirs[name])} in the store, and {json.dumps(mine[name])} here"
