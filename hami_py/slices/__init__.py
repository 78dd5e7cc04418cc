"""Slices: made, named and found, run in, looked at from inside and outside, and taken away."""

from hami_py.slices.coordinator import Keeper, Running, last_words, running
from hami_py.slices.current import cards, limits, shown, usage
from hami_py.slices.environment import compose, require_glibc, require_library
from hami_py.slices.foreground import die_of, run_in_foreground
from hami_py.slices.handle import Slice
from hami_py.slices.hold import create, remove_stale
from hami_py.slices.prepare import (
    Prepared,
    Request,
    joined,
    open_named,
    open_new,
    plan_new,
    prepared,
)
from hami_py.slices.registry import SHOWN_ID, list_slices, remove
from hami_py.slices.resize import resize_named
from hami_py.slices.runtime import runtime_directory, usable

__all__ = [
    "SHOWN_ID",
    "Keeper",
    "Prepared",
    "Request",
    "Running",
    "Slice",
    "cards",
    "compose",
    "create",
    "die_of",
    "joined",
    "last_words",
    "limits",
    "list_slices",
    "open_named",
    "open_new",
    "plan_new",
    "prepared",
    "remove",
    "remove_stale",
    "require_glibc",
    "require_library",
    "resize_named",
    "run_in_foreground",
    "running",
    "runtime_directory",
    "shown",
    "usable",
    "usage",
]
