"""Several machines on one, made of namespaces: each has its own network address, name, /dev/shm and /tmp, and
shares the other disks, as an NFS mount would. Needs root, and `ip` of the Debian package iproute2.

The switch between them is in a namespace, too, so nothing touches the machine's own network.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

__all__ = ["Machines", "why_no_machines"]

#: Addresses that are reserved for benchmarks.
_NETWORK = "198.18.0"
_SET_UP = """
mount --make-rprivate /
hostname "$1"
mount -t tmpfs -o size="$3" tmpfs /dev/shm
own="$2/tmp/$1" hosts="$2/hosts"
mkdir -p "$own"
shift 3
for shared in "$@"; do
    mkdir -p "$own/${shared#/tmp/}" && mount --bind "$shared" "$own/${shared#/tmp/}"
done
mount --rbind "$own" /tmp
mount --bind "$hosts" /etc/hosts
echo ready
exec sleep infinity
"""


def why_no_machines() -> str:
    """Why machines cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "machines are made of namespaces, which needs root"
    missing = [tool for tool in ("ip", "unshare", "nsenter") if shutil.which(tool) is None]
    if missing:
        return f"machines need {', '.join(missing)}: install iproute2 and util-linux"
    probe = ["unshare", "--net", "--mount", "--uts", "true"]
    made = subprocess.run(probe, capture_output=True, text=True, check=False)
    return f"this system allows no namespaces: {made.stderr.strip()}" if made.returncode else ""


class Machines:
    """Machines h0, h1, ... that know each other by name.

    number:
        How many.
    folder:
        Folder on a shared disk for their files, outside /tmp.
    memory:
        Size of /dev/shm on each.
    """

    def __init__(self, number: int, folder: Path, memory: str = "2g") -> None:
        self.names = [f"h{i}" for i in range(number)]
        self.folder, self._memory = folder, memory
        self._prefix = f"d3gnn-{secrets.token_hex(4)}"  # several runs may have machines at the same time
        self._holders: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        hosts = [Path("/etc/hosts").read_text(), *(f"{self.address(name)} {name}\n" for name in self.names)]
        (self.folder / "hosts").write_text("".join(hosts))
        try:
            switch = self._space("switch")
            _run("ip", "netns", "add", switch)
            _run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
            _run("ip", "-n", switch, "link", "set", "br0", "up")
            for name in self.names:
                self._add(name, switch)
                self.boot(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End everything on them, and remove them."""
        for name in self.names:
            self.crash(name)
        for space in map(self._space, [*self.names, "switch"]):
            subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)

    def address(self, name: str) -> str:
        """The network address of a machine."""
        return f"{_NETWORK}.{int(name[1:]) + 1}"

    def command(self, name: str, command: Sequence[str]) -> list[str]:
        """A command as it runs on a machine, whose other commands see the same memory and /tmp."""
        holder = str(self._holders[name].pid)
        return ["nsenter", "--target", holder, "--mount", "--net", "--uts", "--", *command]

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        output: IO[bytes] | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Start a command on a machine."""
        return subprocess.Popen(
            self.command(name, command), env=dict(os.environ) | dict(environment or {}),
            stdin=stdin, stdout=output, stderr=output,
        )  # fmt: skip

    def run(self, name: str, *command: str) -> str:
        """Run a command on a machine; returns what it prints."""
        return _run(*self.command(name, command))

    def processes(self, name: str) -> dict[int, str]:
        """The processes on a machine, each with its command line."""
        found = {}
        pids = subprocess.run(
            ["ip", "netns", "pids", self._space(name)], capture_output=True, text=True, check=False
        )
        for pid in map(int, pids.stdout.split()):
            with suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        return found

    def cut(self, name: str) -> None:
        """Pull the cable of a machine."""
        _run("ip", "-n", self._space("switch"), "link", "set", f"to-{name}", "down")

    def join(self, name: str) -> None:
        """Plug it in again."""
        _run("ip", "-n", self._space("switch"), "link", "set", f"to-{name}", "up")

    def crash(self, name: str) -> None:
        """Kill everything on a machine at once; with the last process, its memory is lost."""
        while processes := self.processes(name):
            for pid in processes:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if (holder := self._holders.pop(name, None)) is not None:
            holder.wait()
            if holder.stdout is not None:
                holder.stdout.close()

    def boot(self, name: str) -> None:
        """Start a machine, with empty memory."""
        tmp = self.folder / "tmp" / name
        shutil.rmtree(tmp, ignore_errors=True)
        set_up = ["sh", "-ec", _SET_UP, "sh", name, str(self.folder), self._memory, *_shared_in_tmp()]
        holder = subprocess.Popen(
            ["ip", "netns", "exec", self._space(name), "unshare", "--mount", "--uts", *set_up],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert holder.stdout is not None
        if holder.stdout.readline() != "ready\n":
            holder.wait()
            raise RuntimeError(f"the machine {name} could not be made")
        self._holders[name] = holder

    def _add(self, name: str, switch: str) -> None:
        space = self._space(name)
        _run("ip", "netns", "add", space)
        _run(
            "ip", "link", "add", "eth0", "netns", space, "type", "veth",
            "peer", "name", f"to-{name}", "netns", switch,
        )  # fmt: skip
        _run("ip", "-n", switch, "link", "set", f"to-{name}", "master", "br0", "up")
        _run("ip", "-n", space, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
        _run("ip", "-n", space, "link", "set", "eth0", "up")
        _run("ip", "-n", space, "link", "set", "lo", "up")

    def _space(self, name: str) -> str:
        return f"{self._prefix}-{name}"


def _shared_in_tmp() -> list[str]:
    """What machines must find although it is in /tmp: the packages that are installed, and this one."""
    package = Path(__file__).resolve().parents[3]
    wanted = {package, Path(sys.prefix).resolve()}
    outer = [path for path in wanted if not wanted & set(path.parents)]
    return [str(path) for path in outer if path.is_relative_to("/tmp")]


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
