"""The limits and usage of this process.

The preload library in this process reads the same files and variables by the same rules
(docs/architecture.md, "How the library finds its slice"). Slices nest: the lowest limit of all
layers is effective, and the least that is left in any of them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from hami_py import gpu
from hami_py._native import HamiLimit, HamiVariables
from hami_py.config import Settings
from hami_py.model import Card, CardLimit, Limits, Usage, visible
from hami_py.slices.beside import directories, loaded_library, own_slices
from hami_py.slices.layers import Layer, card_usage, combined, read_layer
from hami_py.slices.measured_cards import as_measured
from hami_py.slices.record import read_record
from hami_py.slices.runtime import usable


def cards(settings: Settings) -> list[Card]:
    """The cards of this machine, or inside a slice those that it may use, as numbers count them.

    Raises:
        NoDriver, NoDevice, DriverError: as ``gpu.cards``.
        StateError: a slice around this process cannot be read.
    """
    layers = [read_layer(directory) for directory in directories(settings)]
    ours = [
        card for card in gpu.cards() if all(layer.index(card.uuid) is not None for layer in layers)
    ]
    chosen = _chosen(settings)
    if chosen is not None:
        ours = [card for uuid in chosen for card in ours if card.uuid == uuid]
        ours = [replace(card, index=number) for number, card in enumerate(ours)]
    return as_measured(ours, settings, measures=False)


def _chosen(settings: Settings) -> Sequence[str] | None:
    """The cards that were chosen for the innermost slice for which they were; None = for none."""
    records = [read_record(directory) for directory in own_slices(settings)]
    choices = [record.devices for record in records if record is not None and record.devices]
    return choices[-1] if choices else None


def shown(settings: Settings) -> list[Card]:
    """The cards that CUDA shows to a program with this environment, in CUDA's order.

    Raises:
        NoDriver, NoDevice, DriverError: as ``gpu.cards``.
        UnknownCard: the cards that ``CUDA_VISIBLE_DEVICES`` means are unknown here.
    """
    counted = _chosen(settings) is not None
    found = cards(settings) if counted else gpu.cards()
    return visible(found, settings.visible_devices, settings.device_order, counted=counted)


def limits(settings: Settings) -> Limits:
    """The effective limits of this process.

    Raises:
        StateError: a slice around this process cannot be read.
        InvalidValue: one of HAMi's variables is invalid.
        NoDriver, NoDevice, DriverError, UnknownCard: only HAMi's variables set a limit, and the
            cards that they mean are unknown.
    """
    level: Literal["preload", "none"] = "preload" if loaded_library(settings) else "none"
    layers = [read_layer(directory) for directory in directories(settings)]
    variables = _hami_limits(settings, layers)
    if layers:
        return Limits(tuple(combined(layers, variables)), "slice", level)
    cards = tuple(
        CardLimit(uuid, limit.memory, limit.share, limit.mode, limit.priority or "normal")
        for uuid, limit in variables.items()
    )
    return Limits(cards, "environment" if cards else "none", level)


def usage(settings: Settings) -> Usage:
    """The usage of the innermost slice that this process is in.

    Raises:
        HamiError: as ``limits``.
    """
    effective = limits(settings)
    layers = [read_layer(directory) for directory in directories(settings)]
    variables = _hami_limits(settings, layers)
    if effective.source == "environment":
        with usable(settings.hami_account):
            # The first limited process creates it; until then nothing is in use.
            exists = settings.hami_account.exists()
        layers = [read_layer(settings.hami_account)] if exists else []
    free_on_card = gpu.memory_free([limit.uuid for limit in effective.cards])
    return Usage(
        tuple(
            card_usage(
                limit,
                layers,
                free_on_card.get(limit.uuid),
                variables.get(limit.uuid, HamiLimit()).memory,
            )
            for limit in effective.cards
        )
    )


def _hami_limits(settings: Settings, layers: list[Layer]) -> dict[str, HamiLimit]:
    """The limits of HAMi's variables by card; empty if there is no slice and no limit."""
    variables = HamiVariables(settings.hami_limits)
    if layers:
        # With a limits page, the variables' <i> is row i of the innermost page.
        return {row.uuid: variables.limit(i, row) for i, row in enumerate(layers[-1].page)}
    if not variables.set_a_limit:
        return {}
    # Without one, it is the driver's i-th card before CUDA_VISIBLE_DEVICES reorders the cards.
    cards = shown(settings)
    if settings.visible_devices is None:
        return {card.uuid: variables.limit(i) for i, card in enumerate(cards)}
    entries = settings.visible_devices.split(",")
    return {
        card.uuid: variables.limit(card.index if entry.strip().isdecimal() else None)
        for card, entry in zip(cards, entries, strict=False)
    }
