"""A description of the machine that a benchmark ran on."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = {
    "numpy": "numpy",
    "numba": "numba",
    "torch": "torch",
    "spark": "pyspark",
    "dgl": "dgl",
    "torch_geometric": "torch_geometric",
}


@cache
def machine() -> dict[str, Any]:
    """CPU model, cores, memory, and the versions of Python and of the packages that affect speed."""
    found: dict[str, Any] = {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
    }
    for name, package in _PACKAGES.items():
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
