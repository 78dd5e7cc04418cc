"""The answer to Allocate: what the kubelet adds to a container.

It depends on the device IDs alone, and on a fresh name for the container's slot. When the kubelet
asks, it does not say for which container, and an error would fail the pod for good. The slot is
created later, before the container starts.

The driver's files and the card's device nodes come from NVIDIA's container toolkit or from a CDI
specification. NVIDIA's device plugin has the same four ways to name the cards for them:
https://github.com/NVIDIA/k8s-device-plugin#configuration-option-details
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from hami_py.config import LIBRARY_NAME
from hami_py.node import library, slot
from hami_py.node.devices import cards_of
from hami_py.node.paths import Paths
from hami_py.plugin.api import deviceplugin_pb2 as api

Strategy: TypeAlias = Literal["envvar", "cdi-cri", "cdi-annotations", "volume-mounts"]
"""``envvar``: ``NVIDIA_VISIBLE_DEVICES``. ``cdi-cri``: names of CDI devices. ``cdi-annotations``:
the same as annotations, for runtimes before containerd 1.7. ``volume-mounts``: mounts that the
toolkit reads as names, where it ignores the variable of unprivileged containers."""

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

CDI_KIND = "nvidia.com/gpu"

_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
_VOLUME_ROOT = Path("/var/run/nvidia-container-devices")
_PRELOAD = Path("/etc/ld.so.preload")
_NAME_BYTES = 8

_SLOT = "hami.io/slot"
"""An annotation of the container, for the kubelet's record."""


@dataclass(frozen=True)
class Answers:
    """Makes the answers.

    Attributes:
        paths: the node's directories.
        library: the installed library for new containers, as a path on the node.
        strategy: how the cards are named for the container runtime.
        mounts_slot: False = the webhook mounts the library, and the container has no slot.
    """

    paths: Paths
    library: Path
    strategy: Strategy
    mounts_slot: bool = True

    def container(self, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        """The answer for one container."""
        cards = sorted({*cards_of(ids)})
        name = secrets.token_hex(_NAME_BYTES)
        answer = api.ContainerAllocateResponse(annotations={_SLOT: name})
        if self.mounts_slot:
            binds = slot.binds(self.paths.slots / name, self.library, library.INSIDE)
            for bind in binds:
                answer.mounts.append(_mount(bind.source, bind.target, read_only=bind.read_only))
            answer.mounts.append(_mount(library.preload_file(self.library), _PRELOAD))
        names = [f"{CDI_KIND}={card}" for card in cards]
        if self.strategy.startswith("cdi"):
            # Many images have "all" there, and NVIDIA's runtime would add all cards.
            answer.envs[_VISIBLE_DEVICES] = "void"
        if self.strategy == "envvar":
            answer.envs[_VISIBLE_DEVICES] = ",".join(cards)
        elif self.strategy == "cdi-cri":
            answer.cdi_devices.extend(api.CDIDevice(name=each) for each in names)
        elif self.strategy == "cdi-annotations":
            answer.annotations[f"cdi.k8s.io/hami_{name}"] = ",".join(names)
        else:
            # The toolkit needs the variable to look at the mounts.
            answer.envs[_VISIBLE_DEVICES] = str(_VOLUME_ROOT)
            answer.mounts.extend(_mount(Path("/dev/null"), _VOLUME_ROOT / card) for card in cards)
        return answer


def slot_of(answer: api.ContainerAllocateResponse) -> tuple[str, str] | None:
    """The name of the slot of an answer, and the library that it mounts; None = it is not ours.

    Without a mounted library, the second is an empty text.
    """
    name = answer.annotations.get(_SLOT)
    installed = [
        mount.host_path
        for mount in answer.mounts
        if mount.container_path == str(library.INSIDE / LIBRARY_NAME)
    ]
    return (name, installed[0] if installed else "") if name else None


def _mount(source: Path, target: Path, *, read_only: bool = True) -> api.Mount:
    return api.Mount(host_path=str(source), container_path=str(target), read_only=read_only)
