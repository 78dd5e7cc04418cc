"""Slices: create and find them, run programs in them, read their usage, remove them.

A slice is a directory with the limits and the accounting of the programs that run in it.

| module | contains |
|---|---|
| ``beside`` | how a slice is found: by the path of the library |
| ``runtime``, ``record``, ``hold`` | the runtime directory; ``slice.json``; a slice's directory |
| ``layers``, ``watch`` | reading limits and usage; the events of a slice |
| ``processes``, ``bypass`` | which processes are in a slice; which of them no limit holds for |
| ``registry`` | the user's slices: list, find, resize, remove |
| ``summary`` | what a slice has used, and the slices that have ended |
| ``current`` | limits and usage of this process |
| ``card_users``, ``overbooked`` | whose programs use the cards; shares that add up to too much |
| ``prepare``, ``programs`` | a new or existing slice, and the environment of a program in it |
| ``foreground``, ``group_signals`` | running a program with the terminal and its signals |
| ``service`` | what a service manager passes to a program |
| ``measuring`` | measuring the memory of the programs of ``hami run`` |
| ``relaunch`` | limiting the process that already runs |
| ``machine`` | the machine's service, as its users ask it |
| ``coordinator`` | starting the coordinator, and restarting it |
| ``handle`` | ``Slice``, the object of the Python API |
"""

from hami_py.slices.beside import own_slices
from hami_py.slices.bypass import BypassWatcher, gained_rights, require_checkable
from hami_py.slices.card_users import CardUser, card_users
from hami_py.slices.coordinator import CoordinatorSupervisor, Running, last_error, running
from hami_py.slices.current import cards, limits, shown, usage
from hami_py.slices.foreground import die_of, end_like, run_in_foreground
from hami_py.slices.handle import Slice
from hami_py.slices.hold import create, remove_stale
from hami_py.slices.measured_cards import as_measured
from hami_py.slices.measuring import Measuring
from hami_py.slices.overbooked import overbooked
from hami_py.slices.prepare import Opened, SliceRequest, open_named, open_new, plan_new
from hami_py.slices.programs import require_glibc, require_library
from hami_py.slices.record import read_record
from hami_py.slices.registry import SHOWN_ID, list_own, list_slices, remove, resize_named
from hami_py.slices.runtime import runtime_directory, usable
from hami_py.slices.service import Notifications, with_own_pid
from hami_py.slices.summary import ended, summary_of
