"""The node's directories, as the kubelet and the containers see them.

| directory | content | lifetime |
|---|---|---|
| ``/run/hami`` | the slots, and the coordinator's files | until the node reboots |
| ``/var/lib/hami`` | the ledger, and the installed libraries | until hami is removed |
| ``/var/lib/kubelet`` | the kubelet's sockets, and its record of devices | the kubelet's |
| ``/etc/cdi``, ``/var/run/cdi`` | CDI specifications, NVIDIA's and ours | a container's start |

The paths must be the same for the agent and for the kubelet, because the kubelet hands the agent's
paths to the container runtime. ``hami machine`` has further files there: docs/architecture.md.
"""

from dataclasses import dataclass
from pathlib import Path

from hami_py.config import NODE_RUNTIME


@dataclass(frozen=True)
class Paths:
    """The directories of a node.

    Attributes:
        runtime: on tmpfs; writable for root only.
        state: on a disk, and not mounted with ``noexec``.
        kubelet: the kubelet's own directory.
        cdi: where the container runtime looks for CDI specifications; the agent's are in
            the last one, those of ``hami machine`` in the first.
    """

    runtime: Path = NODE_RUNTIME
    state: Path = Path("/var/lib/hami")
    kubelet: Path = Path("/var/lib/kubelet")
    cdi: tuple[Path, ...] = (Path("/etc/cdi"), Path("/var/run/cdi"))

    @property
    def slots(self) -> Path:
        """One directory for each container with cards. The coordinator reads it."""
        return self.runtime / "slices"

    @property
    def hook_socket(self) -> Path:
        """Where the hook of a container that starts finds the agent."""
        return self.runtime / "hook.sock"

    @property
    def agent_lock(self) -> Path:
        """Locked by the agent that acts; a second one waits for it."""
        return self.state / "agent.lock"

    @property
    def ledger(self) -> Path:
        """What each container has."""
        return self.state / "ledger.json"

    @property
    def owner(self) -> Path:
        """The owner of the node's cards."""
        return self.state / "owner"

    @property
    def cards(self) -> Path:
        """The cards that were seen on the node."""
        return self.state / "cards.json"

    @property
    def made_specifications(self) -> Path:
        """NVIDIA's CDI specification, if the agent makes it."""
        return self.state / "cdi"

    @property
    def libraries(self) -> Path:
        """One directory for each version of the library that a container may have."""
        return self.state / "library"

    @property
    def device_plugins(self) -> Path:
        """The sockets of the kubelet and of device plugins."""
        return self.kubelet / "device-plugins"

    @property
    def checkpoint(self) -> Path:
        """The kubelet's record of the devices that it has allocated."""
        return self.device_plugins / "kubelet_internal_checkpoint"

    @property
    def pod_resources(self) -> Path:
        """The socket on which the kubelet lists pods and their devices."""
        return self.kubelet / "pod-resources" / "kubelet.sock"
