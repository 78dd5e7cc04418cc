"""``hami jupyter``: kernels that start in a slice of their own.

A kernel spec is a command line that Jupyter runs for each notebook. Ours puts ``hami run`` in front
of the kernel: one slice per kernel, made when it starts and gone when it is shut down. Jupyter's
own library finds the place and writes there.

Interrupts go to the kernel as messages, so to it alone: a signal would go to its whole process
group, ``hami run`` included.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hami_py import config
from hami_py.cli.limits import limit_options
from hami_py.cli.say import say
from hami_py.errors import DriverError, HamiError, InvalidValue, NoDevice, NoDriver, StateError
from hami_py.model import LimitRequest, parse_options
from hami_py.slices import plan_new

if TYPE_CHECKING:
    from jupyter_client.kernelspec import KernelSpecManager

_OURS = "hami"
"""Key in the kernel spec's metadata: the options that it was made with, so that it is ours."""

_NO_LIMITS: Mapping[str, list[str]] = {"gpumem": [], "gpucores": [], "mode": [], "priority": []}
"""What the metadata of an older kernel may leave out."""

_REQUIREMENT = "ipykernel>=6,!=7.0.*,!=7.1.*,!=7.2.*,!=7.3.*"
"""As in pyproject.toml, which says why these are left out."""

_CAN_START = "from ipykernel.kernelbase import Kernel; Kernel.interrupt_request"
_DEADLINE = 60
"""Seconds for importing ipykernel, which takes one."""


@click.group(no_args_is_help=False)
def jupyter() -> None:
    """Jupyter kernels that run in a slice."""


@jupyter.command(short_help="Add a kernel whose GPU use is limited.")
@limit_options
@click.option(
    "--device",
    "devices",
    metavar="UUID|INDEX",
    multiple=True,
    help="A card that the kernel shall see (repeatable; default: all).",
)
@click.option("--name", help="The kernel spec's name; default: hami-SIZE-PERCENT.")
@click.option("--display-name", metavar="TEXT", help="What Jupyter's menus show.")
@click.option(
    "--python",
    metavar="PATH",
    default=sys.executable,
    show_default="this one",
    help="The Python of the kernel; it needs ipykernel.",
)
def install(
    *,
    gpumem: tuple[str, ...],
    gpucores: tuple[str, ...],
    mode: str | None,
    priority: str | None,
    devices: tuple[str, ...],
    name: str | None,
    display_name: str | None,
    python: str,
) -> None:
    """Add a kernel whose GPU memory or time is limited to Jupyter's menus, for this user.

    The limits are each kernel's own, as for `hami run`. A kernel of ours that has the name already
    is replaced, another is left alone.
    """
    asked = parse_options(gpumem, gpucores, mode, priority)
    if asked.memory is None and asked.share is None:
        raise click.UsageError("Give at least one of --gpumem and --gpucores.")
    manager = _manager()
    notes = _notes(asked, devices)
    python = _python(python)
    limits = {
        "gpumem": gpumem,
        "gpucores": gpucores,
        "mode": [mode] if mode else [],
        "priority": [priority] if priority else [],
    }
    name = name or re.sub(r"[^a-z0-9.]+", "-", "-".join([_OURS, *gpumem, *gpucores]).lower()).strip(
        "-"
    )
    found = _specs(manager).get(name.lower())
    if found is not None and _ours(found) is None:
        fix = "choose another one with --name"
        raise InvalidValue("--name", name, f"a kernel that is not of hami has it; {fix}")
    spec = {
        "argv": _command(limits, devices, python),
        "display_name": display_name or f"Python 3 ({_told(limits)})",
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {_OURS: {**limits, "devices": devices, "python": python}},
    }
    with _usable("kernel spec"), tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.json").write_text(json.dumps(spec, indent=1))
        try:
            where = manager.install_kernel_spec(folder, name, user=True)
        except ValueError as error:
            fix = "use ASCII letters, digits, dots, hyphens and underscores"
            raise InvalidValue("--name", name, fix) from error
    for note in notes:
        say(note)
    click.echo(f"{name} in {where}")


