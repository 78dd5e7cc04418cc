"""``hami machine``: the service by which the users of a machine share its cards."""

from __future__ import annotations

import grp
import pwd
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click

from hami_py import config, gpu
from hami_py.cli.output import report
from hami_py.cli.service import run_service
from hami_py.errors import DriverError, InvalidValue, NoDevice, NoDriver, StateError, UnknownCard
from hami_py.machine.policy import POLICY, Grant, Policy, read_policy
from hami_py.machine.users import User, look_up
from hami_py.model import WHOLE, CardLimit
from hami_py.model.cards import find as find_card
from hami_py.model.request import UNLIMITED
from hami_py.node.paths import Paths
from hami_py.slices.machine import Machine, NoAnswer, required_machine
from hami_py.slices.machine import machine as found_machine

_policy = click.option(
    "--policy",
    type=click.Path(path_type=Path, dir_okay=False),
    default=POLICY,
    show_default=True,
    help="Who may use which cards, and how much of them.",
)


@click.group(invoke_without_command=True)
@_policy
@click.pass_context
def machine(ctx: click.Context, *, policy: Path) -> None:
    """Run the service of a machine whose users share its cards, until it gets SIGTERM or SIGINT.

    It runs as root, without Kubernetes. `hami machine install` writes its unit for systemd.
    """
    if ctx.invoked_subcommand is not None:
        return
    from hami_py.machine.service import MachineService  # noqa: PLC0415

    run_service(MachineService(config.read().library, Paths(), policy))


@machine.command()
@_policy
@click.argument("users", metavar="[USER]...", nargs=-1)
def check(policy: Path, users: tuple[str, ...]) -> None:
    """Check the policy, and show what its tables grant, or what these users get.

    The service reads the file when it has changed. It keeps the policy before while this check
    fails. Users, groups and cards that this machine does not have are named on standard error.
    """
    read = read_policy(policy)
    for what in _missing(read):
        report(f"{policy}: this machine has no {what}")
    if users:
        rows = [(name, read.grant(_user(name))) for name in users]
    else:
        tables = {"default": read.default}
        tables |= {f"group {name}": grant for name, grant in read.groups.items()}
        tables |= {f"user {name}": grant for name, grant in read.users.items()}
        rows = list(tables.items())
    click.echo(f"sum {read.sum}, bypass {read.bypass}, see {', '.join(read.see) or 'nobody'}")
    for name, grant in rows:
        click.echo(f"{name}: {_told(grant)}")


def _missing(policy: Policy) -> Iterator[str]:
    """The users, groups and cards of the policy that this machine lacks; cards if NVML answers."""
    users = {*policy.users, *(name for name in policy.see if name[:1] != "@")}
    groups = {*policy.groups, *(name[1:] for name in policy.see if name[:1] == "@")}
    for kind, names, find in (("user", users, pwd.getpwnam), ("group", groups, grp.getgrnam)):
        for name in sorted(names):
            try:
                find(name)
            except KeyError:
                if not name.isdecimal():
                    yield f"{kind} {name}"
    with suppress(NoDriver, NoDevice, DriverError):
        known = gpu.cards()
        grants = (policy.default, *policy.groups.values(), *policy.users.values())
        for name in sorted({name for grant in grants for name in grant.cards or ()}):
            try:
                find_card(known, name, "card")
            except UnknownCard as error:
                yield f"card {name}; {error.fix}"


def _user(name: str) -> User:
    try:
        return look_up(int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid)
    except KeyError:
        fix = "this machine has no such user; write a user's name or number"
        raise InvalidValue("USER", name, fix) from None


def _told(grant: Grant) -> str:
    if grant.cards is not None and not grant.cards:
        return f"no card ({grant.why})"
    limits, cards = grant.limits, "all" if grant.cards is None else ", ".join(grant.cards)
    memory = limits.memory if isinstance(limits.memory, int) else UNLIMITED
    size = str(CardLimit("", None if memory == UNLIMITED else memory))
    share = None if limits.share in (None, WHOLE) else f"{limits.share}%"
    each = ", ".join(filter(None, (size, share, limits.mode, limits.priority)))
    return f"cards {cards}; {each} on each card; {grant.slices} slices ({grant.why})"


@machine.command()
def install() -> None:
    """Install the service for systemd, and start it; a missing policy is written."""
    from hami_py.machine import installation  # noqa: PLC0415

    program = shutil.which(sys.argv[0]) or ""
    if Path(program).name != "hami":
        fix = "install hami-py, and run the installed `hami machine install`"
        raise StateError("hami machine install", f"{sys.argv[0]} is not `hami`", fix)
    installation.install(Path(program).resolve(), POLICY)
    click.echo(f"hami-machine.service runs; {POLICY} says who may use how much")


@machine.command()
def uninstall() -> None:
    """End the service and all slices, and remove what they have left on the machine.

    This includes the lines of `hami account`: copy /var/lib/hami/usage first to keep them. The
    policy stays, and /usr/lib/hami/libvgpu.so, which running programs may read again.
    """
    from hami_py.machine import installation  # noqa: PLC0415

    installation.uninstall()


@machine.command("preload")
@click.argument("switch", type=click.Choice(["on", "off"]))
def switch_preload(switch: str) -> None:
    """Limit all programs of the machine, also those that no `hami run` has started.

    A user's programs together have what the policy grants, less what the user's slices have. The
    loader puts the library into each program that starts from now on: /etc/ld.so.preload names it.
    """
    from hami_py.machine import preload  # noqa: PLC0415

    if switch == "off":
        preload.switch_off()
        return
    preload.switch_on(config.read().library, Paths.runtime)
    service = found_machine(config.read())
    if service is None:
        click.echo("no user is limited until the service runs: `hami machine install`")
        return
    try:
        service.ask("list", wait_s=0)
    except NoAnswer as error:
        click.echo(f"{error}; users whom it has served keep their limits, and others get no card")


@machine.command()
def status() -> None:
    """Show whether the service runs and all programs are limited, and the number of slices."""
    from hami_py.machine import preload  # noqa: PLC0415

    slices = required_machine(config.read()).listed(everyone=True)
    limited = "on: all programs" if preload.is_on() else "off: only programs of `hami run`"
    click.echo(f"service: runs\npreload {limited} are limited")
    click.echo(f"slices: {len(slices)}; `hami ps --all` lists those that you may see")


@machine.group()
def job() -> None:
    """The slices of jobs of Slurm, which its Prolog and Epilog start and end: deploy/slurm."""


@job.command()
@click.argument("job", type=int)
@click.option("--user", required=True, type=int, help="The UID of its user: $SLURM_JOB_UID.")
@click.option("--cards", required=True, help="Their numbers: $SLURM_JOB_GPUS.")
@click.option("--node", required=True, help="Slurm's name of this node: $SLURMD_NODENAME.")
def start(job: int, user: int, cards: str, node: str) -> None:
    """Start the slice of a job: n of N shards are n/N of the card. Waits 30 s for the service."""
    from hami_py.machine.slurm import parts_of  # noqa: PLC0415

    parts = parts_of(job, node, cards)
    machine = Machine(config.read().node_runtime)
    machine.ask("job", wait_s=30, job=job, uid=user, cards=parts)


@job.command()
@click.argument("job", type=int)
def end(job: int) -> None:
    """End the slice of a job, if it has one."""
    Machine(config.read().node_runtime).ask("job", job=job)
