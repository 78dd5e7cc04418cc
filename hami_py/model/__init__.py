"""What the package talks about: cards, limits, usage. Plain data and pure functions."""

from hami_py.model.cards import Card, find, visible
from hami_py.model.events import CardLook, Event, EventKind, Look, ProcessKey, ProcessLook, changes
from hami_py.model.limits import CardLimit, Limits, lowest
from hami_py.model.names import check_name, legible
from hami_py.model.plan import Plan, plan, resized
from hami_py.model.quantity import parse_memory, parse_share
from hami_py.model.request import (
    MemoryRequest,
    parse_devices,
    parse_gpumem,
    parse_sizes,
    refuse_gpucores,
)
from hami_py.model.slices import (
    SliceCard,
    SliceInfo,
    SliceProcess,
    SliceProcessCard,
    SliceState,
)
from hami_py.model.usage import CardUsage, ProcessUsage, Usage

__all__ = [
    "Card",
    "CardLimit",
    "CardLook",
    "CardUsage",
    "Event",
    "EventKind",
    "Limits",
    "Look",
    "MemoryRequest",
    "Plan",
    "ProcessKey",
    "ProcessLook",
    "ProcessUsage",
    "SliceCard",
    "SliceInfo",
    "SliceProcess",
    "SliceProcessCard",
    "SliceState",
    "Usage",
    "changes",
    "check_name",
    "find",
    "legible",
    "lowest",
    "parse_devices",
    "parse_gpumem",
    "parse_memory",
    "parse_share",
    "parse_sizes",
    "plan",
    "refuse_gpucores",
    "resized",
    "visible",
]
