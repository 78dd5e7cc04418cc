"""The library in a container, where the webhook brings it and not the device plugin.

Two files of the node, each a volume of its own, in each container that asks for a GPU: the library,
and what has the loader load it. As files they have to be there: of a directory with ``subPath`` the
kubelet would make what is missing, and the container start without a limit.
"""

from collections.abc import Iterator

from hami_py.model.pods.asks import Place
from hami_py.model.pods.findings import Finding
from hami_py.model.pods.objects import HostPath, Pod, Volume, VolumeMount
from hami_py.model.pods.settings import PodSettings

PRELOAD = "/etc/ld.so.preload"
"""What ld.so(8) reads in every program that it starts, whatever the environment says."""


def _files(settings: PodSettings) -> dict[str, tuple[str, str]]:
    """By the volume's name: the file of the node, and where it is in a container."""
    directory = settings.library_directory
    if not directory:
        return {}
    library = f"{directory}/libvgpu.so"
    return {
        "hami-library": (library, library),
        "hami-preload": (f"{directory}/ld.so.preload", PRELOAD),
    }


def volumes(settings: PodSettings) -> tuple[Volume, ...]:
    """Of a pod that asks for a GPU; none where the device plugin brings the library."""
    files = _files(settings).items()
    return tuple(Volume(name, HostPath(outside, "File")) for name, (outside, _) in files)


def mounts(settings: PodSettings) -> tuple[VolumeMount, ...]:
    """Of a container that asks for a GPU, read-only."""
    files = _files(settings).items()
    return tuple(VolumeMount(name, inside, read_only=True) for name, (_, inside) in files)


def missing_volumes(pod: Pod, settings: PodSettings) -> tuple[Volume, ...]:
    """Those that are to be added; another one of the name is refused."""
    there = {volume.name for volume in pod.spec.volumes or ()}
    return tuple(each for each in volumes(settings) if each.name not in there)


def missing_mounts(place: Place, settings: PodSettings) -> tuple[VolumeMount, ...]:
    """Those that are to be added."""
    there = place.container.volume_mounts or ()
    return tuple(each for each in mounts(settings) if each not in there)


def judge_volumes(pod: Pod, settings: PodSettings) -> Iterator[Finding]:
    """A volume that has the name of one of ours, and is another."""
    ours = {volume.name: volume for volume in volumes(settings)}
    for number, volume in enumerate(pod.spec.volumes or ()):
        if volume.name in ours and volume != ours[volume.name]:
            fix = "the webhook brings the library by that name; choose another one"
            yield Finding("library", "refuse", f"spec.volumes[{number}].name", volume.name, fix)


def judge_mounts(place: Place, settings: PodSettings) -> Iterator[Finding]:
    """A volume of ours where we would not mount it: to be written, or in another place."""
    ours = mounts(settings)
    names = {mount.name for mount in ours}
    for number, mount in enumerate(place.container.volume_mounts or ()):
        if mount.name in names and mount not in ours:
            path = f"{place.path}.volumeMounts[{number}].name"
            fix = "the webhook alone mounts the library; leave it out"
            yield Finding("library", "refuse", path, mount.name, fix)
