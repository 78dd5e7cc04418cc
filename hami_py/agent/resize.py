"""Changing the limits of running pods, as their annotation ``hami.io/resize`` requests.

A request is judged once, against the node and against the quotas of the pod's namespace. Then the
limits are in the ledger and in force, the assignment follows, and an event says so. A request that
is refused changes nothing, and an event gives the reason.
"""

from __future__ import annotations

import logging

import msgspec

from hami_py.agent.pods import NodePod
from hami_py.agent.state import NodeState
from hami_py.errors import HamiError, InvalidValue
from hami_py.kube import ApiServer, list_objects
from hami_py.model.pods import PodSettings, assignment_of, objects, read_quota
from hami_py.model.pods.annotations import LABELS, RESIZE
from hami_py.model.pods.resize import decode_resize, resized
from hami_py.model.pods.wire import Assignment, CardAllocation, Quota
from hami_py.node.resizing import refusal, with_cards

__all__ = ["Refused", "Resizer"]

_log = logging.getLogger(__name__)

_DEADLINE_S = 10.0


class Refused(HamiError):
    """A resize is refused: request less, or retry when other pods have ended."""


class Resizer:
    """Applies the requests of the node's pods.

    Args:
        api: the API server.
        settings: how pods and quotas are read.
        state: what is known of the node.
    """

    def __init__(self, api: ApiServer, settings: PodSettings, state: NodeState) -> None:
        self._api, self._settings, self._state = api, settings, state
        # By pod, the request that was judged last.
        self._judged: dict[str, str] = {}

    def requests(self) -> list[NodePod]:
        """The pods whose request was not judged yet."""
        pods = {pod.uid: pod for pod in self._state.pods.all()}
        self._judged = {uid: text for uid, text in self._judged.items() if uid in pods}
        return [
            pod
            for uid, pod in pods.items()
            if not pod.is_over and pod.annotations.get(RESIZE) not in (None, self._judged.get(uid))
        ]

    def apply(self, pod: NodePod) -> bool:
        """Judge the request of a pod, and apply it; False: its limits are so already.

        Raises:
            Refused: it is refused.
            KubeError: its quotas cannot be read now; it is not judged.
            StateError: the ledger cannot be written; it is not judged.
        """
        text = pod.annotations[RESIZE]
        try:
            changed = self._apply(pod, text)
        except (InvalidValue, Refused) as error:
            self._judged[pod.uid] = text
            if isinstance(error, Refused):
                raise
            raise Refused(f"pod {pod.title}", str(error), "write another request") from error
        self._judged[pod.uid] = text
        return changed

    def _apply(self, pod: NodePod, text: str) -> bool:
        resize = decode_resize(text)
        bound = self._state.bound(pod)
        if bound is None:
            raise Refused(f"pod {pod.title}", "no card was assigned to it", "remove the annotation")
        cards = resized(bound.assignment, resize)
        if not cards:
            return False
        self._check_quotas(pod, bound.assignment, with_cards(bound.assignment, cards))
        with self._state.lock:
            # It may have changed meanwhile, and other pods too.
            bound = self._state.bound(pod) or bound
            cards = resized(bound.assignment, resize)
            why = refusal(self._state.view(), pod.uid, cards)
            if why is not None:
                fix = "request less, or retry when other pods have ended"
                raise Refused(f"pod {pod.title}", why, fix)
            self._change(pod.uid, cards, with_cards(bound.assignment, cards))
        return True

    def _change(
        self, uid: str, cards: dict[str, tuple[CardAllocation, ...]], assignment: Assignment
    ) -> None:
        entries = [
            msgspec.structs.replace(entry, cards=cards[entry.container])
            for entry in self._state.ledger.entries.values()
            if entry.pod.uid == uid and entry.container in cards
        ]
        self._state.ledger.put(*entries, changed={uid: assignment})
        for entry in entries:
            self._state.ensure_slot(entry)

    def _check_quotas(self, pod: NodePod, before: Assignment, after: Assignment) -> None:
        """Compare what the namespace has, with the change, with its quotas of HAMi's names.

        Kubernetes' own quotas count what pods request, which does not change.
        """
        namespace = f"/api/v1/namespaces/{pod.metadata.namespace}"
        listed, _ = list_objects(
            self._api, f"{namespace}/resourcequotas", objects.ResourceQuota, deadline_s=_DEADLINE_S
        )
        quotas = [quota for each in listed if (quota := read_quota(each, self._settings))]
        if not quotas:
            return
        selector = ",".join(f"{key}={value}" for key, value in LABELS.items())
        pods, _ = list_objects(
            self._api,
            f"{namespace}/pods",
            objects.Pod,
            query={"labelSelector": selector},
            deadline_s=_DEADLINE_S,
        )
        others = [
            assignment
            for each in pods
            if not each.is_over and each.uid != pod.uid and (assignment := _assignment(each))
        ]
        for quota in quotas:
            _check_quota(quota, others, before, after)


def _check_quota(
    quota: Quota, others: list[Assignment], before: Assignment, after: Assignment
) -> None:
    for name, most in (("memory_mib", quota.memory_mib), ("cores", quota.cores)):
        used = sum(_total(assignment, name) for assignment in others)
        wanted = _total(after, name)
        if most is not None and wanted > _total(before, name) and used + wanted > most:
            unit = "MiB" if name == "memory_mib" else "% of a card's time"
            why = f"quota {quota.name} allows {most} {unit}, and {used + wanted} would be allocated"
            raise Refused(f"namespace {quota.namespace}", why, "request less, or raise the quota")


def _total(assignment: Assignment, name: str) -> int:
    return sum(getattr(card, name) for cards in assignment.containers.values() for card in cards)


def _assignment(pod: objects.Pod) -> Assignment | None:
    try:
        return assignment_of(pod)
    except HamiError as error:
        _log.warning("pod %s: %s", pod.metadata.name, error)
        return None
