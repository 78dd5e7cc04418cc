"""NVIDIA's CDI specification, made by the program of the node's container toolkit."""

import subprocess
from pathlib import Path

from hami_py.errors import StateError

_NODE = Path("/proc/1/root")
"""The node's file system: the agent is in the node's PID namespace."""

_CHROOT = "/usr/sbin/chroot"
"""The PATH of an image may lack its directory."""

_DEADLINE_S = 30.0


def make_specification(
    program: str, directory: Path, driver_root: str | None = None, node: Path = _NODE
) -> None:
    """Make the specification of all cards, for the driver that the node has now.

    Args:
        program: ``nvidia-ctk``, or its path on the node.
        directory: where the specification is written; created if it is missing.
        driver_root: the directory on the node below which the driver's files are; None = as the
            toolkit is configured.
        node: the root directory of the node.

    Raises:
        StateError: the program cannot be run, fails or takes too long, or the specification cannot
            be written. Then an earlier one stays.
    """
    command = [_CHROOT, str(node), program, "cdi", "generate", "--device-name-strategy=uuid"]
    command += [] if driver_root is None else [f"--driver-root={driver_root}"]
    what, fix = f"{program} cdi generate on the node", "run it there by hand as root"
    try:
        done = subprocess.run(command, capture_output=True, timeout=_DEADLINE_S, check=False)
        if done.returncode != 0:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            raise StateError(what, lines[-1] if lines else f"exit code {done.returncode}", fix)
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        aside = directory / "nvidia.new"
        aside.write_bytes(done.stdout)
        aside.replace(directory / "nvidia.yaml")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StateError(what, str(error), fix) from error
