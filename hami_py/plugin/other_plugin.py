"""Another device plugin for the same resource.

The kubelet would keep the plugin that registered last, and containers would get cards without
limits. NVIDIA's device plugin and HAMi's listen on a socket of the same name. This module imports
no gRPC, so that ``hami doctor`` works without it.
"""

import socket
from pathlib import Path

SOCKET = "nvidia-gpu.sock"
"""The socket of NVIDIA's and of HAMi's device plugin, in the kubelet's folder of plugins."""

_CONNECT_S = 5.0


def listens(folder: Path) -> bool:
    """Whether such a plugin listens in the kubelet's folder of device plugins."""
    return accepts(folder / SOCKET)


def accepts(path: Path) -> bool:
    """Whether a program listens on a socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_CONNECT_S)
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True
