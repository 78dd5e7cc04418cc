"""The cgroups (version 2) of containers, whose memory the driver can limit."""

from pathlib import Path

from hami_py.errors import StateError
from hami_py.node.processes import pod_of

_WHAT = "the container's cgroup"


def mount(proc: Path = Path("/proc")) -> Path | None:
    """Where cgroups of version 2 are; None = nowhere."""
    rows = (line.split(" ") for line in (proc / "self" / "mounts").read_text().splitlines())
    return next((Path(row[1]) for row in rows if row[2] == "cgroup2"), None)


def own_cgroup() -> Path | None:
    """The cgroup of this process, as those of other pods; None = it is in the root, or in none."""
    root, path = mount(), _path("self")
    return root / path if root is not None and path else None


def cgroup_of(pid: int, pod: str) -> Path:
    """The directory of the cgroup of a process.

    Args:
        pid: the first process of a container, which waits.
        pod: the UID of its pod.

    Raises:
        StateError: it is not of this pod, or not in a cgroup of version 2.
    """
    root = mount()
    try:
        path = _path(str(pid))
    except OSError as error:
        raise StateError(_WHAT, f"process {pid}: {error.strerror}", "start it again") from error
    if root is None or pod_of(f"/{path}") != pod:
        why = f"process {pid} is not in a cgroup (version 2) of pod {pod}: {path or 'none'}"
        raise StateError(_WHAT, why, "use cgroups of version 2, which the kubelet names by pods")
    return root / path


def is_populated(cgroup: Path) -> bool | None:
    """Whether a cgroup has processes; None = it does not exist."""
    try:
        return "populated 1" in (cgroup / "cgroup.events").read_text()
    except OSError:
        return None


def _path(process: str) -> str:
    """The cgroup of a process, relative to the root; empty for the root, and without version 2."""
    lines = Path(f"/proc/{process}/cgroup").read_text(errors="replace").splitlines()
    return next((line[4:] for line in lines if line.startswith("0::/")), "")
