"""Streaming vertex-cut partitioners: which part each edge goes to. Each module here registers its own."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from d3gnn.kernel.partitioners.base import (
    Partitioner,
    Placement,
    Settings,
    choose,
    make_partitioner,
    partitioner,
    partitioners,
)
from d3gnn.kernel.partitioners.clda import CLDA
from d3gnn.kernel.partitioners.fennel import Fennel
from d3gnn.kernel.partitioners.hdrf import HDRF
from d3gnn.kernel.partitioners.metis import METIS
from d3gnn.kernel.partitioners.random import Random

__all__ = [
    "CLDA",
    "HDRF",
    "METIS",
    "Fennel",
    "Partitioner",
    "Placement",
    "Random",
    "Settings",
    "choose",
    "make_partitioner",
    "partitioner",
    "partitioners",
]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
