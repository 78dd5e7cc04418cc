"""The proof that a limit holds: programs of ours try to get past it, and fail.

What they do is in ``hami_py.gpu.probe`` and ``hami_py.gpu.roads``; here they are given a slice, and
their reports are judged.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hami_py import gpu, slices
from hami_py._native import format_memory
from hami_py.cli.doctor.trial import Found, probe
from hami_py.config import Settings
from hami_py.errors import HamiError
from hami_py.gpu.driver import PAGE
from hami_py.gpu.roads import DEEPBIND, NVML
from hami_py.model import Card, LimitRequest

ENOUGH = 0.99
"""Part of the limit that must be had."""

OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
REPORT = "report this, with the output of `hami doctor --json`"


def limit_holds(card: Card, settings: Settings) -> str:
    """All of a limit on this card can be had, and no more."""
    with _slice(card, settings) as (limit, environment):
        return judge(probe(environment, "probe", "allocate"), limit)


def walk_roads(card: Card, settings: Settings) -> tuple[int, list[dict[str, Any]]]:
    """A limit on this card, and what every road into the driver makes of it."""
    with _slice(card, settings) as (limit, environment):
        return limit, probe(environment, "roads", str(limit), card.uuid)


@contextmanager
def _slice(card: Card, settings: Settings) -> Iterator[tuple[int, dict[str, str]]]:
    """A limit of a quarter of the card, or half of what others leave of it, and its environment.

    So the driver itself would grant more than the limit, and a refusal is ours.
    """
    free = gpu.memory_free([card.uuid]).get(card.uuid, 0)
    limit = min(card.memory_total // 4, free // 2) // PAGE * PAGE
    if not limit:
        raise _too_little(card, free, settings)
    # HAMi's variables would lower the limit further, and the proof is about ours.
    base = {k: v for k, v in settings.environment.items() if k not in settings.hami_limits}
    asked, chosen = LimitRequest({card.uuid: limit}), [card.uuid]
    with slices.prepared(settings, ["hami", "doctor"], asked, chosen, base) as prepared:
        yield limit, prepared.environment


def _too_little(card: Card, free: int, settings: Settings) -> HamiError:
    """Too little can be had for a proof: for a limit that holds here already, or for others."""
    held = next((row for row in slices.limits(settings).cards if row.uuid == card.uuid), None)
    if held is None or held.memory is None:
        fix = "end some programs (`nvidia-smi` lists them) and try again"
        return HamiError("probe", f"only {free} bytes are free on {card.uuid}", fix)
    why = f"only {free} bytes are free of the {held.memory} that may be used here on {card.uuid}"
    return HamiError("probe", why, "raise the limit, or end programs that it holds for")


def judge(report: Mapping[str, Any], limit: int) -> str:
    """What the probe's report says of the limit.

    Raises:
        HamiError: it does not hold, or not all of it can be had.
    """
    what = "probe"
    got, free = report["allocated"], report["free"]
    if report["total"] != limit:
        fix = "check that nothing removes LD_PRELOAD or HAMI_SLICE from the environment"
        raise HamiError(what, f"a program sees {report['total']} bytes, not {limit}", fix)
    if got > limit:
        raise HamiError(what, f"{got} bytes were had under a limit of {limit}", REPORT)
    stopped_by = report["stopped_by"]
    if stopped_by != OUT_OF_MEMORY:
        raise HamiError(what, f"it was stopped by {stopped_by or 'nothing'}", REPORT)
    found = f"{format_memory(limit)}: {got / limit:.1%} could be had, then out of memory"
    if got >= ENOUGH * limit:
        return found
    if got >= ENOUGH * free:
        return f"{found}; the driver itself uses {limit - free} bytes of it"
    raise HamiError(what, f"only {got} of {limit} bytes could be had, {free} were free", REPORT)


def judge_walk(walk: Mapping[str, Any], limit: int) -> Found:
    """What one road's row says.

    What it does decides; the library it leads to is said to explain that. Where somebody's library
    stands in front of ours and leads on to it, all is well.

    Raises:
        HamiError: the road leads past the limit, or a request within it was refused.
    """
    if walk["missing"]:
        return f"not here: {walk['missing']}"
    what = f"road {walk['road']}"
    if walk["failed"]:
        raise HamiError(what, walk["failed"], REPORT)
    leads_to, total = walk["leads_to"], walk["total"]
    if total != limit and walk["road"] == DEEPBIND:
        detail = f"leads past the limit to {leads_to}, as is known"
        fix = (
            "hold programs that load plugins so (Taichi is one) by settings of their own, "
            "or give them a MIG slice"
        )
        return detail, fix
    if total != limit:
        why = f"a program that takes it to {leads_to or 'the driver'} sees {total} bytes"
        fix = f"see what LD_PRELOAD and LD_AUDIT load before ours; if nothing, {REPORT}"
        raise HamiError(what, f"{why}, not {limit}", fix)
    if walk["road"] == NVML:
        return f"shows {format_memory(total)}"
    if walk["granted"]:
        raise HamiError(what, f"a page within the limit is refused: {walk['granted']}", REPORT)
    if walk["refused"] != OUT_OF_MEMORY:
        answer = walk["refused"] or "granted"
        why = f"a request for more than the limit by way of {leads_to} is answered: {answer}"
        raise HamiError(what, why, REPORT)
    return f"leads to {leads_to}, and more than the limit is refused"
