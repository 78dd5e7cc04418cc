"""``hami jupyter``: Jupyter kernels that each run in a slice of their own.

A kernel spec contains a command line that Jupyter runs for each notebook. Ours starts the kernel
with ``hami run``: one slice per kernel, created when it starts and removed when it is shut down.
Jupyter's own library finds the directory of kernel specs and writes there.

Interrupts are messages to the kernel and not signals, because a signal would go to the whole
process group, including ``hami run``.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hami_py import config
from hami_py.cli.options import limit_options
from hami_py.cli.output import report
from hami_py.errors import DriverError, HamiError, InvalidValue, NoDevice, NoDriver, state_errors
from hami_py.model import LimitRequest, parse_options
from hami_py.slices import plan_new

if TYPE_CHECKING:
    from jupyter_client.kernelspec import KernelSpecManager

_OURS = "hami"
"""Key in a kernel spec's metadata; it contains the options, and marks the spec as ours."""

_NO_LIMITS: Mapping[str, list[str]] = {"gpumem": [], "gpucores": [], "mode": [], "priority": []}
"""Options that may be missing in the metadata of an older kernel."""

_REQUIREMENT = "ipykernel>=6,!=7.0.*,!=7.1.*,!=7.2.*,!=7.3.*"
"""The same as in pyproject.toml, which explains the excluded versions."""

_CAN_START = "from ipykernel.kernelbase import Kernel; Kernel.interrupt_request"
_DEADLINE = 60
"""Seconds for importing ipykernel; it usually takes one."""

_FILES = "kernel spec", "make its directory writable, or set JUPYTER_DATA_DIR to another directory"


@click.group(no_args_is_help=False)
def jupyter() -> None:
    """Add, list and remove Jupyter kernels with limits."""


