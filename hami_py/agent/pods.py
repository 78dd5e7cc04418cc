"""The pods of the node, as the API server reports them."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from hami_py.errors import HamiError
from hami_py.kube import Reference, Undecoded
from hami_py.model.pods import assignment_of
from hami_py.model.pods.objects import Pod
from hami_py.model.pods.request import pod_containers
from hami_py.model.pods.statuses import DetailedStatus
from hami_py.model.pods.wire import Assignment
from hami_py.node.decision import BoundPod

_log = logging.getLogger(__name__)

_MIRROR = "kubernetes.io/config.mirror"

_REMEMBERED = 1000
"""Deleted pods whose UIDs are remembered: the kubelet's record may have them for a while."""


class NodePod(Pod, frozen=True):
    """A pod with what the agent reads of it."""

    status: DetailedStatus | None = None

    @property
    def created_at(self) -> str | None:
        """When it was created, as the API server writes it."""
        return self.metadata.creation_timestamp

    @property
    def started_at(self) -> tuple[str | None, ...]:
        """When each of its containers started that runs or has ended."""
        states = (self.status or DetailedStatus()).states
        begun = (state.running or state.terminated for state in states)
        return tuple(each.started_at for each in begun if each is not None)

    @property
    def title(self) -> str:
        """Its namespace and name, for messages."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def has_ended(self, container: str) -> bool:
        """Whether a container has ended for good, so that what it had is free.

        The scheduler decides by the same rule whether init containers have ended for good.
        """
        if self.is_over:
            return True
        for init in self.spec.init_containers or ():
            if init.name == container:
                return self.is_started and not init.is_sidecar
        spec = next((each for each in self.spec.containers or () if each.name == container), None)
        if spec is None or spec.restart_policy or spec.restart_policy_rules:
            return False
        status = self.status or DetailedStatus()
        for each in status.container_statuses or ():
            ended = each.state.terminated
            if each.name == container and ended is not None:
                policy = self.spec.restart_policy
                return policy == "Never" or (policy == "OnFailure" and ended.exit_code == 0)
        return False


def reference(pod: NodePod) -> Reference:
    """The pod, for an event."""
    return Reference("Pod", pod.metadata.name, pod.uid, pod.metadata.namespace or "")


def assigned(pod: Pod) -> Assignment | None:
    """The pod's assignment; None if it has none, or one that cannot be read."""
    try:
        return assignment_of(pod)
    except HamiError as error:
        _log.warning("pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, error)
        return None


def bound_pod(pod: NodePod) -> BoundPod | None:
    """The pod with its assignment; None if it has ended, or has none that can be read."""
    assignment = None if pod.is_over else assigned(pod)
    if assignment is None:
        return None
    return BoundPod(assignment, {each.name: each.kind for each in pod_containers(pod)})


class PodStore:
    """The node's pods, by UID; a receiver for a reflector.

    Args:
        changed: called after each change.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.is_listed = False
        self._pods: dict[str, NodePod] = {}
        self._deleted: OrderedDict[str, None] = OrderedDict()
        self._arrived = threading.Condition()
        self._changed = changed

    def all(self) -> list[NodePod]:
        """All pods of the node, also ended ones."""
        with self._arrived:
            return list(self._pods.values())

    def get(self, uid: str) -> NodePod | None:
        """The pod with this UID, if it is known."""
        with self._arrived:
            return self._pods.get(uid)

    def is_over(self, uid: str) -> bool:
        """Whether it is known that a pod has ended or was deleted."""
        with self._arrived:
            pod = self._pods.get(uid)
            return uid in self._deleted if pod is None else pod.is_over

    def wait(self, which: str | tuple[str, str], timeout_s: float) -> NodePod | None:
        """The pod with this UID, or namespace and name, once it is known; None = not in time."""

        def find() -> NodePod | None:
            for pod in self._pods.values():
                if which in (pod.uid, (pod.metadata.namespace, pod.metadata.name)):
                    return pod
            return None

        with self._arrived:
            return self._arrived.wait_for(find, timeout_s)

    def mirror(self, uid: str) -> NodePod | None:
        """The API server's copy of a static pod; the kubelet has the pod under this other UID."""
        return next((pod for pod in self.all() if pod.annotations.get(_MIRROR) == uid), None)

    def replace(self, objects: list[NodePod], undecoded: Sequence[Undecoded] = ()) -> None:
        """Take a whole list."""
        with self._arrived:
            there = {pod.uid: pod for pod in objects}
            for item in undecoded:
                known = self._pods.get(item.metadata.uid or "")
                if known is not None:
                    there[known.uid] = known
            for uid in self._pods.keys() - there.keys():
                self._forget(uid)
            self._pods = there
            self.is_listed = True
            self._arrived.notify_all()
        self._changed()

    def changed(self, item: NodePod) -> None:
        """Take a pod that is new or changed."""
        with self._arrived:
            self._pods[item.uid] = item
            self._arrived.notify_all()
        self._changed()

    def undecoded(self, item: Undecoded) -> None:
        """Take a pod that cannot be decoded: what was known of it stays."""
        _log.warning("pod %s cannot be decoded: %s", item.name, item.why)

    def deleted(self, item: NodePod | Undecoded) -> None:
        """Take the deletion of a pod."""
        uid = item.metadata.uid or ""
        with self._arrived:
            self._pods.pop(uid, None)
            self._forget(uid)
        self._changed()

    def _forget(self, uid: str) -> None:
        self._deleted[uid] = None
        while len(self._deleted) > _REMEMBERED:
            self._deleted.popitem(last=False)
