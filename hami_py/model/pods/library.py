"""The library in a container, where the webhook brings it and not the device plugin.

One volume of the pod, a directory of the node, and two mounts of it in each container that asks for
a GPU: the directory itself, and the file in it that has the loader load the library.
"""

from collections.abc import Iterator

from hami_py.model.pods.asks import Place
from hami_py.model.pods.findings import Finding
from hami_py.model.pods.objects import HostPath, Pod, Volume, VolumeMount
from hami_py.model.pods.settings import PodSettings

PRELOAD = "/etc/ld.so.preload"
"""What ld.so(8) reads in every program that it starts, whatever the environment says."""

_VOLUME = "hami-library"

_FILE = "ld.so.preload"
"""In the directory: the library's path, as the container has it."""


def volumes(settings: PodSettings) -> tuple[Volume, ...]:
    """Of a pod that asks for a GPU; none where the device plugin brings the library."""
    directory = settings.library_directory
    return (Volume(_VOLUME, HostPath(directory, "Directory")),) if directory else ()


def mounts(settings: PodSettings) -> tuple[VolumeMount, ...]:
    """Of a container that asks for a GPU; both are read-only."""
    directory = settings.library_directory
    if not directory:
        return ()
    return (
        VolumeMount(_VOLUME, directory, read_only=True),
        VolumeMount(_VOLUME, PRELOAD, read_only=True, sub_path=_FILE),
    )


def missing_volumes(pod: Pod, settings: PodSettings) -> tuple[Volume, ...]:
    """Those that are to be added; another one of the name is refused."""
    there = {volume.name for volume in pod.spec.volumes or ()}
    return tuple(each for each in volumes(settings) if each.name not in there)


def missing_mounts(place: Place, settings: PodSettings) -> tuple[VolumeMount, ...]:
    """Those that are to be added."""
    there = place.container.volume_mounts or ()
    return tuple(each for each in mounts(settings) if each not in there)


def judge_volumes(pod: Pod, settings: PodSettings) -> Iterator[Finding]:
    """A volume that has the name of ours, and is another."""
    ours = {volume.name: volume for volume in volumes(settings)}
    for number, volume in enumerate(pod.spec.volumes or ()):
        if volume.name in ours and volume != ours[volume.name]:
            mend = "the webhook brings the library by that name; choose another one"
            yield Finding("library", "refuse", f"spec.volumes[{number}].name", volume.name, mend)


def judge_mounts(place: Place, settings: PodSettings) -> Iterator[Finding]:
    """Our volume where we would not mount it: to be written, or in another place."""
    ours = mounts(settings)
    names = {mount.name for mount in ours}
    for number, mount in enumerate(place.container.volume_mounts or ()):
        if mount.name in names and mount not in ours:
            path = f"{place.path}.volumeMounts[{number}].name"
            mend = "the webhook alone mounts the library; leave it out"
            yield Finding("library", "refuse", path, mount.name, mend)
