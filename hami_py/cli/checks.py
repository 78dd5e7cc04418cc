"""The doctor's checks, in the order in which things are needed.

A check is a function that returns what it found or raises an error that says how to mend it. The
last ones do not look, they try: a program of ours runs in a slice and takes all it can get.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from hami_py import gpu
from hami_py._native import format_memory
from hami_py.config import LD_PRELOAD, Settings
from hami_py.errors import HamiError, NoDevice, UnsupportedPlatform
from hami_py.model import Card, visible
from hami_py.slices import (
    cards,
    create,
    limits,
    prepared,
    remove_stale,
    require_glibc,
    require_library,
)

ARCHITECTURES = ("x86_64", "aarch64")
PROBE_DEADLINE = 120
"""Seconds for one probe. The first context on a machine with many cards can take tens of them."""

PAGE = 2 << 20
"""Bytes: the driver's page. The probe's limit is a multiple, so that rounding takes none of it."""

ENOUGH = 0.99
"""Part of the limit that must be had."""

OUR_LINE = "hami: "
"""How the preload library begins the one line that says why it refuses CUDA."""


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        name: what was checked.
        ok: it is well.
        detail: what was found.
        mend: what to do; empty where it is well.
    """

    name: str
    ok: bool
    detail: str
    mend: str = ""


def checks(settings: Settings) -> Iterator[Check]:
    """Every check, each as soon as it is done."""
    well = True
    for name, check in (
        ("platform", _platform),
        ("driver", _driver),
        ("NVML", _nvml),
        ("cards", _cards),
        ("preload library", _library),
        ("runtime directory", _runtime),
    ):
        done = _try(name, check, settings)
        well = well and done.ok
        yield done
    if not well:
        yield Check("limit", False, "not tried", "mend what failed above first")
        return
    for card in _shown(settings):
        yield _try(f"limit on card {card.index}", partial(_limit, card), settings)


def _try(name: str, check: Callable[[Settings], str], settings: Settings) -> Check:
    try:
        return Check(name, True, check(settings))
    except HamiError as error:
        # The name stands before the detail already.
        detail = f"{error.what}: {error.why}"
        for said in (f"{name}: ", f"{name} "):
            detail = detail.removeprefix(said)
        return Check(name, False, detail, error.mend)


def _platform(_settings: Settings) -> str:
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        mend = f"use a machine of {' or '.join(ARCHITECTURES)}"
        raise UnsupportedPlatform("processor", f"{machine} is not supported", mend)
    return f"{machine}, glibc {require_glibc()}"


def _driver(settings: Settings) -> str:
    report = _probe(settings.environment)
    major, minor = report["version"] // 1000, report["version"] % 1000 // 10
    return f"CUDA {major}.{minor}, {_count(report['count'], 'card')} visible"


def _nvml(_settings: Settings) -> str:
    return f"driver {gpu.driver_version()}"


def _cards(settings: Settings) -> str:
    return "; ".join(
        f"{card.index}: {card.name}, {format_memory(card.memory_total)}"
        for card in _shown(settings)
    )


def _shown(settings: Settings) -> list[Card]:
    """The cards that a program started here could use."""
    ours = cards(settings)
    everything = gpu.cards()
    shown = visible(everything, settings.visible_devices, settings.device_order)
    usable = [card for card in shown if card in ours]
    if not usable:
        mend = "name a card that `hami devices` lists in CUDA_VISIBLE_DEVICES, or unset it"
        raise NoDevice("cards", f"none of {len(everything)} can be used here", mend)
    return usable


def _library(settings: Settings) -> str:
    """Python itself, with the library preloaded, must start and have nothing to say."""
    library = require_library(settings.library)
    environment = {**settings.environment, LD_PRELOAD: str(library)}
    done = _run([sys.executable, "-I", "-S", "-c", ""], environment)
    if done.returncode or done.stderr:
        mend = "reinstall hami-py for this system; the library needs glibc 2.17 or newer"
        raise HamiError(f"preload library {library}", _last_line(done), mend)
    return str(library)


