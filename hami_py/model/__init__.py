"""What the package talks about: cards, limits, usage. Plain data and pure functions."""

from hami_py._native import parse_memory, parse_share
from hami_py.model.cards import Card, find, visible
from hami_py.model.events import CardLook, Event, EventKind, Look, ProcessKey, ProcessLook, changes
from hami_py.model.limits import (
    MODES,
    PRIORITIES,
    CardLimit,
    Limits,
    Mode,
    Priority,
    lowest,
    lowest_priority,
    lowest_share,
    regime,
)
from hami_py.model.names import check_name, check_object_name, legible
from hami_py.model.plan import Plan, plan, resized, unheard
from hami_py.model.request import (
    WHOLE,
    LimitRequest,
    Shares,
    parse_arguments,
    parse_devices,
    parse_options,
)
from hami_py.model.usage import (
    CardUsage,
    ProcessUsage,
    SliceCard,
    SliceInfo,
    SliceProcess,
    SliceProcessCard,
    SliceState,
    Usage,
)

__all__ = [
    "MODES",
    "PRIORITIES",
    "WHOLE",
    "Card",
    "CardLimit",
    "CardLook",
    "CardUsage",
    "Event",
    "EventKind",
    "LimitRequest",
    "Limits",
    "Look",
    "Mode",
    "Plan",
    "Priority",
    "ProcessKey",
    "ProcessLook",
    "ProcessUsage",
    "Shares",
    "SliceCard",
    "SliceInfo",
    "SliceProcess",
    "SliceProcessCard",
    "SliceState",
    "Usage",
    "changes",
    "check_name",
    "check_object_name",
    "find",
    "legible",
    "lowest",
    "lowest_priority",
    "lowest_share",
    "parse_arguments",
    "parse_devices",
    "parse_memory",
    "parse_options",
    "parse_share",
    "plan",
    "regime",
    "resized",
    "unheard",
    "visible",
]
