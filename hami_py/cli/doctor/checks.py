"""The doctor's checks, in the order in which things are needed.

A check is a function that returns what it found or raises an error that says how to fix it. The
last ones do not look, they try: programs of ours run in a slice and take all they can get.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from hami_py import gpu, slices
from hami_py._native import HamiVariables, format_memory
from hami_py.cli.doctor import loading, program, proof
from hami_py.cli.doctor.elf import MACHINES
from hami_py.cli.doctor.trial import Found, last_line, probe, run
from hami_py.config import LD_PRELOAD, Settings
from hami_py.coordinator import LOG
from hami_py.errors import HamiError, NoDevice, UnsupportedPlatform
from hami_py.model import Card


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        name: what was checked.
        ok: it is well.
        detail: what was found.
        fix: what to do. Empty where it is well, unless something is known not to be held.
    """

    name: str
    ok: bool
    detail: str
    fix: str = ""


def checks(settings: Settings) -> Iterator[Check]:
    """Every check of this machine, each as soon as it is done."""
    well = True
    for name, check in (
        ("platform", _platform),
        ("C library", loading.c_library),
        ("driver", _driver),
        ("NVML", _nvml),
        ("cards", _cards),
        ("preload library", _library),
        ("loader", loading.surroundings),
        ("HAMi's variables", _variables),
        ("runtime directory", _runtime),
        ("coordinator", _coordinator),
    ):
        done = _try(name, partial(check, settings))
        well = well and done.ok
        yield done
    if not well:
        yield Check("limit", False, "not tried", "fix what failed above first")
        return
    shown = _shown(settings)
    for card in shown:
        yield _try(f"limit on card {card.index}", partial(proof.limit_holds, card, settings))
    try:
        limit, walks = proof.walk_roads(shown[0], settings)
    except HamiError as error:
        yield Check("roads", False, f"{error.what}: {error.why}", error.fix)
        return
    for walk in walks:
        yield _try(f"road {walk['road']}", partial(proof.judge_walk, walk, limit))


def checks_of_program(name: str, settings: Settings) -> Iterator[Check]:
    """Whether a limit would hold a program, up to the first reason why not."""
    try:
        for what, check in program.checks(name, settings):
            done = _try(what, check)
            yield done
            if not done.ok:
                return
    except HamiError as error:
        yield Check(error.what, False, error.why, error.fix)


def _try(name: str, check: Callable[[], Found]) -> Check:
    try:
        found = check()
    except HamiError as error:
        # The name stands before the detail already, and who found it out does not matter.
        detail = f"{error.what}: {error.why}"
        for said in ("probe: ", f"{name}: ", f"{name} "):
            detail = detail.removeprefix(said)
        return Check(name, False, detail, error.fix)
    return Check(name, True, found) if isinstance(found, str) else Check(name, True, *found)


def _platform(_settings: Settings) -> str:
    machine = os.uname().machine
    if machine not in MACHINES:
        fix = f"use a machine of {' or '.join(MACHINES)}"
        raise UnsupportedPlatform("processor", f"{machine} is not supported", fix)
    return machine


def _driver(settings: Settings) -> str:
    report = probe(settings.environment, "probe")
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
    ours = slices.cards(settings)
    usable = [card for card in slices.shown(settings) if card in ours]
    if not usable:
        fix = "name a card that `hami devices` lists in CUDA_VISIBLE_DEVICES, or unset it"
        raise NoDevice("cards", f"none of {len(gpu.cards())} can be used here", fix)
    return usable


def _library(settings: Settings) -> str:
    """Python itself, with the library preloaded, must start and have nothing to say."""
    library = slices.require_library(settings.library)
    environment = {**settings.environment, LD_PRELOAD: str(library)}
    done = run([sys.executable, "-I", "-S", "-c", ""], environment)
    if done.returncode or done.stderr:
        fix = "reinstall hami-py for this system; the library needs glibc 2.17 or newer"
        raise HamiError(f"preload library {library}", last_line(done), fix)
    return str(library)


def _variables(settings: Settings) -> str:
    """The preload library refuses CUDA to every program where it cannot understand one of them."""
    HamiVariables(settings.hami_limits)
    said = (f"{name}={value}" for name, value in sorted(settings.hami_limits.items()))
    return ", ".join(said) or "none is set"


def _runtime(settings: Settings) -> str:
    removed = slices.remove_stale(settings.runtime_directory)
    with slices.create(settings.runtime_directory, [], ["hami", "doctor"]):
        pass
    return f"{settings.runtime_directory}, {_count(removed, 'abandoned slice')} removed"


def _coordinator(settings: Settings) -> Found:
    """It comes with the first share and goes with the last slice, so none is well, too."""
    with slices.usable(settings.runtime_directory):
        found = slices.running(settings)
    if found is not None:
        return f"process {found.pid}, version {found.version or 'not known'}"
    last = slices.last_words(settings)
    if last is not None:
        fix = f"read {settings.runtime_directory / LOG}; without one shares hold less exactly"
        return f"none runs; the last one failed: {last}", fix
    return "none runs; the first slice with a share starts one"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
