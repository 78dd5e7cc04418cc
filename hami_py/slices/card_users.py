"""The owners of the processes that NVML lists on the cards, in a slice or not.

NVML lists a process by its PID on the host. In a container these numbers name other processes, so
only the memory is known there.
"""

import pwd
from dataclasses import dataclass
from pathlib import Path

from hami_py.errors import HamiError
from hami_py.slices.processes import command_of, has_host_pids

_NOBODY = 65534
"""The user that the kernel reports for one who does not exist in our user namespace."""

_ALL_USERS = ["0", "0", "4294967295"]
"""``/proc/self/uid_map`` of the host's user namespace, in which every user exists."""


@dataclass(frozen=True)
class CardUser:
    """A process on a card.

    Attributes:
        card: the card's UUID.
        pid: its PID on the host.
        user: the name or the number of the user who runs it; None = unknown.
        memory: bytes that the driver holds for it on the card; None = unknown.
        command: its command line; empty if it is unknown.
    """

    card: str
    pid: int
    user: str | None
    memory: int | None
    command: tuple[str, ...]


def card_users() -> list[CardUser]:
    """The processes on all cards; none if NVML cannot list them."""
    # Imported here, because they import NVML's bindings (see hami_py.gpu).
    from hami_py.gpu.nvml import patiently, session  # noqa: PLC0415
    from hami_py.gpu.processes import CardProcess, card_processes  # noqa: PLC0415

    def read() -> list[CardProcess]:
        with session():
            return card_processes()

    try:
        found = patiently(read)
    except HamiError:
        return []
    is_host = has_host_pids()
    return [
        CardUser(
            each.card,
            each.pid,
            _user_of(each.pid) if is_host else None,
            each.memory,
            command_of(each.pid) if is_host else (),
        )
        for each in sorted(found, key=lambda each: -(each.memory or 0))
    ]


def _user_of(pid: int) -> str | None:
    # The owner of /proc/<pid> is root if the process may not be debugged.
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return None
    uid = next((int(line.split()[1]) for line in status.splitlines() if line[:4] == "Uid:"), None)
    if uid is None:
        return None
    if uid == _NOBODY and Path("/proc/self/uid_map").read_text().split() != _ALL_USERS:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
