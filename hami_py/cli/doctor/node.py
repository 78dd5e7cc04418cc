"""The doctor's checks of a node of Kubernetes: what would give programs cards without limits."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hami_py.cli.doctor import gpu_operator
from hami_py.cli.doctor.trial import Found
from hami_py.errors import HamiError
from hami_py.plugin import other_plugin

KUBELET = Path("/var/lib/kubelet/device-plugins")
"""A machine with this folder is a node."""

TOOLKITS = (
    Path("etc/nvidia-container-runtime/config.toml"),
    Path("usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml"),
)
"""The configuration of NVIDIA's runtime on a node: of a package, and of the GPU Operator."""

_NODE = Path("/proc/1/root")

_SETTING = "accept-nvidia-visible-devices-envvar-when-unprivileged"


def device_plugins(folder: Path = KUBELET, node: str | None = None) -> Found:
    """Check that no other device plugin may serve the cards, unless others allocate them.

    Raises:
        HamiError: NVIDIA's or HAMi's runs.
    """
    if not folder.is_dir():
        return "this machine is no node of Kubernetes"
    socket = other_plugin.listening(folder)
    if socket is None:
        return f"no device plugin listens on {' or '.join(other_plugin.SOCKETS)}"
    labels = gpu_operator.labels_of(node)
    if labels is not None and _is_of_others(labels):
        return (
            f"others allocate the cards of this node; the device plugin on {socket} may serve them"
        )
    why = f"another device plugin (NVIDIA's or HAMi's) listens on {socket}"
    how = gpu_operator.how_to_stop(node, labels)
    fix = f"remove it from this node, because containers would get cards without limits: {how}"
    raise HamiError("device plugins", why, fix)


def _is_of_others(labels: Mapping[str, str]) -> bool:
    # Imported here, because a machine outside of Kubernetes may not have what it needs.
    from hami_py.model.pods.owner import read_owner  # noqa: PLC0415

    return read_owner(labels) == "others"


def container_toolkit(root: Path | None = None, folder: Path = KUBELET) -> Found:
    """Check that an image cannot name cards that are not allocated to its container.

    Args:
        root: the node's file system. None: that of the first process, which is the node's in the
            agent's container; without the right to see it, this program's.
        folder: the kubelet's device plugins.

    Raises:
        HamiError: the toolkit's configuration allows it, or cannot be read.
    """
    if not folder.is_dir():
        return "this machine is no node of Kubernetes"
    if root is None:
        root = _NODE if os.access(_NODE / "etc", os.X_OK) else Path("/")
    read = {path: text for path in TOOLKITS if (text := _text(root / path)) is not None}
    if not read:
        return f"/{TOOLKITS[0]} does not exist; without NVIDIA's runtime, no variable gives cards"
    for path, text in read.items():
        # The default is true. The setting is in no table, so it is before all of them.
        found = re.search(rf"^\s*{_SETTING}\s*=\s*(\w+)", text.split("\n[")[0], re.MULTILINE)
        if found is None or found[1] != "false":
            why = "an image with NVIDIA_VISIBLE_DEVICES gets cards that are not allocated to it"
            raise HamiError("container toolkit", why, f"set {_SETTING} = false in /{path}")
    return f"{_SETTING} = false"


def mps_daemon(processes: Path = Path("/proc")) -> Found:
    """Look for an MPS daemon: programs outside of our containers become its clients."""
    found = []
    for file in processes.glob("[0-9]*/comm"):
        with suppress(OSError):
            # nvidia-cuda-mps-control and -server; the kernel keeps 15 characters.
            if file.read_text().startswith("nvidia-cuda-mps"):
                found.append(int(file.parent.name))
    if not found:
        return "no daemon runs"
    fix = (
        "containers with limits do not use it; the shares of other programs do not hold beside "
        "it: end it with `echo quit | nvidia-cuda-mps-control`"
    )
    return f"a daemon runs: process {', '.join(map(str, sorted(found)))}", fix


def _text(file: Path) -> str | None:
    try:
        return file.read_text(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        fix = "run the doctor as root"
        raise HamiError("container toolkit", f"{file}: {error.strerror}", fix) from error
