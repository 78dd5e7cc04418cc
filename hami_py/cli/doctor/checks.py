"""The doctor's checks, in the order in which they depend on each other.

A check is a function that returns a description, or raises an error with a fix. The last ones are
tests: programs of ours run in a slice and allocate as much memory as they can.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from hami_py import gpu, slices
from hami_py._native import HamiVariables, format_memory
from hami_py.cli.doctor import loading, node, program, proof
from hami_py.cli.doctor.trial import Found, last_line, probe, run
from hami_py.config import LD_PRELOAD, Settings
from hami_py.coordinator import LOG
from hami_py.errors import HamiError, NoDevice, UnsupportedPlatform
from hami_py.model import Card, CardLimit
from hami_py.slices.elf import MACHINES
from hami_py.slices.machine import USERS, machine, required_machine


@dataclass(frozen=True)
class Check:
    """The result of a check.

    Attributes:
        fix: how to fix the problem. If the check passed: empty, or a note about a known case in
            which limits do not hold.
    """

    name: str
    ok: bool
    detail: str
    fix: str = ""


def checks(settings: Settings) -> Iterator[Check]:
    """Run every check of this machine; yields each result at once."""
    passed = True
    if machine(settings) is not None:
        done = _try("hami machine", partial(_machine, settings))
        yield done
        if not done.ok:
            return
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
        ("running programs", _programs),
    ):
        done = _try(name, partial(check, settings))
        passed = passed and done.ok
        yield done
    for done in checks_of_node(settings):
        passed = passed and done.ok
        yield done
    if not passed:
        yield Check("limit", False, "not tested", "fix the failed checks above first")
        return
    shown = _shown(settings)
    for card in shown:
        yield _try(f"limit on card {card.index}", partial(proof.limit_holds, card, settings))
    try:
        limit, results = proof.check_lookups(shown[0], settings)
    except HamiError as error:
        ok = isinstance(error, proof.NoRoom)
        yield Check("symbol lookups", ok, f"{error.what}: {error.why}", error.fix)
        return
    for result in results:
        yield _try(f"lookup {result['lookup']}", partial(proof.judge_lookup, result, limit))


def checks_of_node(settings: Settings) -> Iterator[Check]:
    """Check what would give programs of this node of Kubernetes cards without limits."""
    yield _try("device plugins", partial(node.device_plugins, node=settings.node))
    yield _try("container toolkit", node.container_toolkit)
    yield _try("MPS", node.mps_daemon)


def checks_of_program(command: Sequence[str], settings: Settings) -> Iterator[Check]:
    """Check whether a limit would hold for a command, up to the first failed check."""
    try:
        for what, check in program.checks(command, settings):
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
        # The output has the check's name already, and the name of the probe is of no interest.
        detail = f"{error.what}: {error.why}"
        for prefix in ("probe: ", f"{name}: ", f"{name} "):
            detail = detail.removeprefix(prefix)
        return Check(name, isinstance(error, proof.NoRoom), detail, error.fix)
    return Check(name, True, found) if isinstance(found, str) else Check(name, True, *found)


def _machine(settings: Settings) -> str:
    """Check that the machine's service runs, and that its policy grants this user a card."""
    service, text = required_machine(settings), ""
    listed = service.listed()
    # A user whose programs have used no card has no link yet.
    with suppress(OSError):
        text = str((service.runtime / USERS / str(os.geteuid())).readlink())
    found = next((each.cards for each in listed if str(each.directory) == text), ())
    if found:
        limits = (
            f"{CardLimit(card.uuid, card.memory_limit, card.share, card.mode, card.priority)}"
            f" of card {card.index}"
            for card in found
        )
        return f"it runs; your default slice has {'; '.join(limits)}"
    if text in ("", "unlimited"):
        return "it runs"
    raise HamiError("hami machine", text, "`hami machine check` shows the policy")


