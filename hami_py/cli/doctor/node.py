"""The doctor's checks of a node of Kubernetes: what would give containers cards without limits."""

import re
from pathlib import Path

from hami_py.cli.doctor.trial import Found
from hami_py.errors import HamiError
from hami_py.plugin import other_plugin

KUBELET = Path("/var/lib/kubelet/device-plugins")
"""A machine with this folder is a node."""

TOOLKIT = Path("/etc/nvidia-container-runtime/config.toml")

_SETTING = "accept-nvidia-visible-devices-envvar-when-unprivileged"


def device_plugins(folder: Path = KUBELET) -> Found:
    """Check that no other device plugin may serve the cards.

    Raises:
        HamiError: NVIDIA's or HAMi's runs.
    """
    if not folder.is_dir():
        return "this machine is no node of Kubernetes"
    if not other_plugin.listens(folder):
        return f"no device plugin listens on {other_plugin.SOCKET}"
    why = f"another device plugin (NVIDIA's or HAMi's) listens on {folder / other_plugin.SOCKET}"
    fix = "remove it from this node: containers would get cards without limits"
    raise HamiError("device plugins", why, fix)


def container_toolkit(file: Path = TOOLKIT, folder: Path = KUBELET) -> Found:
    """Check that an image cannot name cards that are not allocated to its container.

    Raises:
        HamiError: the toolkit's configuration allows it, or cannot be read.
    """
    if not folder.is_dir():
        return "this machine is no node of Kubernetes"
    try:
        text = file.read_text(errors="replace")
    except FileNotFoundError:
        return f"{file} does not exist; without NVIDIA's runtime, no variable gives cards"
    except OSError as error:
        fix = "run the doctor as root"
        raise HamiError("container toolkit", f"{file}: {error.strerror}", fix) from error
    # The default is true.
    found = re.search(rf"^\s*{_SETTING}\s*=\s*(\w+)", text, re.MULTILINE)
    if found is None or found[1] != "false":
        why = "an image with NVIDIA_VISIBLE_DEVICES gets cards that are not allocated to it"
        raise HamiError("container toolkit", why, f"set {_SETTING} = false in {file}")
    return f"{_SETTING} = false"
