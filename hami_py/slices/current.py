"""The slice that this process is in, seen from inside: what may be used, and what is.

The preload library decides this by itself; here the same files and variables are read by the same
rules (docs/architecture.md, "How the library finds its slice"). Slices nest: what holds is the
lowest limit and the least that is left, over all levels.
"""

from pathlib import Path
from typing import Literal

from hami_py import gpu
from hami_py._native import HamiLimit, HamiVariables
from hami_py.config import LIMITS, Settings
from hami_py.model import Card, CardLimit, Limits, Usage, visible
from hami_py.slices.hold import ACCOUNT
from hami_py.slices.levels import Level, card_usage, combined, read_level
from hami_py.slices.processes import mapped_files
from hami_py.slices.record import read_record
from hami_py.slices.runtime import usable


def cards(settings: Settings) -> list[Card]:
    """The cards of this machine, or inside a slice those of them that it may use.

    Raises:
        NoDriver, NoDevice, DriverError: as ``gpu.cards``.
        StateError: a slice around this process cannot be read.
    """
    levels = [read_level(directory) for directory in directories(settings)]
    return [
        card for card in gpu.cards() if all(level.index(card.uuid) is not None for level in levels)
    ]


def shown(settings: Settings) -> list[Card]:
    """The cards that CUDA shows to a program with this environment, in CUDA's order.

    Raises:
        NoDriver, NoDevice, DriverError: as ``gpu.cards``.
        UnknownCard: which cards ``CUDA_VISIBLE_DEVICES`` means cannot be told here.
    """
    records = map(read_record, settings.slices)
    # A container's own slice has all cards that the container was given.
    all_cards = all(record is not None and record.devices is None for record in records)
    return visible(
        gpu.cards(), settings.visible_devices, settings.device_order, all_cards=all_cards
    )


def limits(settings: Settings) -> Limits:
    """The limits that hold for this process.

    Raises:
        StateError: a slice around this process cannot be read.
        InvalidValue: one of HAMi's variables cannot be understood.
        NoDriver, NoDevice, DriverError, UnknownCard: only HAMi's variables set a limit, and which
            cards they mean cannot be told.
    """
    level: Literal["preload", "none"] = "preload" if _loaded_library(settings) else "none"
    levels = [read_level(directory) for directory in directories(settings)]
    variables = _hami_limits(settings, levels)
    if levels:
        return Limits(tuple(combined(levels, variables)), "slice", level)
    cards = tuple(
        CardLimit(uuid, said.memory, said.share, said.mode, said.priority or "normal")
        for uuid, said in variables.items()
    )
    return Limits(cards, "environment" if cards else "none", level)


def usage(settings: Settings) -> Usage:
    """What the slice that this process is in uses; the innermost, where slices nest.

    Raises:
        HamiError: as ``limits``.
    """
    held = limits(settings)
    levels = [read_level(directory) for directory in directories(settings)]
    variables = _hami_limits(settings, levels)
    if held.source == "environment":
        with usable(settings.hami_account):
            # Made by the first process that is limited so; until then nothing is held.
            there = settings.hami_account.exists()
        levels = [read_level(settings.hami_account)] if there else []
    free_on_card = gpu.memory_free([limit.uuid for limit in held.cards])
    return Usage(
        tuple(
            card_usage(
                limit,
                levels,
                free_on_card.get(limit.uuid),
                variables.get(limit.uuid, HamiLimit()).memory,
            )
            for limit in held.cards
        )
    )


def _hami_limits(settings: Settings, levels: list[Level]) -> dict[str, HamiLimit]:
    """What HAMi's variables say by card; nothing where there is no slice and they limit nothing."""
    variables = HamiVariables(settings.hami_limits)
    if levels:
        # With a page, HAMi's i is the i-th row of the innermost.
        return {row.uuid: variables.limit(i) for i, row in enumerate(levels[-1].rows)}
    if not variables.set_a_limit:
        return {}
    # Without one it is the driver's i-th card, before CUDA_VISIBLE_DEVICES reorders them.
    cards = shown(settings)
    if settings.visible_devices is None:
        return {card.uuid: variables.limit(i) for i, card in enumerate(cards)}
    entries = settings.visible_devices.split(",")
    return {
        card.uuid: variables.limit(card.index if entry.strip().isdecimal() else None)
        for card, entry in zip(cards, entries, strict=False)
    }


def directories(settings: Settings) -> list[Path]:
    """The slices around this process, outermost first: a container's own, then ``HAMI_SLICE``."""
    library = _loaded_library(settings)
    # Either file alone is a slice, a damaged one.
    if library and any((library.parent / name).exists() for name in (LIMITS, ACCOUNT)):
        return [library.parent, *settings.slices]
    return list(settings.slices)


def _loaded_library(settings: Settings) -> Path | None:
    """Our library as it is mapped into this process: the only sign that it is at work here.

    Without ``/proc`` nobody can tell; a slice is still named by ``HAMI_SLICE``.
    """
    found = (path for path in mapped_files("self") if Path(path).name == settings.library.name)
    return next(map(Path, found), None)
