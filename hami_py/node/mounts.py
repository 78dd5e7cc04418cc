"""The file system of the slots: a tmpfs of their own.

The account and the grants of a slot are written at every allocation and lease, so they must not be
on a disk. A container can make its account longer. On a tmpfs of their own, the slots can fill
nothing else of the node, such as the container runtime's state in ``/run``.
"""

import os
import re
import subprocess
from pathlib import Path

from hami_py.errors import StateError

_SOURCE = "hami"
"""The name in the list of mounts, by which a later agent recognises it."""

_SIZE = "1g"
"""Room for more than a thousand slots, of 624 KiB each."""

_DEADLINE_S = 10.0


def is_mounted(runtime: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether the slots have their file system."""
    point = _escaped(os.fsencode(runtime.resolve()))
    for line in mounts.read_bytes().split(b"\n"):
        fields, _, rest = line.partition(b" - ")
        if rest.split()[:2] == [b"tmpfs", _SOURCE.encode()] and fields.split()[4] == point:
            return True
    return False


def mount(runtime: Path) -> None:
    """Mount it, unless it is mounted.

    Raises:
        StateError: it cannot be mounted.
    """
    if is_mounted(runtime):
        return
    options = f"mode=755,size={_SIZE},nosuid,nodev,noexec"
    _run(["mount", "-t", "tmpfs", "-o", options, _SOURCE, str(runtime)])


def unmount(runtime: Path) -> None:
    """Unmount it, if it is mounted. What containers have mounted of it stays with them.

    Raises:
        StateError: it cannot be unmounted.
    """
    while is_mounted(runtime):
        _run(["umount", str(runtime)])


def _escaped(path: bytes) -> bytes:
    """A path as the list of mounts has it."""
    return re.sub(rb"[ \t\n\\]", lambda found: b"\\%03o" % ord(found[0]), path)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StateError(" ".join(command), str(error), "run it by hand as root") from error
    if done.returncode != 0:
        fix = "run it as root; in a container, a privileged one"
        raise StateError(" ".join(command), done.stderr.strip(), fix)
