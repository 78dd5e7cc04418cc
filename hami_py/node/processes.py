"""Which pod a process belongs to, by its cgroup; ending processes.

The kubelet names the cgroup of a pod after the pod's UID: ``…/pod<uid>/<container>``, or with the
systemd driver ``…/kubepods-burstable-pod<uid with _>.slice/cri-containerd-<container>.scope``.
"""

import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_POD = re.compile(
    r"[/-]pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}"
    r"|[0-9a-f]{32})(?=[./]|$)",
    re.MULTILINE,
)
"""UIDs of mirror pods have no dashes."""


def pod_of(cgroups: str) -> str | None:
    """The UID of the pod that a process belongs to, by the contents of ``/proc/<pid>/cgroup``."""
    found = _POD.search(cgroups)
    return found[1].replace("_", "-") if found else None


def pod_of_process(process: Path) -> str | None:
    """The UID of the pod that a process belongs to, by its directory in ``/proc``.

    Raises:
        OSError: it has ended.
    """
    # Any user of the host may name a cgroup, with any bytes.
    return pod_of((process / "cgroup").read_text(errors="replace"))


def pods_with_processes(proc: Path = Path("/proc")) -> set[str]:
    """The UIDs of the pods that have processes. It reads a file of each process on the machine."""
    found = set()
    for process in proc.iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                found.add(pod_of_process(process))
    return {uid for uid in found if uid is not None}


def mapped_files(pid: int, device: int, proc: Path = Path("/proc")) -> frozenset[int] | None:
    """The inodes of the files on a device that a process has mapped; None = it ends or has ended.

    A process that ends has no mappings any more, while the driver still frees its memory.
    """
    name = f"{os.major(device):02x}:{os.minor(device):02x}".encode()
    with suppress(OSError), (proc / str(pid) / "maps").open("rb") as lines:
        mapped = [line.split(maxsplit=5) for line in lines]
        if mapped:
            return frozenset(int(fields[4]) for fields in mapped if fields[3] == name)
    return None


def kill_container(pid: int, pod: str, proc: Path = Path("/proc")) -> None:
    """Kill all processes of a container.

    Args:
        pid: one of them.
        pod: the UID of its pod; nothing is killed if the process is not of this pod any more.
        proc: the directory of processes.
    """
    with suppress(OSError):
        cgroups = (proc / str(pid) / "cgroup").read_bytes()
        if pod_of(cgroups.decode(errors="replace")) == pod:
            for process in proc.glob("[0-9]*"):
                kill(process, lambda each: (each / "cgroup").read_bytes() == cgroups)


def kill_users_of(device: int, inode: int, belongs: Callable[[Path], bool]) -> None:
    """Kill the processes that have a file open.

    Args:
        device: the file system of the file.
        inode: the file.
        belongs: whether a process, by its directory in ``/proc``, may be killed: a user can send an
            open file to programs of others.
    """
    for process in Path("/proc").glob("[0-9]*"):
        kill(process, lambda each: _has_open(each, device, inode) and belongs(each))


def _has_open(process: Path, device: int, inode: int) -> bool:
    for file in (process / "fd").iterdir():
        # A descriptor may be closed meanwhile.
        with suppress(OSError):
            status = file.stat()
            if (status.st_dev, status.st_ino) == (device, inode):
                return True
    return False


def kill(process: Path, is_wanted: Callable[[Path], bool]) -> bool:
    """Kill a process, and none that has got its PID meanwhile; whether it was killed.

    Args:
        process: its directory in ``/proc``.
        is_wanted: whether it is the one that is meant; may raise an ``OSError``.
    """
    with suppress(OSError):
        descriptor = os.pidfd_open(int(process.name))
        try:
            if is_wanted(process):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                return True
        finally:
            os.close(descriptor)
    return False