def _runtime(settings: Settings) -> str:
    removed = remove_stale(settings.runtime_directory)
    with create(settings.runtime_directory, [], ["hami", "doctor"]):
        pass
    return f"{settings.runtime_directory}, {_count(removed, 'abandoned slice')} removed"


def _limit(card: Card, settings: Settings) -> str:
    """A quarter of the card, or half of what others leave of it, must be had and no more."""
    free = gpu.memory_free([card.uuid]).get(card.uuid, 0)
    limit = min(card.memory_total // 4, free // 2) // PAGE * PAGE
    if not limit:
        raise _too_little(card, free, settings)
    # HAMi's variables would lower the limit further, and the probe is about ours.
    base = {k: v for k, v in settings.environment.items() if k not in settings.hami_limits}
    memory, chosen = {card.uuid: limit}, [card.uuid]
    with prepared(settings, ["hami", "doctor"], memory, chosen, base) as ready:
        report = _probe(ready.environment, "allocate")
    return judge(report, limit)


def _too_little(card: Card, free: int, settings: Settings) -> HamiError:
    """Too little can be had for a proof: for a limit that holds here already, or for others."""
    held = next((row for row in limits(settings).cards if row.uuid == card.uuid), None)
    if held is None or held.memory is None:
        mend = "end some programs (`nvidia-smi` lists them) and try again"
        return HamiError("probe", f"only {free} bytes are free on {card.uuid}", mend)
    why = f"only {free} bytes are free of the {held.memory} that may be used here on {card.uuid}"
    return HamiError("probe", why, "raise the limit, or end programs that it holds for")


def judge(report: Mapping[str, Any], limit: int) -> str:
    """What the probe's report says of the limit.

    Raises:
        HamiError: it does not hold, or not all of it can be had.
    """
    what, mend = "probe", "report this, with the output of `hami doctor --json`"
    got, free = report["allocated"], report["free"]
    if report["total"] != limit:
        mend = "check that nothing removes LD_PRELOAD or HAMI_SLICE from the environment"
        raise HamiError(what, f"a program sees {report['total']} bytes, not {limit}", mend)
    if got > limit:
        raise HamiError(what, f"{got} bytes were had under a limit of {limit}", mend)
    stopped_by = report["stopped_by"]
    if stopped_by != "CUDA_ERROR_OUT_OF_MEMORY":
        raise HamiError(what, f"it was stopped by {stopped_by or 'nothing'}", mend)
    found = f"{format_memory(limit)}: {got / limit:.1%} could be had, then out of memory"
    if got >= ENOUGH * limit:
        return found
    if got >= ENOUGH * free:
        return f"{found}; the driver itself uses {limit - free} bytes of it"
    raise HamiError(what, f"only {got} of {limit} bytes could be had, {free} were free", mend)


def _probe(environment: Mapping[str, str], *arguments: str) -> dict[str, Any]:
    done = _run([sys.executable, "-m", "hami_py.gpu.probe", *arguments], environment)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        mend = "run `python -m hami_py.gpu.probe` to see why"
        raise HamiError("probe", _last_line(done), mend) from error
    if report["failed"]:
        said = done.stderr.splitlines()
        refusals = [line for line in said if line.startswith(OUR_LINE)]
        if refusals:
            why = f"the slice refuses CUDA: {refusals[-1].removeprefix(OUR_LINE)}"
            raise HamiError("probe", why, "mend what the preload library says there")
        raise HamiError("probe", "; ".join([report["failed"], *said]), report["mend"])
    return report


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _run(command: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_DEADLINE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        mend = "look at `nvidia-smi` and `dmesg`: the driver may hang"
        raise HamiError("probe", f"no answer within {PROBE_DEADLINE} s", mend) from error


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"
