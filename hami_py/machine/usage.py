"""Who has used how much of the cards: a line of JSON for each slice on a card, and for each day.

A line is written when a slice ends, after midnight (UTC) and when the service stops, into
``<state>/usage/YYYY-MM.jsonl``. The lines that are not complete are saved every 10 seconds. After a
kill the next service writes them, unless they are written already. So a kill loses at most 10
seconds and the time without a service, and nothing counts twice.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from hami_py.errors import HamiError, StateError
from hami_py.machine.rules import NO_MEMORY
from hami_py.machine.users import user_of
from hami_py.model import WHOLE
from hami_py.node.ledger import Entry, Ledger
from hami_py.node.slots import Slots
from hami_py.slices.processes import uid_of

_log = logging.getLogger(__name__)

_GIB, _HOUR_S, _NS = 1 << 30, 3600, 1_000_000_000

_SAVED, _SAVED_S = "open.json", 10.0

_AGAIN_S = 10.0
"""How often a process in no slice is looked up again: it may execute a program in one."""

_LATE_S = 1.0
"""After the end of a slice, for a sweep that counts what was held until then."""

_CHUNK = 32 << 10
"""Bytes of a file in an answer, which has to fit a packet."""


class UsageLine(msgspec.Struct):
    """The use of a card by a slice, or by programs of a user in no slice, from a time to another.

    Attributes:
        user: whose it is; ``uid`` is its number.
        slice: its id; empty = in no slice.
        kind: as ``Run.kind``; ``none`` = in no slice.
        card: the card's UUID.
        from_: when it begins, in UTC, in ISO 8601.
        reserved_gib_hours: the memory limit, or else the card's memory, over time.
        reserved_card_hours: the share, or else the whole card, over time.
        held_gib_hours: what the processes hold by NVML, over time.
        held_peak_bytes: the most that they have held at one moment.
        engine_seconds: by the account, which programs can change; at most the wall time.
        throttled_seconds: likewise, but without a bound.
    """

    user: str
    uid: int
    card: str
    from_: str = msgspec.field(name="from")
    to: str
    slice: str = ""
    name: str = ""
    kind: str = "none"
    reserved_gib_hours: float = 0.0
    reserved_card_hours: float = 0.0
    held_gib_hours: float = 0.0
    held_peak_bytes: int = 0
    engine_seconds: float = 0.0
    throttled_seconds: float = 0.0


@dataclass
class _Open:
    """A line that is not complete: when it was begun and counted last, and the account then."""

    line: UsageLine
    begun: float
    at: float
    engine_ns: int = 0
    throttled_ns: int = 0


class Usage:
    """Measures the use of the cards, and writes the lines.

    Args:
        directory: of the files; only root may read them.
        ledger: the slices.
        slots: their accounts.
        memory: the bytes of each card, by UUID.

    Attributes:
        totals: by user, the byte-seconds held and the card-seconds reserved since the start.
    """

    def __init__(
        self, directory: Path, ledger: Ledger, slots: Slots, memory: Callable[[], Mapping[str, int]]
    ) -> None:
        self.totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._directory, self._ledger, self._slots = directory, ledger, slots
        self._memory, self._lock = memory, threading.RLock()
        # Slices that were created earlier are counted from then on.
        self._begun, self._saved_at, self._day = _boot_time(), 0.0, _wall()[:10]
        # By slot, or user in no slice, and card.
        self._open: dict[tuple[str, str], _Open] = {}
        self._ready: list[UsageLine] = []
        self._held_at, self._held = 0.0, dict[tuple[str, str], int]()
        self._owners: dict[tuple[int, int | None], tuple[str, float]] = {}
        directory.mkdir(mode=0o700, exist_ok=True)
        self._restore()

    def look(self, ending: Collection[Entry] = ()) -> None:
        """Count until now, before limits change, or before slices end."""
        with self._lock:
            memory, now = self._memory(), _boot_time()
            for entry in self._entries():
                for limit in entry.run.limits if entry.run is not None else ():
                    key = entry.slot, limit.uuid
                    each = self._open.get(key) or self._begin(entry, limit.uuid, now)
                    elapsed, each.at, each.line.to = now - each.at, now, _wall()
                    held = memory.get(limit.uuid, 0) if limit.memory is None else limit.memory
                    share = 0 if limit.memory == NO_MEMORY else limit.share or WHOLE
                    card_seconds = share / WHOLE * elapsed
                    each.line.reserved_gib_hours += held / _GIB * elapsed / _HOUR_S
                    each.line.reserved_card_hours += card_seconds / _HOUR_S
                    self.totals[entry.namespace][1] += card_seconds
            for entry in ending:
                for each, engine_ns, throttled_ns in self._times(entry):
                    most = each.at - each.begun
                    seconds = max(0, engine_ns - each.engine_ns) / _NS
                    each.line.engine_seconds = min(most, seconds)
                    each.line.throttled_seconds = max(0, throttled_ns - each.throttled_ns) / _NS

    def round(self) -> None:
        """Count until now, write the lines that are complete, and save the others.

        Raises:
            StateError: a file cannot be written. What is not written stays in memory.
        """
        with self._lock:
            if _wall()[:10] != self._day:
                self._complete_all()
            is_due = time.monotonic() - self._saved_at >= _SAVED_S
            self.look(self._entries() if is_due else ())
            slots, late = {"", *(each.slot for each in self._entries())}, _boot_time() - _LATE_S
            for key, each in list(self._open.items()):
                if each.line.slice not in slots and each.at < late:
                    self._complete(self._open.pop(key))
        if self._ready or is_due:
            self._write()

    def close(self) -> None:
        """Write all lines: the service ends.

        Raises:
            StateError: a file cannot be written.
        """
        with self._lock:
            self._complete_all()
        self._write()

    def _complete_all(self) -> None:
        self.look(self._entries())
        self._begun, self._day = _boot_time(), _wall()[:10]
        for each in self._open.values():
            self._complete(each)
        self._open = {}

    def _complete(self, each: _Open) -> None:
        # A default slice has a row for each card, also for those of which nothing is left.
        if each.line.reserved_card_hours or each.line.held_peak_bytes:
            self._ready.append(each.line)

    def sweep(self, found: bytes) -> None:
        """Count what processes hold, by a sweep (``gpu.sweep``) and the sweep before it."""
        sweep = msgspec.json.decode(found)
        at, held, owners = sweep["started_at"] / _NS, defaultdict[tuple[str, str], int](int), {}
        for process in sweep["processes"]:
            identity = process["pid"], process["start_time"]
            owner, looked = self._owners.get(identity, ("", 0.0))
            if process["memory"] and not (owner and ":" not in owner) and at - looked > _AGAIN_S:
                owner, looked = self._owner(process) or owner, at
            owners[identity] = owner, looked
            for card, memory in process["memory"].items() if owner else ():
                held[owner, card] += memory
        self._owners = owners
        with self._lock:
            if not held.keys() <= self._open.keys():
                # A slice that is newer than the last look.
                self.look()
            elapsed = at - self._held_at if self._held_at else 0.0
            for key in self._held.keys() | held:
                each = self._open.get(key) or self._begin_outside(*key)
                if each is not None:
                    if not each.line.slice:
                        each.line.to = _wall()
                    # Between two sweeps it is taken to change evenly.
                    byte_seconds = (self._held.get(key, 0) + held[key]) / 2 * elapsed
                    each.line.held_gib_hours += byte_seconds / _GIB / _HOUR_S
                    each.line.held_peak_bytes = max(each.line.held_peak_bytes, held[key])
                    self.totals[each.line.user][0] += byte_seconds
            self._held_at, self._held = at, held

    def page(
        self, since: str, after: tuple[str, int] | None, is_wanted: Callable[[UsageLine], bool]
    ) -> dict[str, object]:
        """The wanted lines from a place on that end at this time or later, and the next place.

        A place is a file and an offset in it. The lines that are not complete are the last ones.
        """
        names = [each.name for each in self._files() if each.name[:7] >= since[:7]]
        name, offset = after or ((names or [""])[0], 0)
        lines, following = list[UsageLine](), None
        if name in names:
            with (self._directory / name).open("rb") as file:
                file.seek(max(0, offset))
                chunk = file.read(_CHUNK)
            complete = chunk.rpartition(b"\n")[0] if len(chunk) == _CHUNK else chunk
            lines = list(_lines(self._directory / name, complete))
            later = [each for each in names if each > name]
            following = (later[0], 0) if later else ("", 0)
            if complete != chunk:
                following = name, offset + len(complete) + 1
        else:
            self.look()
            with self._lock:
                lines = [self._open[key].line for key in sorted(self._open)]
            following = ("", offset + 64) if len(lines) > offset + 64 else None
            lines = lines[offset : offset + 64]
        return {"lines": [x for x in lines if x.to >= since and is_wanted(x)], "after": following}

    def _entries(self) -> list[Entry]:
        """The slices; one that is inside another one counts in that one."""
        entries = list(self._ledger.entries.values())
        return [each for each in entries if each.run is not None and not each.run.is_inside]

    def _begin(self, entry: Entry, card: str, now: float) -> _Open:
        """The first line of a slice, from its creation on, or a further one, from now on."""
        record, kind = (entry.run.record, entry.run.kind) if entry.run is not None else ({}, "none")
        created, uid = record.get("boot_time"), int(entry.owner.removeprefix("uid:"))
        begun = now
        if isinstance(created, float) and self._begun < created < now:
            begun = created
        user, from_ = entry.namespace, _wall(now - begun)
        line = UsageLine(user, uid, card, from_, from_, entry.slot, entry.name, kind)
        self._open[entry.slot, card] = _Open(line, begun, begun)
        for each, engine_ns, throttled_ns in self._times(entry) if begun == now else ():
            each.engine_ns, each.throttled_ns = engine_ns, throttled_ns
        return self._open[entry.slot, card]

    def _begin_outside(self, owner: str, card: str) -> _Open | None:
        """A line of programs in no slice; None for a slice that has ended."""
        if ":" not in owner:
            return None
        user, now = user_of(int(owner.removeprefix("uid:"))), _boot_time()
        line = UsageLine(user.name, user.uid, card, _wall(), _wall())
        return self._open.setdefault((owner, card), _Open(line, now, now))

    def _times(self, entry: Entry) -> Iterator[tuple[_Open, int, int]]:
        """The open lines of a slice, with the engine and throttled times of its account."""
        # A slice whose account is damaged has no times.
        with suppress(HamiError, OSError):
            account = self._slots.use(entry.slot)
            for row, card in enumerate(entry.cards):
                each = self._open.get((entry.slot, card.card))
                if each is not None:
                    yield each, account.used_ns[row], account.throttled_ns[row]

    def _owner(self, process: Mapping[str, Any]) -> str | None:
        """The slice of a process, or else its user; None = it has ended.

        A slice of its own user goes first: others may have written the process into their accounts.
        """
        uid, namespace = uid_of(process["pid"]), process["namespace"]
        if uid is None or namespace is None:
            return None
        member, owner = (process["pid_in_namespace"], namespace["inode"]), f"uid:{uid}"
        for entry in sorted(self._entries(), key=lambda entry: entry.owner != owner):
            with suppress(HamiError, OSError):
                inside = self._slots.use(entry.slot).processes
                if any((each.pid, each.pid_namespace) == member for each in inside):
                    return entry.slot
        return owner

    def _files(self) -> list[Path]:
        return sorted(self._directory.glob("????-??.jsonl"))

    def _write(self) -> None:
        # Without the lock: sweeps and requests do not wait for the disk.
        with self._lock:
            ready = [msgspec.json.encode(each) + b"\n" for each in self._ready]
            lines = msgspec.json.encode([each.line for each in self._open.values()])
        path, aside = self._directory / f"{_wall()[:7]}.jsonl", self._directory / "open.new"
        try:
            if ready:
                _append(path, b"".join(ready))
                del self._ready[: len(ready)]
            aside.touch(0o600)
            aside.write_bytes(lines)
            aside.replace(self._directory / _SAVED)
        except OSError as error:
            fix = "free some space, and check that the directory can be written"
            raise StateError(f"usage in {path}", error.strerror or str(error), fix) from error
        self._saved_at = time.monotonic()

    def _restore(self) -> None:
        try:
            saved = (self._directory / _SAVED).read_bytes()
            lines = msgspec.json.decode(saved, type=list[UsageLine])
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            _log.error("what was not written of the usage cannot be read: %s", error)
            return
        files = {each: each.read_bytes() for each in self._files()[-2:]}
        written = {_identity(line) for each in files.items() for line in _lines(*each)}
        self._ready = [each for each in lines if _identity(each) not in written]
        for path, content in files.items():
            if not content.endswith(b"\n"):
                # A line that was cut must not take the next one with it.
                _append(path, b"\n")


def _identity(line: UsageLine) -> tuple[object, ...]:
    return line.slice, line.uid, line.card, line.from_


def _lines(file: Path, content: bytes) -> Iterator[UsageLine]:
    for text in content.splitlines():
        try:
            yield msgspec.json.decode(text, type=UsageLine)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            _log.warning("%s has a line that cannot be read: %.40r", file, text)


def _append(path: Path, lines: bytes) -> None:
    """Append all of the lines, or nothing."""
    path.touch(0o600)
    with path.open("ab", buffering=0) as file:
        size = file.tell()
        try:
            if file.write(lines) < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)
        except OSError:
            file.truncate(size)
            raise


def _boot_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _wall(ago_s: float = 0.0) -> str:
    when = datetime.fromtimestamp(time.time() - ago_s, timezone.utc)
    return when.isoformat(timespec="milliseconds")
