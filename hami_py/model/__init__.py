"""What the package talks about: cards, limits, usage. Plain data and pure functions."""

from hami_py.model.cards import Card, find, visible
from hami_py.model.limits import CardLimit, Limits, lowest
from hami_py.model.plan import Plan, plan
from hami_py.model.quantity import parse_memory, parse_share
from hami_py.model.request import MemoryRequest, parse_gpumem, parse_sizes, refuse_gpucores
from hami_py.model.usage import CardUsage, ProcessUsage, Usage

__all__ = [
    "Card",
    "CardLimit",
    "CardUsage",
    "Limits",
    "MemoryRequest",
    "Plan",
    "ProcessUsage",
    "Usage",
    "find",
    "lowest",
    "parse_gpumem",
    "parse_memory",
    "parse_share",
    "parse_sizes",
    "plan",
    "refuse_gpucores",
    "visible",
]
