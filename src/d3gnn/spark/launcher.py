"""How Spark starts Python: with pyspark as it is installed, not as Spark brings it along.

Spark puts a zipped copy of pyspark before everything else that a Python process could import. There is no
compiled code in it, so that every process compiles what it imports: 0.9 s, for each query (the control source
has a process of its own), four times when a session is new, and again for workers that have died.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import site
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from d3gnn.places import first_writable

__all__ = ["launcher"]

_SCRIPT = """\
#!/bin/sh
# Starts Python for Spark, without the zipped copy of pyspark that it puts before the installed one.
set -f
kept=
IFS=:
for path in $PYTHONPATH; do
    case $path in
        */pyspark.zip | */py4j-*.zip | */spark-core_*.jar) ;;
        *) kept=${{kept:+$kept:}}$path ;;
    esac
done
unset IFS
PYTHONPATH=$kept exec {python} "$@"
"""


def launcher(places: Iterable[Path]) -> str:
    """The program for Spark to start Python with: one in the first of these folders that it can be in, or
    this interpreter itself, where it can be in none, or where its pyspark is Spark's own.
    """
    folder = first_writable(places, runs=True) if all(map(_is_installed, ("pyspark", "py4j"))) else None
    if folder is None:
        return sys.executable
    script = _SCRIPT.format(python=shlex.quote(sys.executable))
    program = folder / f"python-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    if not program.exists():
        # Others may start it at the same time: it is there whole or not at all.
        fresh = program.with_name(f"{program.name}.{os.getpid()}")
        fresh.write_text(script)
        fresh.chmod(0o700)
        fresh.rename(program)
    return str(program)


def _is_installed(package: str) -> bool:
    """Whether this interpreter finds it by itself, wherever it is started from."""
    found = find_spec(package)
    home = None if found is None or found.origin is None else str(Path(found.origin).parent.parent)
    return home in (*site.getsitepackages(), site.getusersitepackages())
