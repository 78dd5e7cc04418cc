"""Finding the processes in a slice through ``/proc``.

A process that has called CUDA is in the slice's account. Before that, only its environment shows
its slice, and a daemon may have overwritten its environment (to show a title in ``ps``). Such a
process is recognised by our library, which is mapped into it; it may be in any slice that is older
than the process.
"""

import os
import pwd
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hami_py.config import HAMI_SLICE, LD_PRELOAD, LIBRARY_NAME, LIMITS, MACHINE

LAYERS = "layers"
"""The file of a slice that lists the slices of its programs, one a line (``beside``)."""

_TICKS = os.sysconf("SC_CLK_TCK")

_HOST_PID_NAMESPACE = 0xEFFF_FFFC
"""The inode of the host's PID namespace, which the kernel fixes (``PROC_PID_INIT_INO``)."""

_NOBODY = 65534
"""The user that the kernel reports for one who does not exist in our user namespace."""

_ALL_USERS = ["0", "0", "4294967295"]
"""``/proc/self/uid_map`` of the host's user namespace, in which every user exists."""

EXEC_DEADLINE = 1.0
"""Seconds. During ``execve`` a process has no environment for some microseconds."""


@dataclass(frozen=True)
class Environments:
    """The slices in the environments of this user's processes.

    Attributes:
        inside: PIDs by slice directory.
        anywhere: start times, in seconds since boot, of processes that have our library but no
            slice in their environment.
    """

    inside: Mapping[str, frozenset[int]] = field(default_factory=dict)
    anywhere: tuple[float, ...] = ()

    def may_be_in(self, directory: Path, boot_time: float | None) -> bool:
        """Whether a process is, or may be, in a slice that was created at ``boot_time``."""
        if self.inside.get(str(directory)):
            return True
        # A process starts after its slice was created; the kernel counts in whole ticks.
        created = 0.0 if boot_time is None else boot_time - 1 / _TICKS
        return any(started >= created for started in self.anywhere)


def read_environments(since: float = 0.0) -> Environments:
    """Read the environments of this user's processes.

    Args:
        since: when the oldest slice of interest was created, in seconds since boot. The mapped
            files of older processes are not read, because that is slow.
    """
    inside: dict[str, set[int]] = {}
    anywhere: list[float] = []
    for process in Path("/proc").glob("[0-9]*"):
        pid = int(process.name)
        try:
            variables = environment_of(pid)
        except OSError:
            # The process belongs to another user, or has exited.
            continue
        slices = named_in(variables)
        for directory in slices:
            inside.setdefault(directory, set()).add(pid)
        if slices:
            continue
        started = start_time(pid) / _TICKS
        if started >= since - 1 / _TICKS and _has_library(pid):
            anywhere.append(started)
    return Environments({key: frozenset(pids) for key, pids in inside.items()}, tuple(anywhere))


def named_in(variables: list[bytes]) -> set[str]:
    """The slices that a process's environment names.

    ``LD_PRELOAD`` does, or only ``HAMI_SLICE``, if the process has lost the library.
    """
    found = {part for part in value_of(variables, HAMI_SLICE).split(":") if part}
    for library in libraries_in(value_of(variables, LD_PRELOAD)):
        directory = Path(library).parent
        found.update(map(str, listed(directory) or [directory]))
    return found


def libraries_in(value: str) -> list[str]:
    """The entries of ``LD_PRELOAD`` that name our library."""
    return [entry for entry in value.replace(":", " ").split() if Path(entry).name == LIBRARY_NAME]


def listed(directory: Path) -> list[Path]:
    """The slices in a slice's list, outermost first; empty if it has none."""
    with suppress(OSError):
        text = os.fsdecode((directory / LAYERS).read_bytes())
        return [Path(line) for line in text.split("\n") if line]
    return []


def environment_of(pid: int) -> list[bytes]:
    """The environment with which a process was started, as NAME=VALUE.

    During ``execve`` the kernel has dropped the old environment and not yet recorded the new one.
    The environment of such a process seems empty, so it is read again.

    Raises:
        OSError: the process belongs to another user, or has exited.
    """
    path = Path(f"/proc/{pid}/environ")
    deadline = time.monotonic() + EXEC_DEADLINE
    variables = path.read_bytes()
    while not variables and _is_executing(pid) and time.monotonic() < deadline:
        time.sleep(0.001)
    # Once more: the kernel may have recorded it since the last check.
    return (variables or path.read_bytes()).split(b"\0")


_FORKED = 0x40


@dataclass(frozen=True)
class Stat:
    """A process as ``/proc/<pid>/stat`` shows it.

    Attributes:
        started: when it started, in clock ticks since boot.
        layout: the addresses of its stack and environment, which the kernel chooses anew when the
            process executes a program; zeros if it belongs to another user.
        is_forked: it was forked, and has executed no program since (the kernel's PF_FORKNOEXEC).
    """

    state: str
    parent: int
    started: int
    layout: tuple[str, str]
    is_forked: bool


