"""The slices of the machine's users: made, joined, changed and ended as their users ask.

The limits of a slice are written into the ledger first, and then into its slot, which is on tmpfs.
A slice ends when no process holds it and none runs in it, unless its user keeps it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from msgspec.structs import replace as replace_fields

from hami_py.errors import HamiError, InvalidValue, SliceInUse, StateError, UnknownSlice
from hami_py.machine.containers import processes_in_containers, slots_mounted
from hami_py.machine.default_slices import DEFAULT, DefaultSlices
from hami_py.machine.listener import Peer
from hami_py.machine.overview import of_user
from hami_py.machine.policy import Grant, Policy, User
from hami_py.machine.rules import Use, allowed, lowered, part_of, taken_by, use_of, within
from hami_py.machine.slice_slots import SliceSlots, around_of, run_of, uid_of
from hami_py.machine.users import user_of
from hami_py.model import WHOLE, CardLimit, LimitRequest, legible, resized
from hami_py.model.cards import find
from hami_py.model.request import UNLIMITED
from hami_py.node.cards import Cards
from hami_py.node.ledger import Entry, Ledger, Run
from hami_py.node.processes import kill_users_of
from hami_py.node.slots import Slots
from hami_py.slices import hold
from hami_py.slices.processes import is_running, read_environments, start_time
from hami_py.slices.processes import uid_of as owner_of_process
from hami_py.slices.record import new_record, read_record

_log = logging.getLogger(__name__)

_JOB = "job-"  # Slurm's scripts name the slots of jobs.

_MOST_HOLDS = 64
"""How often a process may hold a slice: each is written into the ledger."""

_BLOCKED_S = 60.0


class Register:
    """All slices.

    Args:
        directory: the directory of the slots.
        cards: the machine's cards.
        ledger: what each slice has.
        slots: the slots.
        library: the installed library.
        policy: the policy now.
        before: the policy that the slices follow already.
        count: is called before limits change, and before these slices end.
    """

    def __init__(
        self,
        directory: Path,
        *,
        cards: Cards,
        ledger: Ledger,
        slots: Slots,
        library: Path,
        policy: Callable[[], Policy],
        before: Policy | None = None,
        count: Callable[[Collection[Entry]], None] = lambda _: None,
    ) -> None:
        self._ledger, self._all_slots, self._policy = ledger, slots, policy
        self._slices = SliceSlots(directory, ledger, slots, cards, library)
        self._count = count
        self._lock = threading.RLock()
        links = directory.parent / "users"
        self._defaults = DefaultSlices(self._slices, policy, lambda: count(()), links)
        self._before = policy() if before is None else before
        self._grants: dict[int, Grant] = {}
        self._blocked: dict[int, float] = {}

    def create(
        self,
        peer: Peer,
        limits: LimitRequest,
        *,
        command: Sequence[str] = (),
        devices: Sequence[str] = (),
        name: str | None = None,
        keep: bool = False,
        gang: str | None = None,
        around: Sequence[str] = (),
    ) -> tuple[Path, tuple[str, ...]]:
        """A new slice that the peer holds: its directory, and messages for the user.

        Raises:
            HamiError: it is more than the user may have, or it cannot be created.
        """
        with self._lock:
            policy, user = self._policy(), user_of(peer.uid)
            self._require_unblocked(peer.uid)
            if name == DEFAULT:
                raise InvalidValue(
                    "name", name, "your programs in no slice have it: choose another"
                )
            if name is not None and any(each.name == name for each in self._slices.of(peer.uid)):
                raise InvalidValue("name", name, "one of your slices has it: choose another")
            outer, strict = self._around(peer.uid, around), policy.sum == "strict"
            use, grant = self._use(peer.uid), self._grant(user, outer)
            if outer:
                # Those have the memory and the time.
                use = Use(slices=use.slices)
            planned = allowed(grant, self._slices.cards, limits, devices, use, is_strict=strict)
            record = replace(
                new_record(tuple(command)),
                pid=peer.pid,
                start_time=start_time(peer.pid),
                name=name,
                keep=keep,
                devices=planned.devices,
                gang=gang,
                indices=planned.indices,
                around=tuple(around),
            )
            run = Run(planned.limits, (_holder(peer),), keep, asdict(record), bool(outer))
            return self._add(os.urandom(16).hex(), user, name or "", run, gang), planned.notes

    def set_job(self, job: int, uid: int, parts: Mapping[str, tuple[int, int]]) -> None:
        """Let a user's job have a new slice with n of N parts of cards; without any, no slice.

        Raises:
            HamiError: there is no such card or part, or the slice cannot be created.
        """
        with self._lock:
            cards = {name: find(self._slices.cards, name, "card") for name in parts}
            limits = tuple(part_of(cards[name], *part) for name, part in parts.items())
            indices = {card.uuid: card.index for card in cards.values()}
            slot = f"{_JOB}{job}"
            self._end([each for each in self._slices.all if each.slot == slot])
            if limits:
                record = replace(new_record(("job", str(job))), keep=True, indices=indices)
                run = Run(limits, keep=True, record=asdict(record), kind="job")
                self._add(slot, user_of(uid), "", run)

    def end_lost_jobs(self, known: Callable[[], Collection[str]]) -> None:
        """End the slices of jobs that are not known any more: the machine has crashed."""
        found = list(filter(_is_job, self._slices.all))
        jobs = known() if found else ()
        lost = [each for each in found if each.slot.removeprefix(_JOB) not in jobs]
        with self._lock:
            # One that has changed meanwhile may be of the job's next run.
            self._end([each for each in lost if self._ledger.entries.get(each.slot) is each])

    def _add(self, slot: str, user: User, name: str, run: Run, gang: str | None = None) -> Path:
        """Add a slice; its directory."""
        entry = self._slices.new(slot, user, name, run, gang)
        try:
            # In the ledger first: the default slice has what this one leaves.
            self._ledger.put(entry)
            if run.kind == "slice":
                self._defaults.make_room(user.uid)
            self._slices.ensure(entry)
        except BaseException:
            self._ledger.remove_slots([entry.slot])
            self._defaults.refit(user.uid)
            raise
        return self._slices.path(entry)

    def hold(self, peer: Peer, name: str) -> Path:
        """Let the peer hold a slice of its user; its directory.

        Raises:
            UnknownSlice: the user has no such slice.
            StateError: the ledger or the slot cannot be written.
        """
        with self._lock:
            entry, mine = self._find(peer, name), _holder(peer)
            if run_of(entry).holders.count(mine) >= _MOST_HOLDS:
                why, fix = f"process {peer.pid} holds it {_MOST_HOLDS} times", "close some"
                raise StateError(f"slice {legible(name)}", why, fix)
            self._slices.ensure(entry)
            self._put(entry, holders=(*run_of(entry).holders, mine))
            return self._slices.path(entry)

    def release(self, peer: Peer, slot: str) -> None:
        """The peer holds the slice no longer; it ends if nothing keeps it.

        Raises:
            UnknownSlice: the user has no such slice.
        """
        with self._lock:
            entry = self._find(peer, slot)
            holders, mine = list(run_of(entry).holders), _holder(peer)
            # One of them: a process may hold a slice several times.
            if mine in holders:
                holders.remove(mine)
            self._put(entry, holders=tuple(holders))
            self.end_unused()

    def remove(self, peer: Peer, name: str) -> None:
        """End a slice, also one that is kept.

        Raises:
            UnknownSlice: the user has no such slice.
            SliceInUse: processes hold it, or run in it.
        """
        with self._lock:
            entry = self._find(peer, name, change=True)
            using = {pid for pid, _ in _living(entry)}
            # Reading each process of the machine is slow.
            if not using:
                found = self._users([entry])
                # A container in which no program has used a card yet.
                using = processes_in_containers(self._all_slots.device).get(entry.slot, set())
                using = using.union(*found.values())
                if not using and not found:
                    self._end([entry])
                    return
            raise SliceInUse(f"slice {legible(name)}", using)
            self._end([entry])

    def set_limits(self, peer: Peer, name: str, limits: LimitRequest) -> tuple[str, ...]:
        """Change the limits of a slice, within what its user may have; messages for the user.

        Raises:
            HamiError: it is more than the user may have, or it cannot be changed.
        """
        with self._lock:
            entry, policy = self._find(peer, name, change=True), self._policy()
            run = run_of(entry)
            uid, cards = uid_of(entry), self._slices.cards
            use = Use() if run.is_inside else self._use(uid, without=entry.slot)
            # Root may give more than the policy does.
            grant = Grant()
            if peer.uid != 0:
                grant = self._grant(user_of(uid), self._around(uid, around_of(entry)))
            rows, notes = resized(cards, run.limits, limits, whole=True)
            strict = policy.sum == "strict"
            rows = within(grant, cards, rows, limits, use, is_strict=strict, before=run.limits)
            self._change(entry, rows)
            return notes

    def _change(self, entry: Entry, rows: tuple[CardLimit, ...]) -> None:
        """Change the limits of a slice; if they cannot be written, all is as before.

        Raises:
            HamiError: the reason.
        """
        uid = uid_of(entry)
        after = self._slices.with_run(entry, replace_fields(run_of(entry), limits=rows))
        self._count(())
        self._ledger.put(after)
        try:
            self._defaults.make_room(uid)
            self._slices.set_limits(after)
        except BaseException as error:
            self._ledger.put(entry)
            with suppress(HamiError, OSError):
                self._slices.set_limits(entry)
            self._defaults.refit(uid)
            if not isinstance(error, OSError):
                raise
            why, fix = error.strerror or str(error), "end its programs, and create another"
            raise StateError(f"slice {legible(entry.name)}", why, fix) from error
        self._defaults.refit(uid)

    def default(self, uid: int) -> str:
        """Create or change a user's default slice, which limits programs outside other slices.

        Returns:
            Its path, ``unlimited``, or the reason why the user has no card.

        Raises:
            HamiError: the slice cannot be created.
        """
        with self._lock:
            self._require_unblocked(uid)
            return self._defaults.set(uid)

    def follow_policy(self) -> None:
        """Lower the slices of users who are granted less now, and fit their default slices.

        Raises:
            HamiError: one of them cannot be changed; it is tried again at the next call.
        """
        failed = []
        for uid in {*map(uid_of, self._slices.all), *self._defaults.users()}:
            user = user_of(uid)
            # Others may ask between two users.
            with self._lock:
                grant = self._policy().grant(user)
                if user.is_known is None:
                    continue
                try:
                    if grant != (self._grants.get(uid) or self._before.grant(user)):
                        self._lower(uid, grant)
                        if uid in self._defaults.users():
                            self._defaults.set(uid)
                    self._grants[uid] = grant
                except HamiError as error:
                    failed.append(error)
        if failed:
            raise failed[0]

    def _lower(self, uid: int, grant: Grant) -> None:
        """Lower the limits of a user's slices to what is granted now; the oldest keep the most.

        Raises:
            HamiError: they cannot be written.
        """
        own, cards, sizes = Counter[tuple[str, str]](), self._slices.cards, self._slices.sizes
        for entry in self._slices.of(uid):
            run = run_of(entry)
            # What is inside another has the limits of that one, too.
            if run.kind == "slice" and not run.is_inside:
                rows = lowered(grant, cards, run.limits, own)
                if rows != run.limits:
                    self._count(())
                    self._slices.put(self._slices.with_run(entry, replace_fields(run, limits=rows)))
                own += taken_by(rows, sizes, self._slices.held(entry))

    def visible(self, peer: Peer, *, everyone: bool = True) -> list[Entry]:
        """The slices of a user, or all that the user may see."""
        if not everyone or not self.sees_all(peer):
            return self._slices.of(peer.uid)
        return [each for each in self._ledger.entries.values() if each.run is not None]

    def sees_all(self, peer: Peer) -> bool:
        """Whether a user sees the slices of others."""
        return self._policy().sees_all(user_of(peer.uid))

    def restore(self) -> None:
        """Make the slots again that the ledger has, as after a reboot, and remove others."""
        with self._lock:
            self.end_unused()
            # After a reboot users have a default slice when they ask for it.
            defaults = [each for each in self._slices.all if run_of(each).kind == "default"]
            there = self._all_slots.names()
            self._end([each for each in defaults if each.slot not in there])
            for entry in self._slices.all:
                self._slices.ensure(entry)
            for name in self._all_slots.names() - self._ledger.entries.keys():
                self._all_slots.remove(name)
            self._defaults.restore()

    def end_unused(self) -> None:
        """End the slices that no process holds or uses, and that are not kept."""
        with self._lock:
            unheld = [
                each for each in self._slices.all if not run_of(each).keep and not _living(each)
            ]
            # Reading each process is slow, and usually each slice has a holder.
            users = self._users(unheld) if unheld else {}
            self._end([each for each in unheld if each.slot not in users])

    def end_grown(self) -> None:
        """Cut the accounts that programs have made longer, and end those slices and programs.

        Otherwise a user could fill the file system of all users' slices. For a minute, such a user
        gets no other slice.
        """
        for entry in self._slices.all:
            file = self._all_slots.cut_account(entry.slot)
            if file is not None:
                uid = uid_of(entry)
                _log.warning("slice %s of %s has filled its account", entry.slot, entry.namespace)
                self._blocked[uid] = time.monotonic() + _BLOCKED_S
                kill_users_of(*file, partial(self._is_of, entry))
                # They have filled it until then, and others may have the open file.
                self._all_slots.cut_account(entry.slot)
                with self._lock:
                    self._end([entry])
                    if run_of(entry).kind == "default":
                        self._defaults.forget(uid)

    def _is_of(self, entry: Entry, process: Path) -> bool:
        """Whether a process is of a slice's user, or in a container with the slice."""
        if owner_of_process(int(process.name)) == uid_of(entry):
            return True
        return entry.slot in slots_mounted(process, self._all_slots.device)

    def _require_unblocked(self, uid: int) -> None:
        if self._blocked.get(uid, 0.0) > time.monotonic():
            why = "your programs have filled the file system of all users' slices"
            raise StateError("a new slice", why, f"wait for {_BLOCKED_S:.0f} s")

    def _end(self, ended: Sequence[Entry]) -> None:
        if ended:
            self._count(ended)
        for each in ended:
            self._slices.remove(each)
        for uid in set(map(uid_of, ended)):
            self._defaults.refit(uid)

    def _users(self, entries: Iterable[Entry]) -> Mapping[str, frozenset[int]]:
        """By slot that is in use, its processes in our PID namespace; there may be others."""
        uids = {self._slices.path(each): uid_of(each) for each in entries}
        found, all_ = {}, read_environments(hold.oldest(uids))
        for each, uid in uids.items():
            environments = of_user(all_, each, uid)
            if hold.is_in_use(each, read_record(each), environments):
                found[each.name] = hold.pids_in(each, environments)
        return found

    def _find(self, peer: Peer, name: str, *, change: bool = False) -> Entry:
        """A slice by name or id; root may name those of others, and change those of jobs."""
        mine = self._slices.of(peer.uid) if peer.uid else self._slices.all
        # Also a whole id: job-1 is the start of job-10, too.
        exact = [each for each in mine if each.slot == name]
        named = [each for each in mine if name and each.name == name]
        starts = [each for each in mine if name and each.slot.startswith(name)]
        # A user may have named a slice after the id of another's, which root means.
        both = {each.slot: each for each in named + starts}
        found = exact or (named if named and peer.uid else list(both.values()))
        if len(found) == 1 and run_of(found[0]).kind == "default":
            fix = "change the policy, or create another slice"
            raise StateError(f"slice {legible(name)}", "it has what the policy leaves", fix)
        if len(found) == 1 and change and peer.uid and _is_job(found[0]):
            fix = f"use `scancel {found[0].slot.removeprefix(_JOB)}`"
            raise StateError(f"slice {found[0].slot}", "it is a job's", fix)
        if len(found) == 1:
            return found[0]
        if found:
            why, fix = (
                "several slices have this name or id",
                "write more of an id of `hami ps --all`",
            )
        else:
            why, fix = "you have no slice with this name or id", "`hami ps` lists your slices"
        raise UnknownSlice(f"slice {legible(name)}", why, fix)

    def _use(self, uid: int, without: str = "") -> Use:
        """The sums of the limits of slices; memory in the user's default slice counts, too."""
        slices = self._slices
        return use_of(slices.all, uid, slices.sizes, slices.held, without)

    def _around(self, uid: int, around: Sequence[str]) -> list[Entry]:
        """Those of these slices that are the user's on this machine: their limits hold too."""
        mine = self._slices.of(uid)
        return [each for each in mine if str(self._slices.path(each)) in around]

    def _grant(self, user: User, outer: Iterable[Entry]) -> Grant:
        """The grant of a user inside these slices: in a job, the limits of the job."""
        grant = self._policy().grant(user)
        for job in filter(_is_job, outer):
            limits = _as_request(run_of(job).limits)
            cards = [each.card for each in job.cards]
            grant = replace(grant, limits=limits, cards=cards, why=job.slot)
        return grant

    def _put(self, entry: Entry, *, holders: tuple[tuple[int, int], ...]) -> None:
        living = tuple(each for each in holders if is_running(*each))
        run = replace_fields(run_of(entry), holders=living)
        self._ledger.put(replace_fields(entry, run=run))


def _is_job(entry: Entry) -> bool:
    return run_of(entry).kind == "job"


def _holder(peer: Peer) -> tuple[int, int]:
    """The peer, which holds what it asks for.

    Raises:
        StateError: it has ended, or is not in the service's PID namespace.
    """
    started = start_time(peer.pid) if peer.pid else 0
    if not started:
        why, fix = "this process is not seen by the service", "ask from the machine itself"
        raise StateError("holding a slice", why, fix)
    return peer.pid, started


def _living(entry: Entry) -> list[tuple[int, int]]:
    """The holders that run."""
    return [each for each in run_of(entry).holders if is_running(*each)]


def _as_request(rows: Sequence[CardLimit]) -> LimitRequest:
    """The request that these limits fulfil."""
    memory = {row.uuid: UNLIMITED if row.memory is None else row.memory for row in rows}
    return LimitRequest(memory, {row.uuid: row.share or WHOLE for row in rows}, rows[0].mode)
