"""Java for Spark: found where it usually is, or installed where that can be done."""

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
    """There is no Java that Spark runs on."""


def java_home(*, install: bool = True) -> Path:
    """The home of a Java that is new enough: of JAVA_HOME, of the PATH, or in the usual places.

    Where there is none, it is installed if apt is there and the user is root.
    """
    found = _find()
    if found is None and install and _can_install():
        _install()
        found = _find()
    if found is None:
        raise NoJava(
            f"Spark needs Java {LEAST} or newer, and there is none here: install it (Debian and Ubuntu: "
            f"sudo apt-get install {PACKAGE}; macOS: brew install openjdk@{LEAST}) or set JAVA_HOME to it."
        )
    return found


def use_java() -> Path:
    """Point JAVA_HOME, which Spark starts its Java from, at a Java that is new enough."""
    home = java_home()
    os.environ["JAVA_HOME"] = str(home)
    return home


def _find() -> Path | None:
    return next((home for home in _candidates() if (_version(home) or 0) >= LEAST), None)


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
    """The major version of the Java at `home`; None where there is none that runs."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:  # a file next to it says so without starting it
        said = (home / "release").read_text(errors="replace")
    except OSError:
        said = _asked(java)
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None


def _asked(java: Path) -> str:
    try:
        return subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _can_install() -> bool:
    return os.name == "posix" and os.geteuid() == 0 and shutil.which("apt-get") is not None


def _install() -> None:
    """Install with apt; what comes of it shows when Java is looked for again."""
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", PACKAGE]):
        subprocess.run(["apt-get", "-qq", *arguments], env=quiet, capture_output=True, check=False)
