"""Finding the programs of a slice that use the GPU without the preload library.

The dynamic loader loads the library, or it prints a line and runs the program without it: where the
library's path is hidden in another mount namespace, where it is on a file system without execute
permission, or where the file is damaged. A static program has no loader, and a program that was
started without ``LD_PRELOAD`` does not load the library either. No limit holds in such a process.
The library cannot report that, so the processes are examined from outside.

A process *bypasses* the limits if it uses the GPU without the library: the driver (``libcuda.so``,
NVML) is loaded into it, or one of the driver's devices is open, and the library is not loaded. A
program that does not use the GPU, for example a static ``busybox``, bypasses nothing.

The loader maps preloaded libraries first, so the library is always there before the driver is. A
process may map both while its ``/proc/<pid>/maps`` is read, so it counts only if a second look
agrees. Only root can examine a process of another user. A process that ends within the time between
two checks is not found.
"""

import os
import shlex
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISGID, S_ISUID, S_IXGRP

from hami_py.config import LD_PRELOAD, LIBRARY_NAME
from hami_py.errors import NotLimited
from hami_py.slices import elf
from hami_py.slices.processes import command_of, holders_of, mappings, named_in, read_stat, value_of
from hami_py.slices.programs import why_not_loadable
from hami_py.slices.record import RECORD

DRIVERS = ("libcuda.so", "libnvidia-ml.so")
"""How the names of the driver's libraries begin."""

_DEVICES = ("/dev/nvidia", "/dev/dxg")
"""How the paths of the driver's devices begin; the second one is WSL's."""

_FIRST_PAUSES = (0.05, 0.1, 0.2, 0.3, 0.35)
PAUSE = 1.0
"""Seconds between two checks, after some shorter ones in the first second. For a process that has
the library, a check reads one small file and one link in ``/proc``."""


@dataclass(frozen=True)
class Bypass:
    """A process that uses the GPU without the preload library.

    Attributes:
        pid: in our PID namespace.
    """

    pid: int
    command: tuple[str, ...]
    why: str
    fix: str

    def error(self, consequence: str = "") -> NotLimited:
        """A message in one line, with what was done about it."""
        command = " ".join(shlex.join(self.command).split())
        shown = "".join(c if c.isprintable() else "�" for c in command)
        shown = shown[:80] + "…" * (len(shown) > 80)
        why = f"it uses the GPU without limits: {self.why}{consequence}"
        return NotLimited(f"process {self.pid} ({shown})", why, self.fix)


def find(pid: int, library: Path) -> Bypass | None:
    """The bypass of a process; None if there is no sign of one."""
    # The second look, because a process that starts may have mapped both during the first.
    if not (_look(pid, library) and _look(pid, library)):
        return None
    why, fix = _cause(pid, library)
    return Bypass(pid, command_of(pid), why, fix)


def gained_rights(path: Path) -> list[str]:
    """The rights that a program gets by its file, for which the loader ignores ``LD_PRELOAD``."""
    status = path.stat()
    gained = []
    if status.st_mode & S_ISUID and status.st_uid != os.getuid():
        gained.append(f"setuid of user {status.st_uid}")
    # Without the group's execute bit, the setgid bit has another meaning.
    set_gid = S_ISGID | S_IXGRP
    if status.st_mode & set_gid == set_gid and status.st_gid != os.getgid():
        gained.append(f"setgid of group {status.st_gid}")
    with suppress(OSError):
        if os.getuid() != 0 and "security.capability" in os.listxattr(path):
            gained.append("file capabilities")
    return gained


def require_checkable(program: str) -> None:
    """Check that a program keeps our rights.

    The loader ignores ``LD_PRELOAD`` in a program that gets other rights by its file, such as
    ``sudo``. Such a process cannot be examined either.

    Raises:
        NotLimited: it does not.
    """
    found = shutil.which(program)
    if found is None:
        # Starting it fails.
        return
    if gained_rights(Path(found)):
        why = "it runs with other rights, so the loader ignores the library (--strict)"
        raise NotLimited(found, why, "start `hami run` with these rights, like `sudo hami run`")


@dataclass
class _Member:
    """A process of the program.

    Attributes:
        started: when it started, in clock ticks since boot.
        decided: the program image for which the decision is known, and reported if it is a bypass.
    """

    started: int
    decided: tuple[object, ...] | None = None


