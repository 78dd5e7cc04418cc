"""How pods are judged: the cluster's settings file, and options for some of its fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hami_py.cli.output import report
from hami_py.cli.service import kubernetes_extra
from hami_py.errors import InvalidValue
from hami_py.model import check_object_name

if TYPE_CHECKING:
    from hami_py.model.pods import PodSettings

settings_option = click.option(
    "--settings",
    "settings_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The cluster's settings file. Default: HAMi's names and defaults.",
)


def judging_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of commands that judge pods as the webhook does."""
    schedulers = click.option(
        "--scheduler",
        "schedulers",
        multiple=True,
        metavar="NAME",
        help="A scheduler that may place pods with a card; may be repeated. The first one is set "
        "on pods that name none. Default: the settings file's, or else any scheduler.",
    )
    preloads = click.option(
        "--allow-preload",
        "preloads",
        multiple=True,
        metavar="PATH",
        help="A library that such pods may name in LD_PRELOAD; may be repeated. Default: the "
        "settings file's.",
    )
    return settings_option(schedulers(preloads(command)))


def read_settings(
    file: Path | None, schedulers: tuple[str, ...] = (), preloads: tuple[str, ...] = ()
) -> PodSettings:
    """The settings of the file and the options together.

    An option cannot override the file: then this program would judge differently from the others.

    Raises:
        InvalidValue: a value is invalid, or the file and an option both set a field.
        StateError: the file cannot be read, or PyYAML is not installed.
    """
    from hami_py.model.pods import PodSettings  # noqa: PLC0415

    settings = PodSettings()
    if file is not None:
        with kubernetes_extra():
            from hami_py.kube.settings import read_settings as read  # noqa: PLC0415

            settings = read(file)
    for scheduler in schedulers:
        check_object_name("--scheduler", scheduler)
    for option, field, listed, values in (
        ("--scheduler", "schedulers", settings.schedulers, schedulers),
        ("--allow-preload", "allowed_preloads", settings.allowed_preloads, preloads),
    ):
        if listed and values:
            fix = f"{file} sets {field}: remove the option, and add the value to the file"
            raise InvalidValue(option, values[0], fix)
    return replace(
        settings,
        schedulers=schedulers or settings.schedulers,
        allowed_preloads=preloads or settings.allowed_preloads,
    )


def report_settings(settings: PodSettings) -> None:
    """Writes one line with all settings that are not defaults; equal lines judge alike."""
    changed = []
    defaults = type(settings)()
    for field in fields(settings):
        value = getattr(settings, field.name)
        if value != getattr(defaults, field.name):
            names = [profile.name for profile in value] if field.name == "profiles" else value
            if isinstance(names, Mapping):
                names = [f"{name}={value}" for name, value in names.items()]
            listed = ", ".join(names) if isinstance(names, (list, tuple)) else str(names)
            changed.append(f"{field.name}: {listed or 'none'}")
    report(f"settings: {'; '.join(changed) or 'the defaults'}")
