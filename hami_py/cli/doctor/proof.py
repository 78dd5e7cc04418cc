"""Testing that a limit holds: programs of ours try to exceed it in a slice.

The programs are ``hami_py.gpu.probe`` and ``hami_py.gpu.lookups``; this module runs them in a slice
and judges their reports.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from hami_py import gpu, slices
from hami_py._native import format_memory
from hami_py.cli.doctor.trial import Found, probe
from hami_py.cli.values import approximate
from hami_py.config import Settings
from hami_py.errors import HamiError
from hami_py.gpu.driver import PAGE
from hami_py.gpu.lookups import DEEPBIND, NVML
from hami_py.model import Card, LimitRequest
from hami_py.slices.machine import machine

ENOUGH = 0.99
"""The part of the limit that must be available, but for one request that did not fit any more."""

ROOM = 64 << 20
"""Bytes that a program shall be able to allocate beside its context."""

OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
REPORT = "report this, with the output of `hami doctor --json`"


class NoRoom(HamiError):
    """A user of a shared machine has too little left for a test: end a slice."""


def limit_holds(card: Card, settings: Settings) -> str:
    """Test that a program can allocate all of a limit on this card, and no more."""
    with _slice(card, settings) as (limit, environment):
        return judge(probe(environment, "probe", "allocate"), limit, _least(card))


def check_lookups(card: Card, settings: Settings) -> tuple[int, list[dict[str, Any]]]:
    """Set a limit on this card and test it through every symbol lookup; the limit and reports."""
    with _slice(card, settings) as (limit, environment):
        return limit, probe(environment, "lookups", str(limit), card.uuid)


@contextmanager
def _slice(card: Card, settings: Settings) -> Iterator[tuple[int, dict[str, str]]]:
    """A slice with a quarter of the card, or half of its free memory; its limit and environment.

    The driver itself would allocate more than the limit, so a refusal is ours.
    """
    # If NVML does not report what is in use, the program finds out.
    free = gpu.memory_free([card.uuid]).get(card.uuid, card.memory_total)
    needed = -(-(card.driver_memory.context or 0) // PAGE) * PAGE + ROOM
    limit = min(max(card.memory_total // 4, needed), free // 2) // PAGE * PAGE
    if limit < needed:
        raise _too_little(card, free, needed, settings)
    # HAMi's variables would lower the limit further.
    base = {k: v for k, v in settings.environment.items() if k not in settings.hami_limits}
    request = LimitRequest({card.uuid: limit})
    wanted = slices.SliceRequest(["hami", "doctor"], request, [card.uuid])
    with closing(slices.open_new(settings, wanted)) as opened:
        yield limit, opened.environment(base)


def _least(card: Card) -> int:
    """The bytes of the smallest request that takes memory of its own."""
    return max(PAGE, card.driver_memory.granule or 0)


def _too_little(card: Card, free: int, needed: int, settings: Settings) -> HamiError:
    """The error for too little free memory: because of a limit here, or of other programs."""
    needs = f"a test needs {approximate(2 * needed)}, twice what a program with a context needs"
    effective = next((row for row in slices.limits(settings).cards if row.uuid == card.uuid), None)
    if effective is None and machine(settings) is not None:
        fix = "end some of your slices (`hami ps`) or programs (`hami devices`), and retry"
        return NoRoom("probe", f"not tested: {approximate(free)} are left for you; {needs}", fix)
    if effective is None or effective.memory is None:
        fix = "end some programs (`nvidia-smi` lists them) and retry"
        return HamiError("probe", f"only {approximate(free)} are free; {needs}", fix)
    size = format_memory(effective.memory)
    why = f"this slice is too small to test: {approximate(free)} of {size} are free; {needs}"
    return HamiError("probe", why, "run `hami doctor` outside of it, or raise its limit")


def judge(report: Mapping[str, Any], limit: int, least: int = PAGE) -> str:
    """Judge the probe's report; the limit and ``least``, the smallest request, are in bytes.

    Raises:
        HamiError: the limit does not hold, or not all of it is available.
    """
    what = "probe"
    allocated, free = report["allocated"], report["free"]
    if report["total"] != limit:
        fix = "check that nothing removes LD_PRELOAD from the environment"
        sees = f"a program sees {approximate(report['total'])}, not {format_memory(limit)}"
        raise HamiError(what, sees, fix)
    if allocated > limit:
        why = f"{format_memory(allocated)} were allocated under a limit of {format_memory(limit)}"
        raise HamiError(what, why, REPORT)
    stopped_by = report["stopped_by"]
    if stopped_by != OUT_OF_MEMORY:
        raise HamiError(what, f"it was stopped by {stopped_by or 'no error'}", REPORT)
    share = f"{allocated / limit:.1%}"
    found = f"{format_memory(limit)}: {share} could be allocated, then out of memory"
    if allocated >= min(ENOUGH * limit, limit - least):
        return found
    if allocated >= min(ENOUGH * free, free - least):
        return f"{found}; the driver itself uses {approximate(limit - free)} of it"
    why = (
        f"only {approximate(allocated)} of {format_memory(limit)} could be allocated;"
        f" {approximate(free)} were free"
    )
    raise HamiError(what, why, REPORT)


def judge_lookup(report: Mapping[str, Any], limit: int) -> Found:
    """Judge the report of one symbol lookup.

    Only the results count; the library that the lookup finds is named to explain them. Another
    library may be found first, if it calls ours.

    Raises:
        HamiError: the lookup bypasses the limit, or a request within the limit was refused.
    """
    if report["missing"]:
        return f"not available: {report['missing']}"
    what = f"lookup {report['lookup']}"
    if report["failed"]:
        raise HamiError(what, report["failed"], REPORT)
    library, total = report["library"], report["total"]
    if total != limit and report["lookup"] == DEEPBIND:
        detail = f"bypasses the limit and finds {library}; this is a known case"
        fix = (
            "limit programs that load plugins this way (Taichi is one) by their own settings, "
            "or assign them a MIG device"
        )
        return detail, fix
    if total != limit:
        why = f"a program that finds {library or 'the driver'} sees {approximate(total)}"
        fix = f"check what LD_PRELOAD and LD_AUDIT load before ours; if nothing, {REPORT}"
        raise HamiError(what, f"{why}, not {format_memory(limit)}", fix)
    if report["lookup"] == NVML:
        return f"reports {format_memory(total)}"
    if report["page_error"]:
        why = f"a page within the limit is refused: {report['page_error']}"
        raise HamiError(what, why, REPORT)
    if report["excess_error"] != OUT_OF_MEMORY:
        result = report["excess_error"] or "allocated"
        why = f"a request for more than the limit through {library} returns: {result}"
        raise HamiError(what, why, REPORT)
    return f"finds {library}; more than the limit is refused"