@jupyter.command("list")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def list_(as_json: bool) -> None:
    """List the kernels that were added here."""
    rows = [
        {"name": name, **_NO_LIMITS, **ours, "directory": str(spec["resource_dir"])}
        for name, spec in sorted(_specs(_manager()).items())
        if (ours := _ours(spec)) is not None
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        devices = f" on {', '.join(row['devices'])}" if row["devices"] else ""
        click.echo(f"{row['name']}: {_told(row)}{devices}, {row['python']}")


@jupyter.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove a kernel that was added here; kernels that run go on."""
    manager = _manager()
    found = _specs(manager).get(name.lower())
    if found is None or _ours(found) is None:
        fix = "`hami jupyter list` names those of hami; `jupyter kernelspec remove` takes others"
        raise InvalidValue("NAME", name, fix)
    with _usable("kernel spec"):
        click.echo(f"removed {manager.remove_kernel_spec(name.lower())}")


def _notes(asked: LimitRequest, devices: Sequence[str]) -> tuple[str, ...]:
    """What `hami run` would say to these limits here.

    Raises:
        UnknownCard, InvalidValue: it would refuse them.
    """
    try:
        return plan_new(config.read(), asked, devices).notes
    except (NoDriver, NoDevice, DriverError) as error:
        # Kernels may be added where no card is: to an image, or before the driver.
        return (f"the cards are looked at only when a kernel starts: {error}",)


def _command(limits: Mapping[str, Sequence[str]], devices: Sequence[str], python: str) -> list[str]:
    """What Jupyter runs; it puts a path for ``{connection_file}``."""
    given = {**limits, "device": devices}
    options = [part for name, values in given.items() for v in values for part in (f"--{name}", v)]
    kernel = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    return [*_hami(), "run", *options, "--", *kernel]


def _told(limits: Mapping[str, Sequence[str]]) -> str:
    """The limits as a person reads them in a menu or a list."""
    words = {"gpumem": "GPU memory", "gpucores": "GPU time", "mode": "", "priority": "priority"}
    said = {
        word: ", ".join(f"{v}%" if name == "gpucores" and v[-1:].isdecimal() else v for v in values)
        for name, word in words.items()
        if (values := limits[name])
    }
    return ", ".join(f"{word} {text}".strip() for word, text in said.items())


def _hami() -> list[str]:
    """This command, as it was called.

    Not by ``-m`` where that can be helped: then the notebook's own folder would come first among
    those that modules are taken from, and a file named like one of ours would be taken for it.
    """
    called = Path(sys.argv[0]).absolute()
    if called.name == "__main__.py":
        return [sys.executable, "-m", "hami_py"]
    return [sys.executable, str(called)]


def _manager() -> "KernelSpecManager":
    try:
        from jupyter_client.kernelspec import KernelSpecManager  # noqa: PLC0415
    except ImportError as error:
        fix = f"install it: {sys.executable} -m pip install 'hami-py[jupyter]'"
        raise HamiError("jupyter_client", "it is not installed beside hami", fix) from error
    return KernelSpecManager()


def _python(named: str) -> str:
    """The path of the kernel's Python, which may be another one than ours with other packages.

    Raises:
        InvalidValue: it is not there.
        HamiError: it cannot start a kernel.
    """
    # Not resolved: a virtual environment's Python is known by its path.
    python = str(Path(shutil.which(named) or named).absolute())
    fix = f"install it: {python} -m pip install '{_REQUIREMENT}'"
    try:
        done = subprocess.run(
            [python, "-c", _CAN_START],
            # Not where a folder of the user's could be taken for a package.
            cwd="/",
            capture_output=True,
            timeout=_DEADLINE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidValue("--python", named, "name a Python that can be run") from error
    if done.returncode:
        raise HamiError("ipykernel", f"{python} has none that can be used here", fix)
    return python


def _specs(manager: "KernelSpecManager") -> dict[str, dict[str, Any]]:
    """Every kernel spec of this user, by name."""
    return manager.get_all_specs()


def _ours(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """What it was made with, where it is ours."""
    ours = found["spec"].get("metadata", {}).get(_OURS)
    return ours if isinstance(ours, dict) else None


@contextmanager
def _usable(what: str) -> Iterator[None]:
    """What the kernel of the system says against a file, as our error."""
    try:
        yield
    except OSError as error:
        fix = "make its folder writable, or set JUPYTER_DATA_DIR to another"
        raise StateError(f"{what} {error.filename}", error.strerror or str(error), fix) from error
