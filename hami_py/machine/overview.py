"""The slices of all users as ``hami ps`` shows them: limits, use and processes.

The service makes the descriptions, because users cannot read the accounts of others.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from hami_py.model import SliceInfo
from hami_py.node.ledger import Entry
from hami_py.slices.hold import is_in_use, pids_in
from hami_py.slices.processes import Environments, is_running, read_environments, uid_of
from hami_py.slices.record import read_record
from hami_py.slices.registry import Found, describe
from hami_py.slices.summary import shortened

_FRESH_S = 0.5
"""Users may ask as often as they like, and each look reads all processes of the machine."""

_COMMAND = 256
"""Characters of a process's command that are shown."""


def of_user(environments: Environments, directory: Path, uid: int) -> Environments:
    """The processes of a slice's user, and of root, that name the slice in their environments.

    Processes of other users do not count, because they can name any slice there.
    """
    found = environments.inside.get(str(directory), frozenset())
    pids = frozenset(pid for pid in found if uid_of(pid) in (0, uid))
    return replace(environments, inside={str(directory): pids})


class Overview:
    """Describes slices; a description is at most half a second old.

    Args:
        directory: the directory of the slots.
        library: the installed library.
    """

    def __init__(self, directory: Path, library: Path) -> None:
        self._directory, self._library = directory, library
        self._known: dict[str, tuple[Entry, SliceInfo]] = {}
        self._environments, self._since = Environments(), float("-inf")

    def of(self, entry: Entry) -> SliceInfo:
        """The description of a slice; one that is being removed looks damaged."""
        now = time.monotonic()
        if now - self._since > _FRESH_S:
            # Only the environments; what each process has mapped takes longer.
            self._environments, self._since = read_environments(float("inf")), now
            self._known = {}
        known = self._known.get(entry.slot)
        # The ledger replaces an entry that has changed.
        if known is None or known[0] is not entry:
            known = self._known[entry.slot] = entry, self._described(entry)
        return known[1]

    def _described(self, entry: Entry) -> SliceInfo:
        directory, user = self._directory / entry.slot, entry.namespace
        uid = int(entry.owner.removeprefix("uid:"))
        mine = of_user(self._environments, directory, uid)
        record = read_record(directory)
        held = entry.run is not None and any(is_running(*each) for each in entry.run.holders)
        in_use = is_in_use(directory, record, mine)
        found = Found(directory, record, held, in_use, pids_in(directory, mine))
        info = describe(found, self._library)
        processes = [
            replace(each, command=tuple(shortened(each.command, _COMMAND)))
            for each in info.processes
        ]
        # A default slice has a row for each card, also for those that its user may not use.
        shown = record.indices if record is not None else ()
        cards = tuple(each for each in info.cards if each.uuid in shown or each.memory_used)
        command = tuple(shortened(info.command))
        info = replace(info, command=command, processes=tuple(processes), cards=cards)
        return replace(info, user=user, owner=user)
