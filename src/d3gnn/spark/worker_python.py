"""Python workers must run the Python of the driver, with the same packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

_ASK = "import importlib.util as u, sys; print(*sys.version_info[:2], u.find_spec('d3gnn') is not None)"
_LONGEST = 60.0


class WrongPython(RuntimeError):
    """Python workers would run another Python than the driver."""


def require_same_python(spark: SparkSession) -> None:
    """Refuse a session on this machine whose workers run another Python; raises `WrongPython`."""
    if is_remote():
        return
    context = spark.sparkContext
    if str(context.master).startswith("local"):  # elsewhere, only the executors know what they have
        check_python(str(context.pythonExec))


@cache
def check_python(program: str) -> None:
    """Check that this Python has the version of the driver's, and d3gnn."""
    found = shutil.which(program)
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return
    version, has_package = "", False
    if found is not None:
        ran = subprocess.run(
            [found, "-c", _ASK], capture_output=True, text=True, timeout=_LONGEST, check=False
        )
        *numbers, package = ran.stdout.split() or ["", ""]
        version, has_package = ".".join(numbers), package == "True"
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if version == own and has_package:
        return
    what = "is not on the PATH" if found is None else "has no d3gnn" if version == own else f"is {version}"
    raise WrongPython(
        f"Spark's workers run {found or program}, which {what}, but the driver runs {sys.executable} "
        f"({own}): set PYSPARK_PYTHON before the session starts, as os.environ['PYSPARK_PYTHON'] = "
        "sys.executable, or start it with d3gnn.session()"
    )
