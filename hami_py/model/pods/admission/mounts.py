"""The mounts of a pod that cover the files which enforce the limits.

A pod must not hide a file in its container that enforces a limit. A hook on the node makes sure of
that, whatever is mounted where (``native/hook``): such a container does not start. Here the author
of a pod is told early, where the path in the pod shows it. Three fields of a container choose a
path at which the runtime puts something: ``volumeMounts``, ``volumeDevices``, and
``terminationMessagePath``, where the kubelet mounts a writable file.

A volume must not expose the node's limits for writing either. ``readOnly`` alone does not suffice:
it leaves writable what is mounted below the volume. A node's ``/run`` is nearly always a mount of
its own, so ``hostPath: /`` reaches ``/run/cdi`` whatever ``readOnly`` is. ``recursiveReadOnly:
Enabled`` holds for everything below, or the kubelet does not start the container.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence

from hami_py.config import INSIDE
from hami_py.model.pods.admission.findings import Finding
from hami_py.model.pods.objects import Container, Pod, VolumeMount
from hami_py.model.pods.request import PodContainer
from hami_py.model.pods.settings import PodSettings

PRELOAD = "/etc/ld.so.preload"
"""The file that ld.so(8) reads in every program that it starts, whatever the environment is."""

_BUILT_IN = (str(INSIDE), PRELOAD)
"""The paths in a container that enforce its limits."""

_PROCESS_LINK = re.compile(r"/proc/[^/]+/(task/[^/]+/)?(root|cwd|fd)(/.*)?", re.DOTALL)
"""The links of a process (proc_pid_root(5)), whose targets are unknown here."""

_NVIDIA_DEVICES = "/var/run/nvidia-container-devices"
"""A mount of /dev/null below it requests the card of its name, if NVIDIA's container toolkit has
``accept-nvidia-visible-devices-as-volume-mounts``. It precedes ``NVIDIA_VISIBLE_DEVICES``."""

_MAX_PATH = 4096
"""PATH_MAX of Linux, including the zero at its end: a path of so many bytes cannot be opened."""

_TOO_LONG = f"a path has less than {_MAX_PATH} bytes; write a shorter one"


class Mounts:
    """Judges the mounts of one pod.

    A volume may be mounted thousands of times: each way of mounting it is judged once.
    """

    def __init__(self, pod: Pod, settings: PodSettings) -> None:
        self._host_paths = {
            volume.name: volume.host_path.path
            for volume in pod.spec.volumes or ()
            if volume.host_path is not None
        }
        self._guarded = settings.guarded_host_paths
        self._cache: dict[tuple[str, bool, bool], str | None] = {}

    def judge(self, container: PodContainer) -> Iterator[Finding]:
        """Refuse the mounts of a container that could defeat a limit."""
        for field, path in self._chosen_paths(container.spec):
            problem = self._path_problem(path)
            if problem is not None:
                yield Finding("mount", "refuse", f"{container.path}.{field}", path, problem)
        for index, mount in enumerate(container.spec.volume_mounts or ()):
            host_path = self._host_paths.get(mount.name)
            if host_path is None:
                continue
            path = f"{container.path}.volumeMounts[{index}]"
            problem = self._host_path_problem(mount, host_path)
            if problem is not None:
                yield Finding("host-path", "refuse", path, host_path, problem)

    def _chosen_paths(self, spec: Container) -> Iterator[tuple[str, str]]:
        """Each field that chooses a path in the container, and the path."""
        for index, mount in enumerate(spec.volume_mounts or ()):
            yield f"volumeMounts[{index}].mountPath", mount.mount_path
        for index, device in enumerate(spec.volume_devices or ()):
            yield f"volumeDevices[{index}].devicePath", device.device_path
        if spec.termination_message_path:
            yield "terminationMessagePath", spec.termination_message_path

    def _path_problem(self, written: str) -> str | None:
        """Why nothing may be mounted at a path in the container, and how to fix it."""
        if len(written) >= _MAX_PATH:
            return _TOO_LONG
        # The kubelet puts a relative path below the root.
        path = _normal(written)
        for each in _BUILT_IN:
            if _is_in(path, each) or _is_in(each, path):
                return f"{each}, which limits the container, is mounted there; choose another path"
        if path.startswith(_NVIDIA_DEVICES):
            return "NVIDIA's container toolkit may add the card that it names; choose another path"
        return None

    def _host_path_problem(self, mount: VolumeMount, host_path: str) -> str | None:
        read_only = bool(mount.read_only)
        recursive = read_only and mount.recursive_read_only == "Enabled"
        key = (mount.name, read_only, recursive)
        if key not in self._cache:
            self._cache[key] = _host_path_problem(host_path, self._guarded, read_only, recursive)
        return self._cache[key]


def _host_path_problem(
    host_path: str, guarded: Sequence[str], read_only: bool, recursive: bool
) -> str | None:
    """Why a directory of the node must not be mounted like this, and how to fix it."""
    if len(host_path) >= _MAX_PATH:
        return _TOO_LONG
    if recursive:
        return None
    path = _normal(host_path)
    other = "mount another directory, or this one with readOnly"
    if _PROCESS_LINK.fullmatch(path):
        return f"a process's link may lead to the limits; {other} and recursiveReadOnly: Enabled"
    for each in guarded:
        if _is_in(each, path):
            return (
                f"limits lie in {each}, and readOnly alone leaves mounts below it writable; "
                f"{other} and recursiveReadOnly: Enabled"
            )
    for each in guarded:
        if _is_in(path, each) and not read_only:
            return f"limits lie in {each}; {other}"
    return None


def _normal(path: str) -> str:
    # A symbolic link before `..` would change the result; Kubernetes refuses `..` in a hostPath.
    return posixpath.normpath("/" + path.lstrip("/"))


def _is_in(path: str, directory: str) -> bool:
    """Whether the path is the directory, or inside it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
