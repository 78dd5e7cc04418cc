"""Which pod a process belongs to, by its cgroup.

The kubelet names the cgroup of a pod after the pod's UID: ``…/pod<uid>/<container>``, or with the
systemd driver ``…/kubepods-burstable-pod<uid with _>.slice/cri-containerd-<container>.scope``.
"""

import re
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


def pods_with_processes(proc: Path = Path("/proc")) -> set[str]:
    """The UIDs of the pods that have processes. It reads a file of each process on the machine."""
    found = set()
    for process in proc.iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                # Any user of the host may name a cgroup, with any bytes.
                found.add(pod_of((process / "cgroup").read_text(errors="replace")))
    return {uid for uid in found if uid is not None}
