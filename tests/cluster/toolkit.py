"""NVIDIA's container toolkit on a node, of the version in `binaries`.

`nvidia-ctk` describes the cards in a CDI specification of the kind `nvidia.com/gpu`. Its devices
are named by the cards' UUIDs, and `all`. `nvidia-container-runtime` is the node's default runtime,
in the mode `cdi`: a container gets the devices that NVIDIA_VISIBLE_DEVICES names. `nvidia-ctk`
writes the configuration of both, the runtime and containerd.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster import binaries
from cluster.node import Node, runc

#: The kind of the CDI devices.
KIND = "nvidia.com/gpu"

#: Seconds for `nvidia-ctk`, which starts the driver.
_DEADLINE = 120.0


def program(name: str) -> Path:
    """One of the toolkit's programs."""
    return binaries.folder("toolkit") / name


def make_default(containerd: Path) -> None:
    """Make NVIDIA's runtime the default in this configuration of containerd."""
    drop_in = containerd.with_name("containerd.d") / "99-nvidia.toml"
    runtime = program("nvidia-container-runtime")
    files = (f"--config={containerd}", f"--drop-in-config={drop_in}")
    given = ("--runtime=containerd", *files, "--set-as-default", f"--nvidia-runtime-path={runtime}")
    _ctk([], "runtime", "configure", *given, env=os.environ)


def configure(node: Node) -> None:
    """Write the runtime's configuration, for the node's runc and for the mode `cdi`."""
    settings = {"mode": "cdi", "runtimes": runc()}
    change(node, *(f"nvidia-container-runtime.{name}={each}" for name, each in settings.items()))


def change(node: Node, *settings: str) -> None:
    """Change settings of the runtime's configuration, such as ``disable-require=true``."""
    sets = (f"--set={each}" for each in settings)
    _ctk(_within(node), "config", *sets, "--in-place", env=os.environ)


def generate(node: Node, *options: str | Path, env: Mapping[str, str]) -> dict[str, Any]:
    """The specification that `nvidia-ctk cdi generate` makes on the node."""
    given = ["--device-name-strategy=uuid", f"--nvidia-cdi-hook-path={program('nvidia-cdi-hook')}"]
    command = ("cdi", "generate", "--format=json", *given, *map(str, options))
    return dict(json.loads(_ctk(_within(node), *command, env=env)))


def publish(node: Node, specification: Mapping[str, Any]) -> None:
    """Put it where the node's runtimes read it."""
    (node.cdi / "nvidia.json").write_text(json.dumps(specification))


def _within(node: Node) -> list[str]:
    return ["nsenter", "--mount", "--pid", "--target", str(node.init_pid()), "--"]


def _ctk(within: Sequence[str], *arguments: str, env: Mapping[str, str]) -> str:
    """The output of `nvidia-ctk`."""
    done = subprocess.run(
        [*within, str(program("nvidia-ctk")), "--quiet", *arguments],
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_DEADLINE,
        check=False,
    )
    assert done.returncode == 0, f"nvidia-ctk {arguments}: {done.stderr}"
    return done.stdout
