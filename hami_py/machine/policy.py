"""Who may use which cards of the machine, and how much of each: ``/etc/hami/machine.toml``.

    sum = "strict"             # the slices of all users fit on a card; or "shared"

    [default]                  # users that no other table names
    gpumem = "8GiB"            # of each card, for all slices of a user together
    gpucores = 30              # percent of its time
    mode = "soft"

    [group.students]           # the first group in the file that a user is in
    cards = [0]                # indexes or UUIDs; "all", "none"
    gpumem = "4GiB"

    [user.alice]
    gpumem = "none"            # no limit but the card's own size

A user gets the table that names the user, else that of a group, else the default. Users with a UID
below 1000 belong to the system, and get no limit unless a table names them.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from hami_py.errors import HamiError, InvalidValue, StateError
from hami_py.machine.users import User
from hami_py.model import LimitRequest, parse_options
from hami_py.model.names import parse_address

POLICY = Path("/etc/hami/machine.toml")

_FIRST_USER = 1000
"""The first UID of people; lower ones are the system's (login.defs(5), ``UID_MIN``)."""

_NOT_OTHERS = stat.S_IWGRP | stat.S_IWOTH

_SETTLED_S = 1.0
"""A file that is being written may be a shorter policy for a moment."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Grant:
    """The cards, limits and slices that the policy allows a user.

    Attributes:
        limits: of each card, for all slices of the user together.
        cards: indexes or UUIDs; None = all, empty = none.
        slices: the most slices at one time.
        why: the table that says so, for messages.
    """

    limits: LimitRequest = field(default_factory=LimitRequest)
    cards: Collection[str] | None = None
    slices: int = 32
    why: str = "no table of the policy"

    @property
    def is_unlimited(self) -> bool:
        """Whether it limits nothing."""
        return self.limits.is_empty and self.cards is None


@dataclass(frozen=True)
class Policy:
    """The contents of the policy file.

    Attributes:
        sum: ``strict``: the slices of all users fit on a card. ``shared``: they may be more.
        bypass: what is done with a process that uses a card without its limits.
        see: users and groups, these as ``@name``, that see all slices; root always does.
        metrics: the address and the port where metrics are served; None = nowhere.
        users: by name or number.
        groups: by name, in the order of the file.
    """

    sum: Literal["strict", "shared"] = "shared"
    bypass: Literal["report", "kill"] = "report"
    see: Collection[str] = ()
    metrics: tuple[str, int] | None = None
    default: Grant = field(default_factory=Grant)
    groups: Mapping[str, Grant] = field(default_factory=dict)
    users: Mapping[str, Grant] = field(default_factory=dict)

    def grant(self, user: User) -> Grant:
        """The grant of a user, by the first table that applies."""
        named = self.users.get(user.name) or self.users.get(str(user.uid))
        if named is not None:
            return named
        for name, grant in self.groups.items():
            if name in user.groups:
                return grant
        if user.uid < _FIRST_USER:
            return Grant(why=f"users below {_FIRST_USER} have no limit")
        if user.is_known is None:
            return Grant(cards=(), why="the rule while the user database does not answer")
        return (
            self.default
            if user.is_known
            else Grant(cards=(), why="the rule for numbers without a user")
        )

    def sees_all(self, user: User) -> bool:
        """Whether a user sees the slices of others."""
        groups = {f"@{name}" for name in user.groups}
        return user.uid == 0 or bool({user.name, str(user.uid), *groups} & set(self.see))


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cards: Literal["all", "none"] | list[int | str] = "all"
    gpumem: str = "none"
    gpucores: int | str = "none"
    mode: str | None = None
    priority: str | None = None
    slices: int = 32


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sum: Literal["strict", "shared"] = "shared"
    bypass: Literal["report", "kill"] = "report"
    see: list[str] = []
    metrics: str | None = None
    default: dict[str, object] = {}
    group: dict[str, dict[str, object]] = {}
    user: dict[str, dict[str, object]] = {}


class FollowedPolicy:
    """The policy, read again when its file has changed.

    Args:
        path: the policy.
        kept: where the last policy that was read is kept: it holds while the file is refused, also
            after a reboot.

    Attributes:
        before: the policy that held when the service ended; None = it never ran.

    Raises:
        HamiError: the policy is refused, and none was kept.
    """

    def __init__(self, path: Path, kept: Path) -> None:
        self._path, self._kept = path, kept
        self.before: Policy | None = None
        self._text = b""
        with suppress(OSError, HamiError):
            text = kept.read_bytes()
            self.before, self._text = _policy(path, text), text
        self._policy, self._version = self.before, self._seen()
        self._changing = self._version, time.monotonic()
        self._read()

    def now(self) -> Policy:
        """The policy; the last good one while the file is refused, which is logged."""
        version, now = self._seen(), time.monotonic()
        if version != self._changing[0]:
            self._changing = version, now
        if version != self._version and now - self._changing[1] >= _SETTLED_S:
            self._version = version
            self._read()
        # The first reading has succeeded, or raised.
        return self._policy or Policy()

    def _read(self) -> None:
        try:
            content = _content(self._path)
            if self._text.strip() and not (content or b"").strip():
                fix = "write `[default]`, if nobody shall have a limit"
                raise StateError(str(self._path), "it is empty or missing", fix)
            policy = _policy(self._path, content)
        except HamiError as error:
            if self._policy is None:
                raise
            _log.error("%s; the policy before it holds", error)
            return
        self._policy, self._text = policy, content or b""
        aside = self._kept.with_suffix(".new")
        try:
            aside.write_bytes(self._text)
            aside.replace(self._kept)
        except OSError as error:
            _log.error("%s: %s; after a reboot a refused policy stops the service", aside, error)

    def _seen(self) -> tuple[int, ...]:
        with suppress(OSError):
            status = self._path.stat()
            return status.st_ino, status.st_size, status.st_mtime_ns
        return ()


def read_policy(path: Path = POLICY) -> Policy:
    """Read the policy. Without the file, nobody has a limit.

    Raises:
        StateError: others than root may write it, it cannot be read, or it is no TOML.
        InvalidValue: a value is refused; the message has the file and the line.
    """
    return _policy(path, _content(path))


def _content(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(str(path), error.strerror or str(error), "correct its path") from error
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & _NOT_OTHERS:
        fix = f"run `chown root {path}` and `chmod 644 {path}`"
        raise StateError(str(path), "others than root may write it", fix)
    return content


def _policy(path: Path, content: bytes | None) -> Policy:
    if content is None:
        return Policy()
    try:
        text = content.decode()
        found = msgspec.toml.decode(text)
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise StateError(str(path), str(error), "write TOML, as docs/machine.md shows") from error
    where = _Where(path, text)
    read = where.converted((), found, _File)
    groups, users = (
        {name: _grant(where, (kind, name), table) for name, table in tables.items()}
        for kind, tables in (("group", read.group), ("user", read.user))
    )
    default = _grant(where, ("default",), read.default)
    metrics = None
    if read.metrics is not None:
        try:
            metrics = parse_address("metrics", read.metrics, "127.0.0.1:9385")
        except InvalidValue as error:
            raise where.refused((), error.field, error.value, error.fix) from error
    return Policy(read.sum, read.bypass, tuple(read.see), metrics, default, groups, users)


def _grant(where: _Where, keys: tuple[str, ...], content: Mapping[str, object]) -> Grant:
    table = where.converted(keys, content, _Table)
    try:
        if table.slices < 1:
            raise InvalidValue("slices", str(table.slices), "write a number from 1 on")
        sizes, shares = (table.gpumem,), (str(table.gpucores),)
        limits = parse_options(sizes, shares, table.mode, table.priority)
    except InvalidValue as error:
        raise where.refused(keys, error.field, error.value, error.fix) from error
    cards: Collection[str] | None = None if table.cards == "all" else ()
    if isinstance(table.cards, list):
        cards = tuple(map(str, table.cards))
    return Grant(limits, cards, table.slices, f"[{'.'.join(keys)}] in {where.path}")


_Read = TypeVar("_Read", bound=msgspec.Struct)


@dataclass(frozen=True)
class _Where:
    """The file, to say in which line a value is refused."""

    path: Path
    text: str

    def converted(self, table: tuple[str, ...], content: object, kind: type[_Read]) -> _Read:
        try:
            return msgspec.convert(content, kind)
        except msgspec.ValidationError as error:
            # Such as: Expected `str`, got `int` - at `$.mode`
            what, _, at = str(error).partition(" - at `$.")
            unknown = re.search(r"unknown field `(.*)`", what)
            key = unknown[1] if unknown else re.split(r"[.\[`]", at)[0]
            fix = "remove it, or mend its name" if unknown else f"mend it: {what}"
            value = content.get(key, "") if isinstance(content, Mapping) else ""
            raise self.refused(table, key, str(value), fix) from error

    def refused(self, table: tuple[str, ...], key: str, value: str, fix: str) -> InvalidValue:
        field = ".".join((*table, key))
        return InvalidValue(f"{self.path}, line {self._line(table, key)}: {field}", value, fix)

    def _line(self, table: tuple[str, ...], key: str) -> int:
        """The line of a key; that of its table where the key is not found."""
        words = (rf"[\"']?{re.escape(each)}[\"']?" for each in table)
        header = re.compile(r"\s*\[\s*" + r"\s*\.\s*".join(words) + r"\s*\]")
        is_inside, found = not table, 1
        for number, line in enumerate(self.text.splitlines(), 1):
            if line.lstrip().startswith("["):
                is_inside = bool(table) and header.match(line) is not None
                found = number if is_inside else found
            elif is_inside and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
                return number
        return found
