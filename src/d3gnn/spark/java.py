"""Java for Spark: where it is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

LEAST = 17
PACKAGE = "openjdk-17-jre-headless"
_PLACES = (
    "/usr/lib/jvm",
    "/usr/java",
    "/opt/java",
    "/opt/jdk",
    "/Library/Java/JavaVirtualMachines",
    "/opt/homebrew/opt",
    "/usr/local/opt",
    "~/.sdkman/candidates/java",
    "~/.jdks",
)


class NoJava(RuntimeError):
    """No Java that is new enough for Spark was found."""


def java_home() -> Path:
    """The home of the first Java that is new enough: from JAVA_HOME, the PATH, or the usual folders."""
    seen: dict[Path, int | None] = {}
    for home in _candidates():
        version = seen.setdefault(home, _version(home))
        if version is not None and version >= LEAST:
            return home
    raise NoJava(_missing({home: version for home, version in seen.items() if version is not None}))


def _missing(too_old: dict[Path, int]) -> str:
    """What was looked for, where, what was found, and how to install it, on one line."""
    old = ", ".join(f"{home} has Java {version}" for home, version in too_old.items())
    return (
        f"Spark needs Java {LEAST} or newer, which is neither in JAVA_HOME "
        f"({os.environ.get('JAVA_HOME') or 'not set'}), nor on the PATH, nor in {', '.join(_PLACES)}"
        f"{f' ({old})' if old else ''}; install it (Debian, Ubuntu: sudo apt-get install {PACKAGE}; "
        f"macOS: brew install openjdk@{LEAST}) or set JAVA_HOME to its folder"
    )


def use_java() -> Path:
    """Set JAVA_HOME, from which Spark starts Java, to a Java that is new enough."""
    home = java_home()
    os.environ["JAVA_HOME"] = str(home)
    return home


def _candidates() -> Iterator[Path]:
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if java := shutil.which("java"):
        yield Path(java).resolve().parent.parent
    for place in _PLACES:
        for home in sorted(Path(place).expanduser().glob("*")):
            yield home
            yield home / "Contents" / "Home"
            yield home / "libexec" / "openjdk.jdk" / "Contents" / "Home"


def _version(home: Path) -> int | None:
    """The major version of the Java at `home`; None if there is none that runs."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:  # faster than starting it
        text = (home / "release").read_text(errors="replace")
    except OSError:
        text = _output(java)
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def _output(java: Path) -> str:
    try:
        return subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""
