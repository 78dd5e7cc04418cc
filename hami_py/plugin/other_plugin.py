"""Another device plugin for the same resource.

The kubelet would keep the plugin that registered last, and containers would get cards without
limits. NVIDIA's device plugin and HAMi's listen on a socket of the same name, and NVIDIA's for MIG
instances (strategy ``mixed``) on one for each profile. This module imports no gRPC, so that ``hami
doctor`` works without it.
"""

import socket
from pathlib import Path

SOCKETS = ("nvidia-gpu.sock", "nvidia-mig-*.sock")
"""The sockets of NVIDIA's and of HAMi's device plugin, in the kubelet's folder of plugins."""

_CONNECT_S = 5.0


def listening(folder: Path) -> Path | None:
    """The socket of such a plugin in the kubelet's folder of device plugins; None = there is none.

    A plugin that was killed leaves its socket.
    """
    found = sorted(path for pattern in SOCKETS for path in folder.glob(pattern))
    return next(filter(accepts, found), None)


def accepts(path: Path) -> bool:
    """Whether a program listens on a socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_CONNECT_S)
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True
