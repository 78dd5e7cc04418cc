"""The owners of the processes that NVML lists on the cards, in a slice or not.

NVML lists a process by its PID on the host. In a container these numbers name other processes, so
only the memory is known there.
"""

from dataclasses import dataclass

from hami_py.errors import HamiError
from hami_py.slices.processes import command_of, has_host_pids, user_of


@dataclass(frozen=True)
class CardUser:
    """A process on a card.

    Attributes:
        pid: its PID on the host.
        user: the name or the number of the user who runs it; None = unknown.
        memory: bytes that the driver holds for it on the card; None = unknown.
    """

    card: str
    pid: int
    user: str | None
    memory: int | None
    command: tuple[str, ...]


def card_users() -> list[CardUser]:
    """The processes on all cards; none if NVML cannot list them."""
    # Imported here, because they import NVML's bindings (see hami_py.gpu).
    from hami_py.gpu.nvml import patiently  # noqa: PLC0415
    from hami_py.gpu.processes import card_processes  # noqa: PLC0415

    try:
        found = patiently(card_processes)
    except HamiError:
        return []
    is_host = has_host_pids()
    return [
        CardUser(
            each.card,
            each.pid,
            user_of(each.pid) if is_host else None,
            each.memory,
            command_of(each.pid) if is_host else (),
        )
        for each in sorted(found, key=lambda each: -(each.memory or 0))
    ]