class BypassWatcher:
    """Finds the processes of a running program that bypass the limits.

    The processes are the program, its descendants, and those that have the slice in their
    environment, unless another process that holds the slice has started them.
    """

    def __init__(self, directory: Path, library: Path) -> None:
        self._directory = directory
        self._library = library
        self._pauses = iter(_FIRST_PAUSES)
        # Processes from before the program are not its own.
        self._others = set(_pids())
        self._members: dict[int, _Member] = {}

    def check(self, program: int) -> Iterator[Bypass]:
        """The bypasses that are new since the last check.

        The program, by its PID, must not have been waited for.
        """
        pids = set(_pids())
        self._others &= pids
        for pid, member in list(self._members.items()):
            stat = read_stat(pid)
            # The PID may belong to another process by now.
            if stat is None or stat.started != member.started:
                del self._members[pid]
        if program not in self._members and (stat := read_stat(program)) is not None:
            self._members[program] = _Member(stat.started)
        self._adopt(pids)
        for pid, member in list(self._members.items()):
            image = _image(pid)
            if image is None or image == member.decided:
                continue
            looked = _look(pid, self._library)
            bypass = find(pid, self._library) if looked else None
            # Undecided if the second look disagrees, or if it has executed another program.
            if looked is None or (looked and bypass is None) or image != _image(pid):
                continue
            member.decided = image
            if bypass is not None:
                yield bypass

    def pause(self) -> float:
        """Seconds until the next check."""
        return next(self._pauses, PAUSE)

    def kill(self) -> None:
        """Kill every process of the program that is known, with SIGKILL."""
        before = -1
        while before < len(self._members):
            before = len(self._members)
            for pid in self._members:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            # Those that they have started meanwhile.
            self._adopt(set(_pids()))

    def _adopt(self, pids: set[int]) -> None:
        """Decide whether new processes belong to the program."""
        new = {
            pid: stat
            for pid in pids - self._others - self._members.keys()
            if (stat := read_stat(pid)) is not None
        }
        while children := [pid for pid, stat in new.items() if stat.parent in self._members]:
            for pid in children:
                self._members[pid] = _Member(new.pop(pid).started)
        for pid, stat in new.items():
            inside = self._is_inside(pid)
            if inside and not self._is_of_another_holder(pid):
                self._members[pid] = _Member(stat.started)
            elif inside is not None:
                self._others.add(pid)

    def _is_inside(self, pid: int) -> bool | None:
        """Whether a process has the slice in its environment; None if it is being executed."""
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
        if variables == [b""]:
            return None
        return str(self._directory) in named_in(variables)

    def _is_of_another_holder(self, pid: int) -> bool:
        """Whether another ``hami run`` or Python program has started it in the same slice."""
        while (stat := read_stat(pid)) is not None and self._is_inside(stat.parent):
            pid = stat.parent
        holders = holders_of(self._directory / RECORD) - {os.getpid()}
        return stat is not None and stat.parent in holders


def _pids() -> Iterator[int]:
    with suppress(OSError), os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdecimal():
                yield int(entry.name)


def _image(pid: int) -> tuple[object, ...] | None:
    """Values that change when a process executes another program; None if it has ended."""
    stat = read_stat(pid)
    if stat is None or stat.state in "ZX":
        return None
    with suppress(OSError):
        return (stat.started, *stat.layout, str(Path(f"/proc/{pid}/exe").readlink()))
    return (stat.started, *stat.layout)


def _look(pid: int, library: Path) -> bool | None:
    """Whether a process uses the driver without the library; None if it uses neither."""
    # An update may rename the file: then the process has "libvgpu.so.old" mapped.
    libraries = (library.name, LIBRARY_NAME)
    parts = (*libraries, *DRIVERS, *_DEVICES)
    text = mappings(pid)
    # A large program has thousands of lines, and most programs none that matters.
    relevant = text.splitlines() if any(part in text for part in parts) else []
    is_used = False
    # "7f3c8a000000-7f3c8a028000 r-xp 00000000 08:01 131 /usr/lib/libc.so.6"
    for line in relevant:
        if not any(part in line for part in parts):
            continue
        _addresses, permissions, *_rest, path = line.removesuffix(" (deleted)").split(maxsplit=5)
        is_used |= path.startswith(_DEVICES)
        # A library without executable mappings is not loaded: a tool may read the driver's file,
        # and where the loader fails on a file system without execute permission, it leaves the
        # first part of ours mapped.
        if "x" in permissions:
            if Path(path).name.startswith(libraries):
                return False
            is_used |= Path(path).name.startswith(DRIVERS)
    is_used = is_used or any(path.startswith(_DEVICES) for path in _open_files(pid))
    return True if is_used else None


def _open_files(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                yield str(link.readlink())


def _cause(pid: int, library: Path) -> tuple[str, str]:
    """Why the library is not in a process, and how to fix that."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        program = str(Path(f"/proc/{pid}/exe").readlink())
        file = elf.read(Path(f"/proc/{pid}/exe"))
    except (OSError, ValueError):
        return "the cause is unknown", "check its program with `hami doctor -- PROGRAM`"
    if file is not None and file.interpreter is None:
        return f"{program} is statically linked", "use a dynamically linked build"
    preloaded = value_of(variables, LD_PRELOAD).replace(":", " ").split()
    named = [entry for entry in preloaded if Path(entry).name in (library.name, LIBRARY_NAME)]
    if not named:
        fix = "keep LD_PRELOAD in its environment, or start it with `hami run --join` and the slice"
        return f"{LD_PRELOAD} does not name the library in its environment", fix
    # As the process sees the path; a slice has a link to the file.
    path = named[0]
    with suppress(OSError):
        path = str(Path(f"/proc/{pid}/root{path}").readlink())
    why = why_not_loadable(Path(f"/proc/{pid}/root{path}"))
    if why is not None:
        fix = "make this file visible, readable and executable where the program runs"
        return f"{path}: {why} for this process", fix
    return f"its loader ignored {named[0]}", f"run `hami doctor -- {shlex.quote(program)}`"
