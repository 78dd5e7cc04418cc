"""Everything that the agent writes to the API server.

It needs a thread of its own: the API server may be away for minutes. In the usual case a
pod costs no write: the binding has written its assignment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from hami_py.agent.pods import assigned
from hami_py.agent.publication import publish
from hami_py.agent.resize import Resizer
from hami_py.agent.settings import AgentSettings
from hami_py.agent.state import NodeState
from hami_py.errors import HamiError
from hami_py.kube import ApiServer, Event, EventWriter, Reference, patch_metadata
from hami_py.model.pods import encode_assignment
from hami_py.model.pods.annotations import ASSIGNMENT

__all__ = ["Reporter"]

_log = logging.getLogger(__name__)

_DEADLINE_S = 10.0


class Reporter:
    """Compares what the API server shows with what the agent knows, and writes the difference.

    Args:
        api: the API server.
        settings: how the agent runs.
        state: what is known of the node.
        events: writes events.
    """

    def __init__(
        self, api: ApiServer, settings: AgentSettings, state: NodeState, events: EventWriter
    ) -> None:
        self._api, self._settings, self._state, self._events = api, settings, state, events
        self._resizer = Resizer(api, settings.pods, state)

    @property
    def steps(self) -> tuple[Callable[[], None], ...]:
        """What is compared and written, to be done again and again."""
        return self._publish, self._resize, self.publish_assignments, self._report_mode

    def _publish(self) -> None:
        publish(self._api, self._state, self._settings.pods.profiles[0])

    def _resize(self) -> None:
        for pod in self._resizer.requests():
            try:
                event = self._resizer.judge(pod)
            except HamiError as error:
                # It is tried again; those of other pods may succeed now.
                _log.warning("pod %s: its resize: %s", pod.title, error)
            else:
                if event is not None:
                    self._events.write(event)

    def publish_assignments(self) -> None:
        """Write the assignments of pods whose limits were changed; the scheduler follows them."""
        for uid, assignment in list(self._state.ledger.changed.items()):
            pod = self._state.pods.get(uid)
            if pod is None or pod.is_over or assigned(pod) == assignment:
                continue
            # The annotations hami.io/gpumem… stay: variables refer to them, and the limits pages
            # have recorded what these say.
            annotations = {ASSIGNMENT: encode_assignment(assignment)}
            path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
            try:
                patch_metadata(self._api, path, annotations=annotations, deadline_s=_DEADLINE_S)
            except HamiError as error:
                # Those of other pods may be accepted.
                _log.warning("pod %s: its assignment: %s", pod.title, error)

    def _report_mode(self) -> None:
        """Running containers keep the limits of the mode that they were started in."""
        mode = self._state.mode()
        others = {entry.mode for entry in self._state.ledger.entries.values()} - {mode}
        if others and self._state.node.node is not None:
            before = ", ".join(sorted(others))
            text = f"new pods get limits as on nodes of mode {mode}; running ones keep {before}"
            name = self._settings.node
            self._events.write(Event(Reference("Node", name, name), "ModeChanged", text))