def _platform(_settings: Settings) -> str:
    machine = os.uname().machine
    if machine not in MACHINES:
        fix = f"use a machine with {' or '.join(MACHINES)}"
        raise UnsupportedPlatform("processor", f"{machine} is not supported", fix)
    return machine


def _driver(settings: Settings) -> str:
    report = probe(settings.environment, "probe")
    major, minor = report["version"] // 1000, report["version"] % 1000 // 10
    return f"CUDA {major}.{minor}, {_count(report['count'], 'card')} visible"


def _nvml(_settings: Settings) -> str:
    return f"driver {gpu.driver_version()}"


def _cards(settings: Settings) -> str:
    """The cards; what a context takes of them is measured here, once for this machine."""
    # A slice around this process would limit the process that measures.
    measures = settings.context_memory is None and not slices.own_slices(settings)
    found = slices.as_measured(_shown(settings), settings, measures=measures)
    reported = gpu.memory_free([card.uuid for card in found])
    return "; ".join(
        f"{card.index}: {card.name}, {format_memory(card.memory_total)}, {_contexts(card)}"
        + ("" if card.uuid in reported else ", NVML does not report the memory in use")
        for card in found
    )


def _contexts(card: Card) -> str:
    if card.driver_memory.context is None:
        return "contexts of unknown size are not charged"
    return f"{format_memory(card.driver_memory.context)} per context"


def _shown(settings: Settings) -> list[Card]:
    """The cards that a program started here can use."""
    ours = slices.cards(settings)
    usable = [card for card in slices.shown(settings) if card in ours]
    if not usable:
        fix = "set CUDA_VISIBLE_DEVICES to a card of `hami devices`, or unset it"
        raise NoDevice("cards", f"none of {len(gpu.cards())} can be used here", fix)
    return usable


def _library(settings: Settings) -> str:
    """Check that Python starts with the preloaded library, and writes no error."""
    library = slices.require_library(settings.library)
    environment = {**settings.environment, LD_PRELOAD: str(library)}
    done = run([sys.executable, "-I", "-S", "-c", ""], environment)
    if done.returncode or done.stderr:
        fix = "reinstall hami-py for this system; the library needs glibc 2.17 or newer"
        raise HamiError(f"preload library {library}", last_line(done), fix)
    return str(library)


def _variables(settings: Settings) -> str:
    """Check the variables: if one is invalid, the preload library refuses CUDA."""
    HamiVariables(settings.hami_limits)
    texts = (f"{name}={value}" for name, value in sorted(settings.hami_limits.items()))
    return ", ".join(texts) or "not set"


def _runtime(settings: Settings) -> str:
    removed = slices.remove_stale(settings.runtime_directory)
    with slices.create(settings.runtime_directory, [], ["hami", "doctor"], settings.library):
        pass
    return f"{settings.runtime_directory}, {_count(removed, 'abandoned slice')} removed"


def _coordinator(settings: Settings) -> Found:
    """The first slice with a share starts it, and it exits after the last: none is fine too."""
    if machine(settings) is not None:
        return "the service hami machine runs it"
    with slices.usable(settings.runtime_directory):
        found = slices.running(settings)
    if found is not None:
        return f"process {found.pid}, version {found.version or 'unknown'}"
    last = slices.last_error(settings)
    if last is not None:
        fix = (
            f"read {settings.runtime_directory / LOG}; shares are less exact without a coordinator"
        )
        return f"not running; the last one failed: {last}", fix
    return "not running; the first slice with a share starts it"


def _programs(settings: Settings) -> Found:
    """Look for programs in slices that use the GPU without the preload library."""
    found = [process for slice_ in slices.list_slices(settings) for process in slice_.processes]
    bypasses = [process for process in found if process.bypass is not None]
    if not bypasses:
        return f"{len(found)} in slices, none uses the GPU without limits"
    named = "; ".join(f"{process.pid}: {process.bypass}" for process in bypasses)
    fix = "check their programs with `hami doctor -- PROGRAM`, and start them anew in a slice"
    return f"not limited: process {named}", fix


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
