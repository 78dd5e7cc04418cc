"""Slices of a ``hami run``: made, run in, looked at from inside, and taken away."""

from hami_py.slices.create import create, remove_stale
from hami_py.slices.current import cards, limits, usage
from hami_py.slices.environment import compose, require_glibc, require_library
from hami_py.slices.foreground import die_of, run_in_foreground
from hami_py.slices.prepare import Prepared, prepared
from hami_py.slices.runtime import runtime_directory

__all__ = [
    "Prepared",
    "cards",
    "compose",
    "create",
    "die_of",
    "limits",
    "prepared",
    "remove_stale",
    "require_glibc",
    "require_library",
    "run_in_foreground",
    "runtime_directory",
    "usage",
]
