"""Everything that the agent writes to the API server, in a thread of its own.

The API server may be away for minutes; nothing else of the agent waits for it. In the usual case a
pod costs no write: the binding has written its assignment.
"""

from __future__ import annotations

import logging
import threading
import time

from hami_py.agent.holds import Holds
from hami_py.agent.pods import NodePod, reference
from hami_py.agent.publication import publish, resources
from hami_py.agent.resize import Refused, Resizer
from hami_py.agent.settings import AgentSettings
from hami_py.agent.state import NodeState
from hami_py.errors import HamiError
from hami_py.kube import ApiServer, Event, EventWriter, Reference, patch_metadata
from hami_py.model.pods import assignment_of, encode_assignment
from hami_py.model.pods.annotations import ASSIGNMENT
from hami_py.model.pods.wire import Assignment

__all__ = ["Reporter"]

_log = logging.getLogger(__name__)

_DEADLINE_S = 10.0

_AGAIN_S = 5.0
"""When an assignment is written again. The watch shows a write a moment after it has succeeded."""


class Reporter:
    """Compares what the API server shows with what the agent knows, and writes the difference.

    Args:
        api: the API server.
        settings: how the agent runs.
        state: what is known of the node.
        holds: the containers that wait.
        events: writes events.
    """

    def __init__(
        self,
        api: ApiServer,
        settings: AgentSettings,
        state: NodeState,
        holds: Holds,
        events: EventWriter,
    ) -> None:
        self._api, self._settings, self._state = api, settings, state
        self._holds, self._events = holds, events
        self._resizer = Resizer(api, settings.pods, state)
        self._written: dict[str, tuple[Assignment, float]] = {}
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="report", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(_DEADLINE_S)

    def wake(self) -> None:
        """Look soon: something has changed."""
        self._wake.set()

    @property
    def is_running(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        steps = (
            *(self._publish, self._resize, self.publish_assignments),
            *(self._report_holds, self._report_mode),
        )
        while not self._stopping.is_set():
            for step in steps:
                try:
                    step()
                except HamiError as error:
                    _log.warning("%s", error)
                except Exception:
                    _log.exception("reporting")
            self._wake.wait(self._settings.period_s)
            self._wake.clear()

    def _publish(self) -> None:
        state, node = self._state, self._state.node.node
        if node is None or not state.pods.is_listed:
            return
        profile = self._settings.pods.profiles[0]
        publish(self._api, node, state.published_cards(), resources(state, profile))

    def _resize(self) -> None:
        for pod in self._resizer.requests():
            try:
                if self._resizer.apply(pod):
                    self._tell(pod, "Resized", "its limits were changed", is_warning=False)
            except Refused as error:
                why = Event(reference(pod), "ResizeRefused", str(error), repeats=True)
                self._events.write(why)
            except HamiError as error:
                # It is tried again; those of other pods may succeed now.
                _log.warning("pod %s: its resize: %s", pod.title, error)

    def _tell(self, pod: NodePod, reason: str, message: str, *, is_warning: bool = True) -> None:
        self._events.write(Event(reference(pod), reason, message, is_warning=is_warning))

    def publish_assignments(self) -> None:
        """Write assignments that have changed on the node; the scheduler follows them."""
        done = {}
        for uid, assignment in list(self._state.ledger.changed.items()):
            pod = self._state.pods.get(uid)
            written, at = self._written.get(uid, (None, 0.0))
            # Until the watch shows the last one written, it may show one from before.
            is_shown = written in (None, assignment) and pod is not None and _shows(pod, assignment)
            if pod is None or pod.is_over or is_shown:
                done[uid] = assignment
                self._written.pop(uid, None)
                continue
            if written == assignment and time.monotonic() - at < _AGAIN_S:
                continue
            try:
                self._write_assignment(pod, assignment)
                self._written[uid] = (assignment, time.monotonic())
            except HamiError as error:
                # Those of other pods may be accepted.
                _log.warning("pod %s: its assignment: %s", pod.title, error)
        if done and self._state.pods.is_listed:
            with self._state.lock:
                self._state.ledger.published(done)

    def _write_assignment(self, pod: NodePod, assignment: Assignment) -> None:
        # The annotations hami.io/gpumem… stay: variables refer to them, and the limits pages have
        # recorded what these say.
        annotations = {ASSIGNMENT: encode_assignment(assignment)}
        patch_metadata(self._api, _path(pod), annotations=annotations, deadline_s=_DEADLINE_S)

    def _report_holds(self) -> None:
        pods = self._state.pods
        self._holds.keep(pod.uid for pod in pods.all() if not pod.is_over)
        for held in self._holds.all():
            pod = pods.get(held.pod)
            if pod is not None:
                message = f"container {held.container} waits: {held.hold.reason}; {held.hold.fix}"
                topic = f"container {held.container}; {held.hold.fix}"
                self._events.write(Event(reference(pod), "WaitingForCard", message, topic=topic))

    def _report_mode(self) -> None:
        """Running containers keep the limits of the mode that they were started in."""
        mode = self._state.mode()
        others = {entry.mode for entry in self._state.ledger.entries.values()} - {mode}
        if others and self._state.node.node is not None:
            before = ", ".join(sorted(others))
            text = f"new pods get limits as on nodes of mode {mode}; running ones keep {before}"
            name = self._settings.node
            self._events.write(Event(Reference("Node", name, name), "ModeChanged", text))


def _path(pod: NodePod) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"


def _shows(pod: NodePod, assignment: Assignment) -> bool:
    try:
        return assignment_of(pod) == assignment
    except HamiError:
        return False
