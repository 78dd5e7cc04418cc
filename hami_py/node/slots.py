"""The slots of a node: created, opened, changed and removed.

The limits page of a slot stays open for writing as long as the slot exists. A user of the container
who is the file's owner on the node could otherwise take a lease on it (``F_SETLEASE``), and delay
the next change.
"""

import os
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from hami_py._native import ACCOUNT_SIZE, Account, AccountSnapshot, LimitRow, LimitsPage
from hami_py.config import ACCOUNT, LIBRARY_NAME, LIMITS
from hami_py.errors import HamiError, StateError
from hami_py.node import slot
from hami_py.node.paths import Paths

_MOST_BLOCKS = (2 << 20) // 512
"""Blocks of 512 bytes of an account: a huge page, which a tmpfs may allocate."""

_FRESH_S = 1.0
"""Several parts look at all accounts once a second, and each account has hundreds of KiB."""


class Slots:
    """All slots of a node. The callers serialise the calls that change a slot.

    Args:
        paths: the node's directories.
    """

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._pages: dict[str, LimitsPage] = {}
        self._uses: dict[str, tuple[float, AccountSnapshot | None]] = {}
        self._uses_since = float("-inf")
        paths.slots.mkdir(mode=0o755, exist_ok=True)
        for left in paths.runtime.glob(f"{slot.TEMPORARY}*"):
            # A process was killed while it created or removed a slot.
            shutil.rmtree(left, ignore_errors=True)
        for name in self.names():
            # A damaged one is replaced when its container starts again.
            with suppress(HamiError, OSError):
                self._page(name)

    def names(self) -> set[str]:
        """The names of the slots that exist."""
        return {path.name for path in self._paths.slots.iterdir()}

    def ensure(
        self,
        name: str,
        rows: Sequence[LimitRow],
        gang: bytes | None = None,
        finish: Callable[[Path], None] = slot.open_to_all,
        *,
        is_shared: bool = False,
    ) -> None:
        """Make a slot exist, with these limits.

        A slot that works is kept, with its account: the container's last processes may still hold
        memory. A damaged one is replaced.

        Args:
            name: the slot.
            rows: the limits.
            gang: the gang of a slot that is created; one that is kept keeps its own.
            finish: as for ``slot.create``.
            is_shared: another container uses it: it is not replaced.

        Raises:
            StateError: it cannot be created, or replaced.
        """
        path = self._paths.slots / name
        if self._works(name, rows):
            self.set_limits(name, rows)
            return
        if is_shared and os.path.lexists(path):
            fix = "delete all pods that share its claims"
            raise StateError(f"slot {name}", "it is damaged, and another container has it", fix)
        self.remove(name)
        slot.create(path, rows, gang, finish)
        self._pages[name] = LimitsPage.open(path / LIMITS)

    def set_limits(self, name: str, rows: Sequence[LimitRow]) -> None:
        """Set the limits of a slot's cards; they are in force when this returns.

        Raises:
            HamiError: its limits page is damaged.
            OSError: it cannot be opened.
        """
        page = self._page(name)
        page.set_memory_limits({row.uuid: row.memory_limit for row in rows})
        page.set_regimes({row.uuid: (row.share, row.mode, row.priority) for row in rows})

    @property
    def device(self) -> int:
        """The device of the file system that the slots are on."""
        return self._paths.slots.stat().st_dev

    def page_inode(self, name: str) -> int:
        """The inode of a slot's limits page; 0 = unknown."""
        with suppress(OSError):
            return (self._paths.slots / name / LIMITS).stat().st_ino
        return 0

    def rows(self, name: str) -> list[LimitRow]:
        """The limits that are in force in a slot.

        Raises:
            HamiError: its limits page is damaged.
            OSError: it cannot be opened.
        """
        return self._page(name).rows()

    def use(self, name: str) -> AccountSnapshot:
        """What the processes of a slot use, by its account.

        The processes of the container write the account, so it may be damaged or untrue.

        Raises:
            HamiError: it is damaged.
            OSError: it cannot be opened.
        """
        return Account.open(self._paths.slots / name / ACCOUNT).snapshot()

    def use_at(self, name: str) -> tuple[float, AccountSnapshot | None]:
        """The usage of a slot, at most a second old, and when it was read, in monotonic seconds.

        None: its account cannot be read.
        """
        now = time.monotonic()
        if now - self._uses_since > _FRESH_S:
            self._uses, self._uses_since = {}, now
        uses = self._uses
        if name not in uses:
            use = None
            with suppress(HamiError, OSError):
                use = self.use(name)
            uses[name] = time.monotonic(), use
        return uses[name]

    def cut_account(self, name: str) -> tuple[int, int] | None:
        """Cut an account that a process has made longer: its device and inode; else None.

        The processes of a slot may write its account, so they may also fill the file system.
        """
        path = self._paths.slots / name / ACCOUNT
        with suppress(OSError):
            status = path.lstat()
            # fallocate(2) can reserve blocks behind the end, too.
            if status.st_size > ACCOUNT_SIZE or status.st_blocks > _MOST_BLOCKS:
                os.truncate(path, ACCOUNT_SIZE)
                return status.st_dev, status.st_ino
        return None

    def remove(self, name: str) -> None:
        """Remove a slot; nothing if it does not exist."""
        self._pages.pop(name, None)
        path = self._paths.slots / name
        if not os.path.lexists(path):
            return
        # In one step, so that nobody sees a part of it.
        aside = self._paths.runtime / f"{slot.TEMPORARY}removed-{name}"
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def _page(self, name: str) -> LimitsPage:
        page = self._pages.get(name)
        if page is None:
            page = self._pages[name] = LimitsPage.open(self._paths.slots / name / LIMITS)
        return page

    def _works(self, name: str, rows: Sequence[LimitRow]) -> bool:
        """Whether a slot can be kept for a container with these cards."""
        path = self._paths.slots / name
        with suppress(HamiError, OSError):
            # The container runtime makes a directory where the source of a mount was missing.
            complete = all(stat.S_ISREG((path / file).lstat().st_mode) for file in slot.FILES)
            complete = complete and not stat.S_ISDIR((path / LIBRARY_NAME).lstat().st_mode)
            same = [row.uuid for row in self._page(name).rows()] == [row.uuid for row in rows]
            self.use(name)
            return complete and same
        self._pages.pop(name, None)
        return False
