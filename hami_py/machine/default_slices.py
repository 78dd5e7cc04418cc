"""The slices of programs that were started in none: a user's default slice.

It has what the policy grants, less what the user's other slices have. The library finds it by a
link for each user (``interposer/slice/src/machine.rs``):

    <runtime>/users/<uid>    the path of the slice, ``unlimited``, or why the user has no card
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from msgspec.structs import replace as replace_fields

from hami_py._native import format_memory
from hami_py.errors import InvalidValue
from hami_py.machine.policy import Policy
from hami_py.machine.rules import remaining, use_of
from hami_py.machine.slice_slots import SliceSlots, run_of
from hami_py.machine.users import user_of
from hami_py.node.ledger import Entry, Run
from hami_py.slices.record import new_record

DEFAULT = "default"
"""The name of a user's default slice, and the library's request for it."""

UNLIMITED = "unlimited"


class DefaultSlices:
    """The default slices, and their links. The callers serialise the calls.

    Args:
        slices: all slices.
        policy: the policy now.
        count: is called before limits change.
        links: the directory of the links.
    """

    def __init__(
        self,
        slices: SliceSlots,
        policy: Callable[[], Policy],
        count: Callable[[], None],
        links: Path,
    ) -> None:
        self._slices, self._policy, self._count, self._links = slices, policy, count, links

    def of(self, uid: int) -> Entry | None:
        """The default slice of a user."""
        mine = self._slices.of(uid)
        return next((each for each in mine if run_of(each).kind == "default"), None)

    def users(self) -> set[int]:
        """The users with a link."""
        return {int(link.name) for link in self._links.iterdir()}

    def set(self, uid: int) -> str:
        """Create or change the default slice of a user; the text of the link.

        Raises:
            HamiError: the slice cannot be created.
        """
        text = self._fit(uid)
        if not user_of(uid).is_known and not text.startswith("/"):
            return text
        with suppress(OSError):
            # A link that is missing makes the library ask again.
            aside = self._links.parent / f"new-link-{uid}"
            aside.unlink(missing_ok=True)
            aside.symlink_to(text)
            aside.replace(self._links / str(uid))
        return text

    def forget(self, uid: int) -> None:
        """Let the library ask for this user's again."""
        (self._links / str(uid)).unlink(missing_ok=True)

    def restore(self) -> None:
        """Remove the links to slices that do not exist. From now on the library asks."""
        self._links.mkdir(mode=0o755, exist_ok=True)
        for uid in self.users():
            if self.of(uid) is None:
                self.forget(uid)

    def refit(self, uid: int) -> None:
        """Let the default slice of a user, if there is one, have what the others leave."""
        if self.of(uid) is not None:
            self._fit(uid)

    def make_room(self, uid: int) -> None:
        """Lower the default slice first, so that a user never has more than was granted.

        Raises:
            InvalidValue: its programs hold more than it has then.
        """
        self.refit(uid)
        entry = self.of(uid)
        held = {} if entry is None else self._slices.held(entry)
        for limit in run_of(entry).limits if entry is not None else ():
            used = held.get(limit.uuid, 0)
            if limit.memory is not None and used > limit.memory:
                fix = f"your programs outside of slices hold {format_memory(used)}: end one"
                raise InvalidValue("gpumem", "what is left", fix)

    def _fit(self, uid: int) -> str:
        slices, user, before = self._slices, user_of(uid), self.of(uid)
        grant, slot = self._policy().grant(user), "" if before is None else before.slot
        use = use_of(slices.all, uid, slices.sizes, slices.held, without=slot)
        planned = remaining(grant, slices.cards, use.own)
        after = before
        if before is not None or (planned.indices and not grant.is_unlimited):
            chosen = {"devices": planned.devices, "indices": planned.indices}
            if before is None:
                record: Mapping[str, object] = asdict(
                    replace(new_record(()), name=DEFAULT, keep=True)
                )
                run = Run(planned.limits, keep=True, record={**record, **chosen}, kind="default")
                after = slices.new(os.urandom(16).hex(), user, DEFAULT, run)
            else:
                # Lost cards, too: another number of cards would make another slot, beside which
                # programs would keep what they hold in the one before.
                run = run_of(before)
                rows = {row.uuid: row for row in (*run.limits, *planned.limits)}
                run = replace_fields(
                    run, limits=tuple(rows.values()), record={**run.record, **chosen}
                )
                after = slices.with_run(before, run)
            self._count()
            slices.put(after)
        if grant.is_unlimited:
            return UNLIMITED
        if after is None or not planned.indices:
            return f"{grant.why} grants you no card: ask the administrator for one"
        return str(slices.path(after))
