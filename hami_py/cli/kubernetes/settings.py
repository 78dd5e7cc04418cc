"""How pods are judged: the cluster's settings file, and the options that say parts of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hami_py.cli.kubernetes.common import kubernetes_extra
from hami_py.cli.output import report
from hami_py.errors import InvalidValue
from hami_py.model import check_object_name

if TYPE_CHECKING:
    from hami_py.model.pods import PodSettings

__all__ = ["judging_options", "read_settings", "say_settings", "settings_option"]

settings_option = click.option(
    "--settings",
    "settings_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The cluster's settings file; HAMi's names and defaults if left out.",
)


def judging_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of whoever judges pods as the webhook does."""
    schedulers = click.option(
        "--scheduler",
        "schedulers",
        multiple=True,
        metavar="NAME",
        help="Who may place pods that ask for a card; the first is given to those that name none. "
        "Left out: as the settings file says, or else whom they name.",
    )
    preloads = click.option(
        "--allow-preload",
        "preloads",
        multiple=True,
        metavar="PATH",
        help="A library that such pods may name in LD_PRELOAD. Left out: as that file says.",
    )
    return settings_option(schedulers(preloads(command)))


def read_settings(
    file: Path | None, schedulers: tuple[str, ...] = (), preloads: tuple[str, ...] = ()
) -> PodSettings:
    """What the file and the options say together.

    No option overrules the file: it would do so in one program, and the others would judge
    otherwise.

    Raises:
        InvalidValue: something in them is wrong, or both say the same thing.
        StateError: the file cannot be read, or there is nothing to read it with.
    """
    from hami_py.model.pods import PodSettings  # noqa: PLC0415

    settings = PodSettings()
    if file is not None:
        with kubernetes_extra():
            from hami_py.kube.settings import read_settings as read  # noqa: PLC0415

            settings = read(file)
    for scheduler in schedulers:
        check_object_name("--scheduler", scheduler)
    for option, field, said, values in (
        ("--scheduler", "schedulers", settings.schedulers, schedulers),
        ("--allow-preload", "allowed_preloads", settings.allowed_preloads, preloads),
    ):
        if said and values:
            fix = f"{file} has {field}: leave the option out, and write it there"
            raise InvalidValue(option, values[0], fix)
    return replace(
        settings,
        schedulers=schedulers or settings.schedulers,
        allowed_preloads=preloads or settings.allowed_preloads,
    )


def say_settings(settings: PodSettings) -> None:
    """How pods are judged, in one line: equal ones judge alike."""
    said = []
    for field in fields(settings):
        value = getattr(settings, field.name)
        if value != field.default:
            names = [profile.name for profile in value] if field.name == "profiles" else value
            listed = ", ".join(names) if isinstance(names, (list, tuple)) else str(names)
            said.append(f"{field.name}: {listed or 'none'}")
    report(f"settings: {'; '.join(said) or 'the defaults'}")
