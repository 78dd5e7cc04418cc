"""The answer to Allocate: what the kubelet adds to a container.

When the kubelet asks, it does not say for which container, and an error would fail the pod for
good. So the answer depends on nothing but a fresh name for the container's slot. It names a CDI
device that is defined later, before the container starts (``hami_py.node.cdi``).
"""

import secrets
from collections.abc import Mapping
from pathlib import Path

from hami_py.node import cdi
from hami_py.plugin.api import deviceplugin_pb2 as api

_NAME_BYTES = 8

_SLOT = "hami.io/slot"
_LIBRARY = "hami.io/library"
"""Annotations of the container, for the kubelet's record."""


def answer(
    library: Path, variables: Mapping[str, str] = cdi.NO_OTHERS
) -> api.ContainerAllocateResponse:
    """The answer for one container.

    Args:
        library: the installed library for new containers, as a path on the node.
        variables: for a runtime that ignores CDI devices.
    """
    name = secrets.token_hex(_NAME_BYTES)
    return api.ContainerAllocateResponse(
        annotations={_SLOT: name, _LIBRARY: str(library)},
        cdi_devices=[api.CDIDevice(name=cdi.device_name(name))],
        envs=variables,
    )


def slot_of(answer: api.ContainerAllocateResponse) -> tuple[str, str] | None:
    """The name of the slot of an answer, and its library; None = it is not ours."""
    name, library = answer.annotations.get(_SLOT, ""), answer.annotations.get(_LIBRARY, "")
    if not library or [each.name for each in answer.cdi_devices] != [cdi.device_name(name)]:
        return None
    return name, library
