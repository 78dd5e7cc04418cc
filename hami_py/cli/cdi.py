"""``hami cdi``: the kept slices of a machine's users, as devices of containers."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from hami_py import config
from hami_py.cli.output import report
from hami_py.errors import UnknownSlice
from hami_py.machine.containers import Device, container_binds
from hami_py.model import legible
from hami_py.slices.machine import required_machine


@click.command()
@click.option(
    "--docker",
    metavar="NAME|ID|DEVICE",
    help="Print the options of `docker run` for one slice instead, for Docker before 25.",
)
def cdi(docker: str | None) -> None:
    """List your kept slices as a container runtime has them after --device.

    Needs the service `hami machine`. `hami run --keep` makes slices that are kept. The exit code is
    1 if containers cannot use one of them; the reason is on standard error.
    """
    service = required_machine(config.read())
    devices = [Device(**each) for each in service.ask("devices")["devices"]]
    if docker is not None:
        device = _chosen(devices, docker)
        click.echo(shlex.join(_options(device, service.slices / device.slot)))
        return
    for device in devices:
        if device.problem is None:
            click.echo(device.name)
        else:
            report(f"{device.name}: {device.problem}")
    if any(device.problem for device in devices):
        sys.exit(1)


def _chosen(devices: list[Device], name: str) -> Device:
    found = [each for each in devices if name and name in (each.name, each.slice)]
    found = found or [each for each in devices if name and each.slot.startswith(name)]
    if len(found) != 1:
        why = "several slices have this name" if found else "no kept slice has this name or id"
        fix = "choose from the devices that `hami cdi` lists"
        raise UnknownSlice(f"slice {legible(name)}", why, fix)
    return found[0]


def _options(device: Device, slot: Path) -> Iterator[str]:
    """The options of a Docker without CDI.

    The driver is left to Docker's own --gpus. Its hook makes the links of the driver's libraries in
    the container, which options cannot do.
    """
    yield "--gpus"
    # Docker reads a list with commas, in which quotes keep several cards together.
    yield f'"device={",".join(device.cards)}"' if device.cards[1:] else f"device={device.cards[0]}"
    for bind in container_binds(slot, Path(device.library)):
        yield "-v"
        yield f"{bind.source}:{bind.target}{':ro' if bind.read_only else ''}"
