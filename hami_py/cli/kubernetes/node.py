"""``hami node``: the node agent."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from hami_py import config
from hami_py.cli.kubernetes.common import api_server_options, connect
from hami_py.cli.kubernetes.settings import read_settings, report_settings, settings_option
from hami_py.cli.service import kubernetes_extra, parse_listen, run_service
from hami_py.model import check_object_name
from hami_py.node.paths import Paths

_directory = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.option("--node", "name", required=True, metavar="NAME", help="The name of this node.")
@click.option(
    "--cleanup",
    is_flag=True,
    help="Remove what agents have left on this node, after its limited pods have ended.",
)
@click.option(
    "--slots",
    type=click.IntRange(1, 1024),
    default=32,
    show_default=True,
    help="How many containers may share a card.",
)
@click.option(
    "--listen",
    default="0.0.0.0:9382",
    show_default=True,
    help="The address and port for health and metrics.",
)
@click.option(
    "--library",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The preload library for containers. Default: the one of this package.",
)
@click.option(
    "--runtime-directory",
    type=_directory,
    default=Paths.runtime,
    show_default=True,
    help="For the containers' limits; on tmpfs, at the same path for the kubelet.",
)
@click.option(
    "--state-directory",
    type=_directory,
    default=Paths.state,
    show_default=True,
    help="For the ledger and the library; on a disk, at the same path for the kubelet.",
)
@click.option(
    "--kubelet-directory",
    type=_directory,
    default=Paths.kubelet,
    show_default=True,
    help="The kubelet's directory.",
)
@click.option(
    "--cdi-directory",
    "cdi_directories",
    type=_directory,
    multiple=True,
    default=Paths.cdi,
    show_default=True,
    help="Where the container runtime looks for CDI specifications; several times for several "
    "directories. The agent writes into the last one.",
)
@click.option(
    "--nvidia-ctk",
    metavar="PROGRAM",
    help="Make NVIDIA's CDI specification with this program of the node's container toolkit, such "
    "as nvidia-ctk: its name or its path on the node. Default: the agent makes none.",
)
@click.option(
    "--driver-root",
    metavar="DIRECTORY",
    help="Where that program looks for the driver's files on the node, such as /run/nvidia/driver. "
    "Default: where the toolkit is configured.",
)
@click.option(
    "--kill",
    "killed",
    type=click.Choice(("bypass", "covered")),
    multiple=True,
    help="End the container of a process without limits (bypass), or with other limits than the "
    "container's (covered). Default: they are only reported.",
)
@settings_option
@api_server_options
def node(
    *,
    name: str,
    cleanup: bool,
    slots: int,
    listen: str,
    library: Path | None,
    runtime_directory: Path,
    state_directory: Path,
    kubelet_directory: Path,
    cdi_directories: tuple[Path, ...],
    nvidia_ctk: str | None,
    driver_root: str | None,
    killed: tuple[Literal["bypass", "covered"], ...],
    settings_file: Path | None,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Run the node agent until it gets SIGTERM or SIGINT.

    It publishes this node's cards and sets the limits of each container with cards. It runs as
    root, in the PID namespace of the node; deploy/node has its DaemonSet.
    """
    check_object_name("--node", name)
    at = parse_listen("--listen", listen)
    pod_settings = read_settings(settings_file)
    server = connect(kubeconfig, context)
    with kubernetes_extra():
        from hami_py.agent.cleanup import Cleanup  # noqa: PLC0415
        from hami_py.agent.service import Agent  # noqa: PLC0415
        from hami_py.agent.settings import AgentSettings  # noqa: PLC0415

    settings = AgentSettings(
        node=name,
        library=library or config.read().library,
        paths=Paths(runtime_directory, state_directory, kubelet_directory, cdi_directories),
        pods=pod_settings,
        slots=slots,
        nvidia_ctk=nvidia_ctk,
        driver_root=driver_root,
        killed=killed,
        listen=at,
    )
    report_settings(pod_settings)
    if cleanup:
        run_service(Cleanup(server, settings))
    else:
        run_service(Agent(server, settings))
