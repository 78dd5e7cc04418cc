"""Changing the limits of running pods, as their annotation ``hami.io/resize`` requests.

A request is judged once, against the node and against the quotas of the pod's namespace. Then the
limits are in the ledger and in force, the assignment follows, and an event says so. A request that
is refused changes nothing, and an event gives the reason. The annotation stays, so the ledger keeps
which request was judged.
"""

import hashlib
import logging
from collections.abc import Callable

import msgspec

from hami_py.agent.kernel_limits import grow, shrink
from hami_py.agent.pods import NodePod, assigned, reference
from hami_py.agent.state import NodeState
from hami_py.errors import HamiError, InvalidValue
from hami_py.kube import ApiServer, Event, list_objects, patch_metadata
from hami_py.model.pods import PodSettings, encode_assignment, objects, read_quota
from hami_py.model.pods.annotations import ASSIGNMENT, LABELS, RESIZE
from hami_py.model.pods.resize import decode_resize, resized
from hami_py.model.pods.wire import Assignment, CardAllocation, Quota, Resize
from hami_py.node.resizing import refusal, with_cards

_log = logging.getLogger(__name__)

_DEADLINE_S = 10.0


class Refused(HamiError):
    """A resize is refused."""


class Resizer:
    """Applies the requests of the node's pods.

    Args:
        api: the API server.
        settings: how pods and quotas are read.
        state: what is known of the node.
        write: writes an event soon.
    """

    def __init__(
        self,
        api: ApiServer,
        settings: PodSettings,
        state: NodeState,
        write: Callable[[Event], None],
    ) -> None:
        self._api, self._settings, self._state, self._write = api, settings, state, write

    def follow(self) -> None:
        """Judge the requests that were not judged yet, and tell the result."""
        for pod in self._state.pods.all():
            text, judged = pod.annotations.get(RESIZE), self._state.ledger.judged.get(pod.uid)
            if pod.is_over or text is None or judged == _digest(text):
                continue
            try:
                event = self._judge(pod)
            except HamiError as error:
                # It is tried again; those of other pods may succeed now.
                _log.warning("pod %s: its resize: %s", pod.title, error)
            else:
                if event is not None:
                    self._write(event)

    def publish(self) -> None:
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

    def _judge(self, pod: NodePod) -> Event | None:
        """Judge the request of a pod, and apply it; what to tell, None = its limits are so already.

        Raises:
            KubeError: its quotas cannot be read now; it is not judged.
            StateError: the ledger cannot be written; it is not judged.
        """
        text, event = pod.annotations[RESIZE], None
        try:
            if self._apply(pod, decode_resize(text)):
                said = "its limits were changed"
                event = Event(reference(pod), "Resized", said, is_warning=False)
        except (InvalidValue, Refused) as error:
            said = f"pod {pod.title}: {error}; write another request"
            said = said if isinstance(error, InvalidValue) else str(error)
            event = Event(reference(pod), "ResizeRefused", said, repeats=True)
        with self._state.lock:
            self._state.ledger.put(judged={pod.uid: _digest(text)})
        return event

    def _apply(self, pod: NodePod, resize: Resize) -> bool:
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
            why_and_fix = refusal(self._state.view(), pod.uid, cards)
            if why_and_fix is not None:
                raise Refused(f"pod {pod.title}", *why_and_fix)
            self._change(pod, bound.assignment, cards)
        return True

    def _change(
        self, pod: NodePod, shown: Assignment, cards: dict[str, tuple[CardAllocation, ...]]
    ) -> None:
        ledger = self._state.ledger
        before = [
            entry
            for entry in ledger.entries.values()
            if entry.owner == pod.uid and entry.container in cards
        ]
        after = [msgspec.structs.replace(entry, cards=cards[entry.container]) for entry in before]
        ledger.put(*after, changed={pod.uid: with_cards(shown, cards)})
        try:
            for old, entry in zip(before, after, strict=True):
                # The driver never refuses what the page allows.
                grow(old, entry)
                self._state.set_limits(entry)
                shrink(entry)
        except (HamiError, OSError) as error:
            # Its containers may use the old page, so it is not replaced.
            ledger.put(*before, changed={pod.uid: shown})
            fix = "create the pod again with other limits"
            raise Refused(f"pod {pod.title}", f"its limits: {error}", fix) from error

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
            if not each.is_over and each.uid != pod.uid and (assignment := assigned(each))
        ]
        for quota in quotas:
            _check_quota(quota, others, before, after)


def _check_quota(
    quota: Quota, others: list[Assignment], before: Assignment, after: Assignment
) -> None:
    for name, most, unit in (
        ("memory_mib", quota.memory_mib, "MiB"),
        ("cores", quota.cores, "% of a card's time"),
    ):
        used = sum(_total(assignment, name) for assignment in others)
        wanted = _total(after, name)
        if most is not None and wanted > _total(before, name) and used + wanted > most:
            why = f"quota {quota.name} allows {most} {unit}, and {used + wanted} would be allocated"
            raise Refused(f"namespace {quota.namespace}", why, "request less, or raise the quota")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _total(assignment: Assignment, name: str) -> int:
    return sum(getattr(card, name) for cards in assignment.containers.values() for card in cards)
