"""The settings that are fixed for the life of a store."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from d3gnn.events import GraphSchema
from d3gnn.kernel.partitioners import Partitioner


def store_settings(
    name: str, parts: int, partitioner: Partitioner, schema: GraphSchema, ids: str, keys: str
) -> dict[str, Any]:
    """As `Store.fix` takes them. `ids` and `keys` are `"int"` or `"string"`."""
    return {
        "name": name,
        "parts": parts,
        "partitioner": {"name": partitioner.name, **asdict(partitioner)},
        "schema": schema.to_dict(limits=False),
        "ids": ids,
        "keys": keys,
    }
