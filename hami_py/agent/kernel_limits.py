"""The driver's limits on the memory of containers (level ``kernel``), beside the limits pages.

A limit is set while the container's first process waits for the hook: memory from before the limit
would not always count. It is on the cgroup of the container itself. A limit on one above it would
stop the same programs, but the driver would show them the whole card.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from hami_py.agent.pods import NodePod, reference
from hami_py.agent.state import NodeState
from hami_py.errors import HamiError, StateError
from hami_py.gpu.memory_limits import backend, read_limits, set_limits
from hami_py.kube import Event
from hami_py.model.pods.settings import KernelLimits as Setting
from hami_py.node.cgroups import cgroup_of, is_populated, own_cgroup
from hami_py.node.ledger import Entry
from hami_py.node.rows import memory_of

_log = logging.getLogger(__name__)


def why_none(setting: Setting) -> str | None:
    """Why the driver does not limit the memory of containers on this node; None = it does."""
    why = None
    if setting == "off":
        why = "the setting kernel_limits is off"
    elif (cgroup := own_cgroup()) is None:
        why = "the pods of the node have no cgroups of version 2"
    else:
        try:
            found = backend(cgroup)
        except HamiError as error:
            _log.warning("no limits by the driver: %s", error)
            return f"the driver was asked for limits, and failed: {error.why}"
        if found is None:
            why = "the node's driver has no memory limits for cgroups"
        elif found == "misc" and setting == "dmem":
            why = "the node has no cgroup controller dmem, and the setting kernel_limits is dmem"
    return why


def limits_enforced(state: NodeState, entry: Entry, pod: NodePod) -> Event:
    """The event that says what enforces the limits of a container."""
    text = f"container {entry.container}: {state.enforcement_of(entry)}"
    return Event(reference(pod), "LimitsEnforced", text, is_warning=False)


class KernelLimits:
    """Sets the limits, and keeps them as the ledger says.

    Args:
        state: what is known of the node.
        write: writes an event soon.
    """

    def __init__(self, state: NodeState, write: Callable[[Event], None]) -> None:
        self._state, self._write = state, write
        self._failing: set[str] = set()
        # Where the driver has failed: it may limit some cards, now or when it answers again.
        self._undecided: dict[Path, dict[str, None]] = {}

    def start(self, slot: str, pid: int) -> None:
        """Limit a container that starts.

        Args:
            slot: its slot.
            pid: its first process, which waits.

        Raises:
            HamiError: the driver does not limit it. An event says so.
        """
        entry = self._state.ledger.entries.get(slot)
        if entry is None:
            raise StateError(f"slot {slot}", "the ledger does not have it", "delete the pod")
        cgroup, limits = None, _limits(entry)
        try:
            cgroup = cgroup_of(pid, entry.owner)
            # First the ledger: the driver must have no limit that nobody follows.
            noted = self._note(slot, cgroup)
            set_limits(cgroup, limits)
        except HamiError as error:
            self._note(slot, None)
            if cgroup is not None:
                self._undecided[cgroup] = dict.fromkeys(limits)
            self._tell(entry, error)
            raise
        pod = self._state.pods.get(entry.owner)
        if noted is not None and pod is not None:
            self._write(limits_enforced(self._state, noted, pod))

    def follow(self) -> None:
        """Set the limits that a resize or another program has changed, and remove unused ones.

        With the back end ``misc``, a smaller limit is refused until the use has fallen.
        """
        for cgroup, none in list(self._undecided.items()):
            with suppress(HamiError):
                if is_populated(cgroup) is not None:
                    set_limits(cgroup, none)
                del self._undecided[cgroup]
        for entry in list(self._state.ledger.entries.values()):
            if entry.cgroup is None:
                continue
            cgroup, limits = Path(entry.cgroup), _limits(entry)
            populated = is_populated(cgroup)
            if populated is None:
                # It has ended, and its limits with it.
                continue
            wanted = limits if populated else dict.fromkeys(limits)
            try:
                if read_limits(cgroup, list(limits)) != wanted:
                    set_limits(cgroup, wanted)
            except HamiError as error:
                # It may have ended meanwhile.
                if entry.slot not in self._failing and is_populated(cgroup):
                    self._failing.add(entry.slot)
                    _log.warning("container %s of %s: %s", entry.container, entry.name, error)
            else:
                self._failing.discard(entry.slot)

    def _note(self, slot: str, cgroup: Path | None) -> Entry | None:
        """Note in the ledger what the driver limits; the entry, None = it was removed."""
        with self._state.lock:
            entry = self._state.ledger.entries.get(slot)
            if entry is None:
                return None
            entry = replace(entry, cgroup=None if cgroup is None else str(cgroup))
            self._state.ledger.put(entry)
            return entry

    def _tell(self, entry: Entry, error: HamiError) -> None:
        pod = self._state.pods.get(entry.owner)
        if pod is None:
            return
        result = "the container starts with the preload library only"
        if entry.isolation == "kernel":
            result = "the container does not start, because the pod accepts no less than kernel"
        text = f"the driver does not limit the memory of container {entry.container}: {error}"
        self._write(Event(reference(pod), "KernelLimitFailed", f"{text}; {result}"))


def grow(before: Entry, after: Entry) -> None:
    """Raise the driver's limits of a container that runs, before its limits page.

    Raises:
        DriverError: the driver refuses, fails or hangs.
    """
    if after.cgroup is not None and is_populated(Path(after.cgroup)):
        old, new = _limits(before), _limits(after)
        set_limits(Path(after.cgroup), {uuid: max(old[uuid] or 0, new[uuid] or 0) for uuid in new})


def shrink(entry: Entry) -> None:
    """Lower them after the page; what fails is repeated by ``follow``."""
    if entry.cgroup is not None:
        with suppress(HamiError):
            set_limits(Path(entry.cgroup), _limits(entry))


def _limits(entry: Entry) -> dict[str, int | None]:
    return {card.card: memory_of(card, entry.mode) for card in entry.seen}