def read_stat(pid: int) -> Stat | None:
    """None if the process has exited."""
    fields = _fields(pid)
    if len(fields) <= 47:
        return None
    is_forked = bool(int(fields[6]) & _FORKED)
    return Stat(fields[0], int(fields[1]), int(fields[19]), (fields[25], fields[47]), is_forked)


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 = unknown."""
    stat = read_stat(pid)
    return 0 if stat is None else stat.started


def is_running(pid: int, started: int) -> bool:
    """Whether the process with this start time exists and is not a zombie."""
    stat = read_stat(pid)
    return stat is not None and stat.started == started and stat.state not in "ZX"


def pid_namespace() -> int:
    """The inode of our PID namespace; 0 = unknown."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def place_of(pid: int) -> tuple[int, int] | None:
    """The PID namespace of a process, as its inode, and its PID there; None = unknown."""
    process = Path(f"/proc/{pid}")
    with suppress(OSError):
        status = (process / "status").read_text(errors="replace").splitlines()
        pids = [line.split() for line in status if line.startswith("NSpid:")]
        return (process / "ns" / "pid").stat().st_ino, int(pids[0][-1]) if pids else pid
    return None


def has_host_pids() -> bool:
    """Whether the PIDs here are the host's, which NVML uses."""
    return pid_namespace() == _HOST_PID_NAMESPACE


def command_of(pid: int) -> tuple[str, ...]:
    """A process's command line; empty if it cannot be read."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(os.fsdecode(word) for word in line.rstrip(b"\0").split(b"\0") if line)


def user_of(pid: int) -> str | None:
    """The name or the number of the user who runs a process; None = unknown."""
    uid = uid_of(pid)
    return None if uid is None else user_name(uid)


def uid_of(pid: int) -> int | None:
    """The number of the user who runs a process; None = unknown."""
    # The owner of /proc/<pid> is root if the process may not be debugged.
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return None
    return next((int(line.split()[1]) for line in status.splitlines() if line[:4] == "Uid:"), None)


def user_name(uid: int) -> str | None:
    """The name of a user, or the number without a name; None = not of our user namespace."""
    if uid == _NOBODY and Path("/proc/self/uid_map").read_text().split() != _ALL_USERS:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def interpreter() -> str | None:
    """The path of our Python interpreter; None if it is embedded in another program."""
    try:
        is_it = bool(sys.executable) and Path("/proc/self/exe").samefile(sys.executable)
    except OSError:
        return None
    return sys.executable if is_it else None


def mapped_files(pid: int | str) -> list[str]:
    """The files that are mapped into a process, without duplicates; empty if unreadable."""
    lines = mappings(pid).splitlines()
    paths = ("/" + line.partition("/")[2] for line in lines if "/" in line)
    # An update replaces a file; the process still has the old one mapped.
    return list(dict.fromkeys(path.removesuffix(" (deleted)") for path in paths))


def mappings(pid: int | str) -> str:
    """The text of ``/proc/<pid>/maps``; empty if it is unreadable."""
    try:
        return Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return ""


def value_of(variables: list[bytes], name: str) -> str:
    """The value of a variable in an environment; empty if it is not set."""
    prefix = name.encode() + b"="
    return next((os.fsdecode(v[len(prefix) :]) for v in variables if v.startswith(prefix)), "")


def _is_executing(pid: int) -> bool:
    """Whether it has a program and no environment yet; kernel threads have no program."""
    fields = _fields(pid)
    try:
        return len(fields) > 48 and fields[48] == "0" and bool(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return False


def _has_library(pid: int) -> bool:
    """Whether our library is mapped as a slice has it.

    A container's has its limits beside it, and that of all programs of a machine its name.
    """
    # The paths as the process sees them.
    files = (Path(f"/proc/{pid}/root{path}") for path in mapped_files(pid))
    ours = [file for file in files if file.name == LIBRARY_NAME]
    elsewhere = (LIMITS, MACHINE)
    return any(not any(each.with_name(name).exists() for name in elsewhere) for each in ours)


def _fields(pid: int) -> list[str]:
    """The fields of ``/proc/<pid>/stat`` after pid and name, from field 3 of proc(5) on."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    # The name in parentheses may contain parentheses and spaces.
    return stat.rpartition(")")[2].split()


def lock_holders() -> dict[int, set[int]]:
    """The processes that have locked files, by inode, according to ``/proc/locks``."""
    found: dict[int, set[int]] = {}
    with suppress(OSError, ValueError):
        for line in Path("/proc/locks").read_text().splitlines():
            # "1: FLOCK ADVISORY READ 4711 08:01:131 0 EOF"; 0 is a process of another namespace.
            fields = line.split()
            if len(fields) > 5 and fields[1] == "FLOCK" and int(fields[4]) > 0:
                inode = int(fields[5].rpartition(":")[2])
                found.setdefault(inode, set()).add(int(fields[4]))
    return found


def holders_of(path: Path) -> frozenset[int]:
    """The processes that have locked a file."""
    with suppress(OSError):
        return frozenset(lock_holders().get(path.stat().st_ino, ()))
    return frozenset()