@jupyter.command(short_help="Add a kernel with limits.")
@limit_options
@click.option(
    "--device",
    "devices",
    metavar="UUID|INDEX",
    multiple=True,
    help="A card that the kernel sees; default: all. Can be repeated.",
)
@click.option("--name", help="The kernel spec's name; default: hami-SIZE-PERCENT.")
@click.option("--display-name", metavar="TEXT", help="The name in Jupyter's menus.")
@click.option(
    "--python",
    metavar="PATH",
    default=sys.executable,
    show_default="this one",
    help="The kernel's Python, which needs ipykernel.",
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
    """Add a kernel with limited GPU memory or time to Jupyter's menus, for this user.

    Each running kernel has these limits for itself, as with `hami run`. An existing kernel of hami
    with this name is replaced; a kernel of another program is not.
    """
    request = parse_options(gpumem, gpucores, mode, priority)
    if request.memory is None and request.share is None:
        raise click.UsageError("Give at least one of --gpumem and --gpucores.")
    manager = _manager()
    notes = _notes(request, devices)
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
    found = manager.get_all_specs().get(name.lower())
    if found is not None and _ours(found) is None:
        fix = "a kernel of another program has this name: choose another with --name"
        raise InvalidValue("--name", name, fix)
    spec = {
        "argv": _command(limits, devices, python),
        "display_name": display_name or f"Python 3 ({_limits_text(limits)})",
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {_OURS: {**limits, "devices": devices, "python": python}},
    }
    with state_errors(*_FILES), tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.json").write_text(json.dumps(spec, indent=1))
        try:
            where = manager.install_kernel_spec(folder, name, user=True)
        except ValueError as error:
            fix = "use ASCII letters, digits, dots, hyphens and underscores"
            raise InvalidValue("--name", name, fix) from error
    for note in notes:
        report(note)
    click.echo(f"{name} in {where}")


@jupyter.command("list", short_help="List the kernels of hami.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """List the kernels that `hami jupyter install` added."""
    rows = [
        {"name": name, **_NO_LIMITS, **ours, "directory": str(spec["resource_dir"])}
        for name, spec in sorted(_manager().get_all_specs().items())
        if (ours := _ours(spec)) is not None
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        devices = f" on {', '.join(row['devices'])}" if row["devices"] else ""
        click.echo(f"{row['name']}: {_limits_text(row)}{devices}, {row['python']}")


@jupyter.command(short_help="Remove a kernel of hami.")
@click.argument("name")
def remove(name: str) -> None:
    """Remove a kernel that `hami jupyter install` added. Running kernels continue."""
    manager = _manager()
    found = manager.get_all_specs().get(name.lower())
    if found is None or _ours(found) is None:
        fix = "`hami jupyter list` lists hami's kernels; `jupyter kernelspec remove` removes others"
        raise InvalidValue("NAME", name, fix)
    with state_errors(*_FILES):
        click.echo(f"removed {manager.remove_kernel_spec(name.lower())}")


def _notes(request: LimitRequest, devices: Sequence[str]) -> tuple[str, ...]:
    """The messages of `hami run` about these limits.

    Raises:
        UnknownCard, InvalidValue: `hami run` would refuse the limits.
    """
    try:
        return plan_new(config.read(), request, devices).notes
    except (NoDriver, NoDevice, DriverError) as error:
        # Kernels may be added without a card: to an image, or before the driver is installed.
        return (f"the cards will be checked when a kernel starts: {error}",)


def _command(limits: Mapping[str, Sequence[str]], devices: Sequence[str], python: str) -> list[str]:
    """The command for Jupyter, which replaces ``{connection_file}`` by a path."""
    values_of = {**limits, "device": devices}
    options = [
        part for name, values in values_of.items() for v in values for part in (f"--{name}", v)
    ]
    kernel = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    return [*_hami(), "run", *options, "--", *kernel]


def _limits_text(limits: Mapping[str, Sequence[str]]) -> str:
    """The limits as text for menus and lists."""
    words = {"gpumem": "GPU memory", "gpucores": "GPU time", "mode": "", "priority": "priority"}
    texts = {
        word: ", ".join(f"{v}%" if name == "gpucores" and v[-1:].isdecimal() else v for v in values)
        for name, word in words.items()
        if (values := limits[name])
    }
    return ", ".join(f"{word} {text}".strip() for word, text in texts.items())


def _hami() -> list[str]:
    """The command line of this ``hami``.

    If possible without ``-m``: with it, Python would search the notebook's folder for modules
    first, and import a file there that has the name of one of ours.
    """
    called = Path(sys.argv[0]).absolute()
    if called.name == "__main__.py":
        return [sys.executable, "-m", "hami_py"]
    return [sys.executable, str(called)]


def _manager() -> "KernelSpecManager":
    try:
        from jupyter_client.kernelspec import KernelSpecManager  # noqa: PLC0415
    except ImportError as error:
        wheel = '"$(ls dist/hami_py-*.whl)[jupyter]"'
        fix = f"install the wheel with its extra: {sys.executable} -m pip install {wheel}"
        raise HamiError(
            "jupyter_client", "it is not installed for the Python of hami", fix
        ) from error
    return KernelSpecManager()


def _python(named: str) -> str:
    """The path of the kernel's Python, which may differ from ours and have other packages.

    Raises:
        InvalidValue: it does not exist.
        HamiError: it cannot start a kernel.
    """
    # Symbolic links are kept: a virtual environment is recognised by its Python's path.
    python = str(Path(shutil.which(named) or named).absolute())
    fix = f"install it: {python} -m pip install '{_REQUIREMENT}'"
    try:
        done = subprocess.run(
            [python, "-c", _CAN_START],
            # Not in a directory of the user's, which could contain a file named ipykernel.py.
            cwd="/",
            capture_output=True,
            timeout=_DEADLINE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidValue("--python", named, "name a Python that can be executed") from error
    if done.returncode:
        raise HamiError("ipykernel", f"{python} has no usable version of it", fix)
    return python


def _ours(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options of a kernel spec of ours; None for other specs."""
    ours = found["spec"].get("metadata", {}).get(_OURS)
    return ours if isinstance(ours, dict) else None
