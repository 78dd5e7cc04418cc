"""Volumes that would lead a container to what keeps its limits: over it inside, or beside it.

``readOnly`` makes a volume's own mount read-only, and leaves writable what is mounted below it: a
node's ``/run`` is a mount of its own nearly everywhere, so ``hostPath: /`` reaches ``/run/cdi``
whatever ``readOnly`` says. ``recursiveReadOnly: Enabled`` holds for all of it, or else the kubelet
does not start the container.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator

from hami_py.model.pods.asks import Place
from hami_py.model.pods.findings import Finding
from hami_py.model.pods.objects import Pod, VolumeMount
from hami_py.model.pods.settings import PodSettings

_ANYWHERE = re.compile(r"/proc/[^/]+/(task/[^/]+/)?(root|cwd|fd)(/.*)?", re.DOTALL)
"""The links of a process (proc_pid_root(5)): what lies behind them cannot be told from here."""


def judge_mounts(place: Place, pod: Pod, settings: PodSettings) -> Iterator[Finding]:
    """A container's volumes, those that are refused."""
    host_paths = {
        volume.name: volume.host_path.path
        for volume in pod.spec.volumes or ()
        if volume.host_path is not None
    }
    for number, mount in enumerate(place.container.volume_mounts or ()):
        path = f"{place.path}.volumeMounts[{number}]"
        if _normal(mount.mount_path) in settings.guarded_mounts:
            mend = "the limits are mounted there; choose another path"
            yield Finding("mount", "refuse", f"{path}.mountPath", mount.mount_path, mend)
        outside = host_paths.get(mount.name)
        if outside is None:
            continue
        why = _too_open(_normal(outside), mount, settings.guarded_host_paths)
        if why is not None:
            yield Finding("host-path", "refuse", path, outside, why)


def _too_open(path: str, mount: VolumeMount, guarded: Iterable[str]) -> str | None:
    """Why a directory of the node is not mounted like that, and how to mend it."""
    read_only = bool(mount.read_only)
    if read_only and mount.recursive_read_only == "Enabled":
        return None
    other = "mount another directory, or this with readOnly"
    if _ANYWHERE.fullmatch(path):
        return f"a process's link may lead to the limits; {other} and recursiveReadOnly: Enabled"
    for each in guarded:
        if _is_in(each, path):
            return (
                f"limits lie in {each}, and readOnly alone leaves what is mounted below writable; "
                f"{other} and recursiveReadOnly: Enabled"
            )
    for each in guarded:
        if _is_in(path, each) and not read_only:
            return f"limits lie in {each}; {other}"
    return None


def _normal(path: str) -> str:
    # Of a link before `..` this knows nothing; Kubernetes refuses `..` in a hostPath.
    return posixpath.normpath("/" + path.lstrip("/"))


def _is_in(path: str, directory: str) -> bool:
    """Whether it is the directory, or in it."""
    return posixpath.commonpath((path, directory)) == directory
