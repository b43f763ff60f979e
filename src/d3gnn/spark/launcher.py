"""How Spark starts Python: with the installed pyspark instead of Spark's zipped copy, and a quiet daemon.

Spark puts a zipped copy of pyspark first on the path of its Python processes. The copy has no compiled code,
so that every process compiles what it imports, which takes 0.9 s: once for each query (the control source has
its own process), four times in a new session, and again for workers that replace dead ones.

Spark has a setting for the daemon that starts workers, but does not use it for the control source.
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

from d3gnn.cache_dirs import first_writable

__all__ = ["launcher"]

_SCRIPT = """\
#!/bin/sh
# Starts Python for Spark, without the zipped copy of pyspark that it puts before the installed one, and with
# the daemon of d3gnn in place of pyspark's.
set -f
if [ "$1 $2" = "-m pyspark.daemon" ]; then
    shift 2
    set -- -m d3gnn.spark.daemon "$@"
fi
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
    """The program with which Spark starts Python: a script in the first of these folders that allows it.

    If none does, or if pyspark is not installed but Spark's own, this interpreter itself.
    """
    folder = first_writable(places, runs=True) if all(map(_is_installed, ("pyspark", "py4j"))) else None
    if folder is None:
        return sys.executable
    script = _SCRIPT.format(python=shlex.quote(sys.executable))
    program = folder / f"python-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    if not program.exists():
        # Other processes may start it at the same time: rename makes it appear as a whole.
        fresh = program.with_name(f"{program.name}.{os.getpid()}")
        fresh.write_text(script)
        fresh.chmod(0o700)
        fresh.rename(program)
    return str(program)


def _is_installed(package: str) -> bool:
    """Whether the package is in this interpreter's site-packages."""
    found = find_spec(package)
    home = None if found is None or found.origin is None else str(Path(found.origin).parent.parent)
    return home in (*site.getsitepackages(), site.getusersitepackages())
