"""Reports the processes that use cards without limits: events, and on request their end."""

import logging
from collections.abc import Callable, Collection, Mapping

from hami_py.agent.pods import reference
from hami_py.agent.state import NodeState
from hami_py.kube import Event, Reference
from hami_py.node.drift import Finding, Kind
from hami_py.node.levels import enforcement
from hami_py.node.observer import Observer, program_of
from hami_py.node.processes import kill_container

_log = logging.getLogger(__name__)

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


_OF_OTHERS: Mapping[Kind, tuple[str, str]] = {
    "unallocated": (
        "UsesUnallocatedCard",
        " without limits: its container has no hami.io/limits; label its namespace "
        "hami.io/owner=others, and create the pod again",
    ),
}
"""The same on a node whose cards others allocate, where it differs."""


class Reports:
    """Reports what an observer has found.

    Args:
        state: what is known of the node.
        observer: looks before each report.
        write: writes an event soon.
        node: the node.
        killed: the findings for which the container is killed.
    """

    def __init__(
        self,
        state: NodeState,
        observer: Observer,
        write: Callable[[Event], None],
        node: Reference,
        *,
        killed: Collection[Kind] = (),
    ) -> None:
        self._state, self._observer, self._killed = state, observer, killed
        self._write, self._node = write, node

    def report(self) -> None:
        """Report the last look. An equal event is not written again."""
        for finding in self._observer.found:
            self._report(finding)
        entries = list(self._state.ledger.entries.values())
        limited = {
            entry.owner
            for entry in entries
            if enforcement(entry.mode, mig=entry.mig).level != "none"
        }
        for uid, card in self._observer.exceeding:
            pod = self._state.pods.get(uid) if uid is not None and uid in limited else None
            if pod is not None:
                text = (
                    f"its processes hold more memory of card {card} than its limits allow, by "
                    "NVML; hami_pod_excess_memory_bytes says how much; see its other events, and "
                    "docs/security.md (Memory that is not limited)"
                )
                self._write(Event(reference(pod), "ExceedsLimits", text))

    def _report(self, finding: Finding) -> None:
        process = finding.process
        what = f"process {process.pid} ({process.command})"
        pod = self._state.pods.get(process.owner) if process.owner is not None else None
        about = reference(pod) if pod is not None else self._node
        of_owner = REPORTS if self._state.owner == "hami" else {**REPORTS, **_OF_OTHERS}
        reason, end = of_owner[finding.kind]
        # Without the amount, which changes: an equal event is not written again.
        text = f"{what} uses card {process.card}{end}"
        is_same = program_of(process.pid) == process.program
        if finding.kind in self._killed and process.owner is not None and is_same:
            _log.warning("killed the container of %s", what)
            kill_container(process.pid, process.owner)
            text += "; all processes of its container were killed (hami node --kill)"
        self._write(Event(about, reason, text))
