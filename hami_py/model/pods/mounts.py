"""Volumes that would lead a container to what keeps its limits: over it inside, or beside it.

``readOnly`` makes a volume's own mount read-only, and leaves writable what is mounted below it: a
node's ``/run`` is a mount of its own nearly everywhere, so ``hostPath: /`` reaches ``/run/cdi``
whatever ``readOnly`` says. ``recursiveReadOnly: Enabled`` holds for all of it, or else the kubelet
does not start the container.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping

from hami_py.model.pods import library
from hami_py.model.pods.asks import Place
from hami_py.model.pods.findings import Finding
from hami_py.model.pods.objects import Pod, VolumeMount
from hami_py.model.pods.settings import PodSettings

_ANYWHERE = re.compile(r"/proc/[^/]+/(task/[^/]+/)?(root|cwd|fd)(/.*)?", re.DOTALL)
"""The links of a process (proc_pid_root(5)): what lies behind them cannot be told from here."""


_LONGEST = 4096
"""PATH_MAX of Linux, with the zero at its end: no path of so many characters can be opened."""

_TOO_LONG = f"a path has less than {_LONGEST} bytes; write a shorter one"


class Mounts:
    """What is said of the volumes of one pod, wherever they are mounted.

    A volume may be mounted thousands of times: it is judged once for each way of doing so.
    """

    def __init__(self, pod: Pod, settings: PodSettings) -> None:
        self._host_paths = {
            volume.name: volume.host_path.path
            for volume in pod.spec.volumes or ()
            if volume.host_path is not None
        }
        self._ours = library.mounts(settings)
        self._guarded_mounts = {
            *settings.guarded_mounts,
            *(mount.mount_path for mount in self._ours),
        }
        self._guarded = dict.fromkeys(settings.guarded_host_paths, "limits lie in")
        if settings.library_directory:
            self._guarded.setdefault(settings.library_directory, "the library lies in")
        self._verdicts: dict[tuple[str, bool, bool], str | None] = {}

    def judge(self, place: Place) -> Iterator[Finding]:
        """A container's volumes, those that are refused."""
        for number, mount in enumerate(place.container.volume_mounts or ()):
            if mount in self._ours:
                continue
            path = f"{place.path}.volumeMounts[{number}]"
            if len(mount.mount_path) >= _LONGEST:
                yield Finding("mount", "refuse", f"{path}.mountPath", mount.mount_path, _TOO_LONG)
            elif _normal(mount.mount_path) in self._guarded_mounts:
                fix = "the limits are mounted there, or the library; choose another path"
                yield Finding("mount", "refuse", f"{path}.mountPath", mount.mount_path, fix)
            outside = self._host_paths.get(mount.name)
            if outside is None:
                continue
            why = self._verdict(mount, outside)
            if why is not None:
                yield Finding("host-path", "refuse", path, outside, why)

    def _verdict(self, mount: VolumeMount, outside: str) -> str | None:
        read_only = bool(mount.read_only)
        recursive = read_only and mount.recursive_read_only == "Enabled"
        key = (mount.name, read_only, recursive)
        if key not in self._verdicts:
            self._verdicts[key] = _judge(outside, self._guarded, read_only, recursive)
        return self._verdicts[key]


def _judge(
    outside: str, guarded: Mapping[str, str], read_only: bool, recursive: bool
) -> str | None:
    """Why a directory of the node is not mounted like that, and how to fix it."""
    if len(outside) >= _LONGEST:
        return _TOO_LONG
    if recursive:
        return None
    path = _normal(outside)
    other = "mount another directory, or this with readOnly"
    if _ANYWHERE.fullmatch(path):
        return f"a process's link may lead to the limits; {other} and recursiveReadOnly: Enabled"
    for each, what in guarded.items():
        if _is_in(each, path):
            return (
                f"{what} {each}, and readOnly alone leaves what is mounted below writable; "
                f"{other} and recursiveReadOnly: Enabled"
            )
    for each, what in guarded.items():
        if _is_in(path, each) and not read_only:
            return f"{what} {each}; {other}"
    return None


def _normal(path: str) -> str:
    # Of a link before `..` this knows nothing; Kubernetes refuses `..` in a hostPath.
    return posixpath.normpath("/" + path.lstrip("/"))


def _is_in(path: str, directory: str) -> bool:
    """Whether it is the directory, or in it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
