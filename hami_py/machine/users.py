"""The users of the machine, by its databases, which may be on a network.

Nobody waits for a database that is slow or away. A known user is looked up again aside, and stays
known while the database fails. The others wait for a moment, and have no card until it answers.
"""

from __future__ import annotations

import grp
import os
import pwd
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

_FRESH_S = 60.0

_WAIT_S = 0.05

_MOST_THREADS = 16

_MOST_UNKNOWN = 10_000


@dataclass(frozen=True)
class User:
    """A user of the machine.

    Attributes:
        uid: the user's number.
        name: its name; the number where it has none.
        groups: the names of all its groups.
        is_known: whether the databases have the number; None = they have not answered yet. A
            user's subordinate numbers, as in containers, are no users.
    """

    uid: int
    name: str
    groups: frozenset[str] = frozenset()
    is_known: bool | None = True


_found: dict[int, tuple[User, float]] = {}
_asked: dict[int, threading.Event] = {}
_lock = threading.Lock()


def user_of(uid: int) -> User:
    """The user with this number, as the databases knew it in the last minute."""
    user, at = _found.get(uid, (None, float("-inf")))
    if time.monotonic() - at > _FRESH_S:
        asked = _ask(uid)
        if user is None:
            asked.wait(_WAIT_S)
            user, _ = _found.get(uid, (None, 0.0))
    return user or User(uid, str(uid), is_known=None)


def look_up(uid: int) -> User:
    """The user with this number; waits for the databases."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return User(uid, str(uid), is_known=False)
    names = set()
    for gid in os.getgrouplist(entry.pw_name, entry.pw_gid):
        with suppress(KeyError):
            names.add(grp.getgrgid(gid).gr_name)
    return User(uid, entry.pw_name, frozenset(names))


def _ask(uid: int) -> threading.Event:
    """Look a user up in a thread; what is set when it has been."""
    with _lock:
        asked = _asked.get(uid, threading.Event())
        if uid not in _asked and len(_asked) < _MOST_THREADS:
            _asked[uid] = asked
            threading.Thread(target=_remember, args=(uid,), daemon=True).start()
        return asked


def _remember(uid: int) -> None:
    user = User(uid, str(uid), is_known=None)
    with suppress(OSError):
        user = look_up(uid)
    with _lock:
        before, _ = _found.get(uid, (user, 0.0))
        if len(_found) > _MOST_UNKNOWN:
            for each in [each for each, (known, _) in _found.items() if not known.is_known]:
                del _found[each]
        _found[uid] = user if user.is_known else before, time.monotonic()
        _asked.pop(uid).set()
