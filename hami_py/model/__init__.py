"""Cards, limits and usage as plain data and pure functions. The types of pods are in ``pods``."""

from hami_py._native import parse_memory, parse_share
from hami_py.model.cards import Card, find, visible
from hami_py.model.events import (
    CardSnapshot,
    Event,
    EventKind,
    ProcessKey,
    ProcessSnapshot,
    SliceSnapshot,
    changes,
)
from hami_py.model.gangs import gang_of_namespace, gang_of_user
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
from hami_py.model.plan import Plan, ineffective, plan, resized
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
    "CardSnapshot",
    "CardUsage",
    "Event",
    "EventKind",
    "LimitRequest",
    "Limits",
    "Mode",
    "Plan",
    "Priority",
    "ProcessKey",
    "ProcessSnapshot",
    "ProcessUsage",
    "Shares",
    "SliceCard",
    "SliceInfo",
    "SliceProcess",
    "SliceProcessCard",
    "SliceSnapshot",
    "SliceState",
    "Usage",
    "changes",
    "check_name",
    "check_object_name",
    "find",
    "gang_of_namespace",
    "gang_of_user",
    "ineffective",
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
    "visible",
]
