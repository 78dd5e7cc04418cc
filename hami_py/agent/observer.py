"""Looks once a second which processes use the cards, and reports those that no allocation explains.

It needs a thread of its own, because NVML may hang. The agent publishes the foreign
memory with the cards, so that the scheduler does not allocate it.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hami_py.agent.pods import reference
from hami_py.agent.state import NodeState
from hami_py.errors import DamagedFile, HamiError
from hami_py.gpu.inventory import inventory
from hami_py.gpu.nvml import session
from hami_py.gpu.processes import CardProcess, card_processes, memory_used
from hami_py.gpu.sweep import identity_of, look
from hami_py.kube import Event, Reference
from hami_py.node.drift import BEYOND_MIB, Finding, Kind, Observed, Program, excess, findings
from hami_py.node.ledger import Entry
from hami_py.node.library import check_format
from hami_py.node.processes import kill_container, mapped_files, pod_of
from hami_py.node.rows import UNENFORCED

_log = logging.getLogger(__name__)

_MIB = 1 << 20

_STEP_MIB = 256
"""Foreign memory is published in steps, so that its small changes cost no write."""

_TWICE = 2
"""A process may be on a card for a moment before it is in its account."""

_READ_AGAIN_S = 30.0
"""How often the cards are read again, while one of them has not answered yet."""

_SHOWN = 100
"""Characters of a command line in a message."""

REPORTS: Mapping[Kind, tuple[str, str]] = {
    "bypass": (
        "BypassesLimits",
        " without limits: it does not load the preload library, or the container's account is "
        "damaged; use a dynamically linked glibc program",
    ),
    "covered": (
        "CoversLimits",
        " with other limits than its container's: a mount in the container covers the files in "
        "/usr/local/hami; remove that mount, or the link in the image that leads there",
    ),
    "unallocated": (
        "UsesUnallocatedCard",
        ", which is not allocated to its pod; check NVIDIA_VISIBLE_DEVICES in its image, and the "
        "container toolkit's settings",
    ),
    "foreign": ("ForeignProcess", " outside of all pods"),
}
"""The reason of the event, and how its message about the use of a card ends."""


class Observer:
    """Observes the processes on the cards of the node.

    Attributes:
        found: the findings of the last look that are reported.
        used: the bytes in use by card, by NVML; without the cards that did not answer.
        beyond: by pod and card, the bytes beyond the pod's limits; None = outside of all pods.
    """

    def __init__(
        self,
        state: NodeState,
        write: Callable[[Event], None],
        node: Reference,
        changed: Callable[[], None],
        *,
        slots: int,
        killed: Collection[Kind] = (),
    ) -> None:
        self.found: list[Finding] = []
        self.used: dict[str, int] = {}
        self.beyond: dict[tuple[str | None, str], int] = {}
        self._state, self._write, self._node, self._changed = state, write, node, changed
        self._slots, self._killed = slots, killed
        self._read_at = time.monotonic()
        self._seen: Counter[tuple[Kind, str, int]] = Counter()
        self._known: dict[int, Observed] = {}

    def observe(self) -> None:
        """Look once.

        Raises:
            HamiError: NVML fails, and the processes on the cards are unknown.
        """
        try:
            # A session for each look: NVML finds a card again only when no session is open.
            with session():
                self._add_cards()
                self.used = memory_used()
                processes = card_processes()
        except HamiError:
            self.used = {}
            raise
        self.look(processes)

    def _add_cards(self) -> None:
        """Publish a card that has answered for the first time since the agent started."""
        cards = self._state.cards
        if not cards.are_complete and time.monotonic() - self._read_at > _READ_AGAIN_S:
            self._read_at = time.monotonic()
            if cards.add(inventory(self._slots)):
                self._changed()

    def look(self, processes: list[CardProcess]) -> None:
        """Compare these processes with what is allocated."""
        device = self._state.slots.device
        found = (_observed(each, self._known.get(each.pid), device) for each in processes)
        observed = [each for each in found if each is not None]
        entries = list(self._state.ledger.entries.values())
        members, pages = {}, {}
        on_cards = {each.pod for each in observed}
        for entry in entries:
            if entry.pod.uid in on_cards:
                listed = self._members(entry)
                if listed is not None:
                    members[entry.slot] = listed
                pages[entry.slot] = self._state.slots.page_inode(entry.slot)
        # One that ends may still hold memory, and has no command and no maps any more.
        live = [each for each in observed if each.program and each.program[1]]
        now = findings(live, entries, members, pages)
        keys = {(each.kind, each.process.card, each.process.pid): each for each in now}
        self._seen = Counter({key: self._seen[key] + 1 for key in keys})
        self.found = [keys[key] for key, times in self._seen.items() if times >= _TWICE]
        for finding in self.found:
            self._report(finding)
        # What is mapped may change, and is read again of those that are reported.
        reported = {finding.process.pid for finding in now}
        self._known = {each.pid: each for each in observed if each.pid not in reported}
        self._note_excess(excess(observed, entries), entries)

    def _members(self, entry: Entry) -> set[tuple[int, int]] | None:
        """The processes in a container's account; None = this agent cannot read it."""
        use = self._state.use(entry.slot)
        try:
            # Files of an unknown format look damaged.
            check_format(Path(entry.library))
            use = use or self._state.slots.use(entry.slot)
        except DamagedFile:
            # A program could truncate its account so that others need not be in it.
            return set()
        except (HamiError, OSError):
            return None
        return {(each.pid, each.pid_namespace) for each in use.processes}

    def _note_excess(self, beyond: dict[tuple[str | None, str], int], entries: list[Entry]) -> None:
        limited = {entry.pod.uid for entry in entries if entry.mode not in UNENFORCED}
        foreign: Counter[str] = Counter()
        for key, amount in beyond.items():
            uid, card = key
            foreign[card] += amount
            pod = self._state.pods.get(uid) if uid is not None else None
            lasts = min(amount, self.beyond.get(key, 0)) > BEYOND_MIB * _MIB
            if lasts and pod is not None and uid in limited:
                text = (
                    f"its processes hold more memory of card {card} than its limits allow, by "
                    "NVML; hami_pod_excess_memory_bytes says how much; see its other events, and "
                    "docs/security.md (Memory that is not limited)"
                )
                self._write(Event(reference(pod), "ExceedsLimits", text))
        self.beyond = beyond
        step = _STEP_MIB * _MIB
        steps = {card: -(-amount // step) * _STEP_MIB for card, amount in foreign.items()}
        if self._state.cards.set_foreign(steps):
            self._changed()

    def _report(self, finding: Finding) -> None:
        process = finding.process
        what = f"process {process.pid} ({process.command})"
        pod = self._state.pods.get(process.pod) if process.pod is not None else None
        about = reference(pod) if pod is not None else self._node
        reason, end = REPORTS[finding.kind]
        # Without the amount, which changes: an equal event is not written again.
        text = f"{what} uses card {process.card}{end}"
        is_same = _program(process.pid) == process.program
        if finding.kind in self._killed and process.pod is not None and is_same:
            _log.warning("killed the container of %s", what)
            kill_container(process.pid, process.pod)
            text += "; all processes of its container were killed (hami node --kill)"
        self._write(Event(about, reason, text))


def _observed(process: CardProcess, before: Observed | None, device: int) -> Observed | None:
    """What ``/proc`` shows of a process; None if it has ended. It is read once for each program."""
    memory = process.memory or 0
    program = _program(process.pid)
    if program is None:
        return None
    if before is not None and before.program == program:
        return replace(before, card=process.card, memory=memory)
    here = Path(f"/proc/{process.pid}")
    try:
        pod = pod_of((here / "cgroup").read_text(errors="replace"))
        command = (here / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    identity = identity_of(process.pid)
    member = None
    if identity is not None and identity.namespace is not None:
        member = (identity.pid_in_namespace, identity.namespace.inode)
    shown = "".join(each if each.isprintable() else "?" for each in command.strip()[:_SHOWN])
    mapped = mapped_files(process.pid, device) if pod is not None else None
    return Observed(process.card, process.pid, memory, pod, member, shown, mapped, program)


def _program(pid: int) -> Program | None:
    """A key that changes when a process executes a program; None if it has ended.

    The auxiliary vector has random addresses, which are chosen anew by ``execve``. It is empty when
    the process is ending.
    """
    seen, auxiliary = look(pid), b""
    with suppress(OSError):
        auxiliary = Path(f"/proc/{pid}/auxv").read_bytes()
    return (seen.start_time, auxiliary) if seen is not None else None
