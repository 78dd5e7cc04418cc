"""Why a pod waits, in one line.

The cards decide first, by the allocator that the extender uses, because kube-scheduler's own
message may be minutes old. If the cards fit, kube-scheduler's message has the reason.
"""

from __future__ import annotations

from hami_py.cluster.view import ClusterView
from hami_py.errors import HamiError
from hami_py.model import legible, pods
from hami_py.model.pods import objects
from hami_py.overview.objects import SeenPod
from hami_py.overview.report import WaitingPod

_USUAL = frozenset({"ContainerCreating", "PodInitializing"})
"""Reasons of containers that only need time."""

NOT_TRIED = "no scheduler has tried it yet"


def is_waiting(pod: SeenPod) -> bool:
    """Whether it does not run and has not ended."""
    phase = pod.status.phase if pod.status is not None else None
    return phase in (None, "Pending") and pod.metadata.deletion_timestamp is None


def waiting_pod(pod: SeenPod, view: ClusterView | None, settings: pods.PodSettings) -> WaitingPod:
    """Why a pod that waits does not run; see ``unbound_pod``."""
    node = pod.spec.node_name
    if node:
        metadata = pod.metadata
        return WaitingPod(metadata.namespace or "", metadata.name, node, _starting(pod))
    return unbound_pod(pod, view, settings)


def unbound_pod(
    pod: objects.Pod, view: ClusterView | None, settings: pods.PodSettings
) -> WaitingPod:
    """Why a pod is not bound to a node; ``view`` is None if the nodes cannot be read."""
    namespace, name = pod.metadata.namespace or "", pod.metadata.name
    if (reason := _beside_cards(pod, settings)) is not None:
        return WaitingPod(namespace, name, None, reason)
    try:
        refusals = view.refusals(pod) if view is not None else None
    except HamiError as error:
        return WaitingPod(namespace, name, None, str(error))
    if refusals is None or refusals.fits:
        return WaitingPod(namespace, name, None, _message(pod))
    # The nodes that the pod may use have the reason, however many others there are.
    reasons = refusals.of_cards or refusals.closed or refusals.unselected
    if not reasons:
        return WaitingPod(namespace, name, None, "no node has cards")
    reason = min(reasons, key=lambda reason: (-reasons[reason], reason))
    return WaitingPod(namespace, name, None, reason, reasons[reason], refusals.nodes)


def _beside_cards(pod: objects.Pod, settings: pods.PodSettings) -> str | None:
    """Why it would wait with any cards."""
    if pod.gates:
        return f"it has scheduling gates: {', '.join(map(legible, pod.gates))}"
    scheduler = pod.spec.scheduler_name or objects.DEFAULT_SCHEDULER
    if settings.schedulers and scheduler not in settings.schedulers:
        return f"its scheduler is {legible(scheduler)}, which does not assign cards"
    return None


def _message(pod: objects.Pod) -> str:
    """The reason that kube-scheduler has reported."""
    said = pod.unscheduled
    if said is None or not said.message:
        return NOT_TRIED
    # Its later sentences are about preemption.
    return legible(said.message.partition(". ")[0])


def _starting(pod: SeenPod) -> str:
    """Why the containers of a bound pod do not run."""
    for state in pod.waits_for:
        if state.reason and state.reason not in _USUAL:
            return f"{state.reason}: {legible(state.message)}" if state.message else state.reason
    return "its containers are being created"
