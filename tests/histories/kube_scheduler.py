"""kube-scheduler, as far as an extender sees it.

It knows the cluster by its own informers, which lag in their own way. A pod is filtered and scored
in one loop. Its binding is a separate task, and meanwhile the pod counts as bound (is assumed). A
failed pod is retried after 1 s, doubled up to 10 s. A pod that fits nowhere may preempt others
(``preemption``), and waits for an event. The real kube-scheduler would retry it after five minutes
without an event; here it waits forever, so that a missing event is noticed. Scores are not
requested if one node is left.

The events are the creation, change and deletion of nodes and storage classes, and the binding and
end of pods. kube-scheduler ignores quotas and other changes of pods.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from hami_py.model import pods
from hami_py.model.pods import Pod
from hami_py.scheduler.extender_api import BindArgs, FilterResult
from histories.claims import Claims, Promise, keeps_its_place
from histories.fake_api import FakeApi
from histories.faults import Clock, Killed
from histories.preemption import Check, Preemption
from histories.replica import Replica
from histories.status_errors import Object, Refused
from support.extender_calls import filtered, rated

BACKOFF_S = (1.0, 10.0)

Key = tuple[str, str]

Keeps = Callable[[Promise], None]
"""Told of what was promised when that is due."""


@dataclass
class Binding:
    """A binding that is to be asked for.

    Attributes:
        key: the pod.
        uid: its UID.
        node: where.
        due: when what is claimed for the pod is bound.
        is_good: whether it is.
        asked: the extender that has chosen the node.
        promise: the cards, if they have to be there then.
    """

    key: Key
    uid: str
    node: str
    due: float
    is_good: bool
    asked: Replica
    promise: Promise | None


class KubeScheduler:
    """One kube-scheduler, from its acquisition of the lease until it notices the loss.

    Args:
        alone_at: when no write of another one can still be in progress.

    Attributes:
        extender: its extender.
        bindings: pods that are filtered and scored, and not yet bound.
        is_leading: false once it has lost the lease. It may make calls until it notices.
        is_still: true while it is paused; it continues later.
        has_ended: true once the process has ended.
        has_asked: true once it has called filter.
    """

    def __init__(
        self,
        api: FakeApi,
        clock: Clock,
        chance: random.Random,
        extender: Replica,
        *,
        check: Check,
        keeps: Keeps,
        alone_at: float,
    ) -> None:
        self.extender = extender
        self.bindings: list[Binding] = []
        self.is_leading = True
        self.is_still = False
        self.has_ended = False
        self.has_asked = False
        self._alone_at = alone_at
        self._keeps = keeps
        self._api = api
        self._clock = clock
        self._chance = chance
        self._preemption = Preemption(api, chance, check)
        self._claims = Claims(api, chance)
        self._assumed: dict[str, str] = {}
        """Pods that are to be bound, and where."""
        self._attempts: dict[str, int] = {}
        self._ready_at: dict[Key, float] = {}
        """Pods that are to be tried, and from when on."""
        self._waiting: set[Key] = set()
        """Pods that fit nowhere."""
        self._pods: dict[Key, Object] = {}
        self._nodes: set[str] = set()
        self._at = 0
        self._list()

    def look(self, most: int | None = None) -> None:
        """The informers are told of so many events."""
        try:
            events = self._api.since(self._at)[:most]
        except Refused:
            self._list()
            return
        for event in events:
            self._at = event.version
            told = msgspec.json.decode(event.line)
            if event.kind == "pods":
                if self._told_of_pod(event.type, told["object"]):
                    self._wake()
            elif event.kind == "nodes":
                name = told["object"]["metadata"]["name"]
                (self._nodes.discard if event.type == "DELETED" else self._nodes.add)(name)
                self._wake()
            elif event.kind == "storageclasses":
                self._wake()

    def next_at(self) -> float | None:
        """When there is something to try."""
        later = [task.due for task in self.bindings if task.due > self._clock.now]
        return min([*self._ready_at.values(), *later], default=None)

    def schedule_one(self) -> str | None:
        """Filters and scores one pod; says what came of it."""
        now = self._clock.now
        ready = sorted(key for key, at in self._ready_at.items() if at <= now)
        if not ready or self.extender.is_dead:
            return None
        key = self._chance.choice(ready)
        del self._ready_at[key]
        pod = self._pods[key]
        name = f"{'/'.join(key)} ({pod['metadata']['uid'][:8]})"
        if pod["metadata"].get("deletionTimestamp"):
            return f"filter {name}: not any more"
        asked = pods.decode_pod.convert(pod)
        self.has_asked = True
        found = self._filter(pod, asked)
        nodes = found.node_names or []
        if found.error:
            self._claims.failed(pod, found.error)
            self._back_off(key, pod["metadata"]["uid"])
            return f"filter {name}: {found.error}"
        if not nodes:
            self._claims.failed(pod, "nowhere")
            self._waiting.add(key)
            verbs = self.extender.verbs
            did = self._preemption.attempt(pod, found.failed_nodes, self._on, verbs)
            return f"filter {name}: nowhere" + (f"; {did}" if did else "")
        node, is_held = self._best(asked, nodes)
        uid = pod["metadata"]["uid"]
        self._assumed[uid] = node
        promise = None
        knows_all = now >= self._alone_at and self.extender.knows_all(self._api.version)
        if is_held and keeps_its_place(pod) and knows_all:
            promise = Promise(self._api, pod, node)
        lasts_s, is_good = self._claims.begin(pod, node)
        due = now + lasts_s
        self.bindings.append(Binding(key, uid, node, due, is_good, self.extender, promise))
        waits = f" in {lasts_s} s" if lasts_s else ""
        return f"filter {name}: {nodes}, chosen {node}{waits}"

    def bind_one(self) -> str | None:
        """Asks for one binding, whichever goroutine comes first."""
        due = [task for task in self.bindings if task.due <= self._clock.now]
        if not due or self.extender.is_dead or self.extender.is_reading_lease:
            return None
        task = self._chance.choice(due)
        self.bindings.remove(task)
        namespace, name = task.key
        error = "what it claims is not bound"
        if task.is_good:
            # Another leader knows nothing of it.
            is_due = self.is_leading and task.asked is self.extender
            if task.promise is not None and is_due:
                self._keeps(task.promise)
            try:
                answer = self.extender.verbs.bind(BindArgs(name, namespace, task.uid, task.node))
                error = answer.error
            except Killed:
                error = "connection refused"
        if error and not self.has_ended:
            self._assumed.pop(task.uid, None)
            pod = self._pods.get(task.key)
            if pod and pod["metadata"]["uid"] == task.uid and not pod["spec"].get("nodeName"):
                self._claims.failed(pod, error)
                self._back_off(task.key, task.uid)
        return f"bind {'/'.join(task.key)} ({task.uid[:8]}) to {task.node}: {error or 'done'}"

    def _filter(self, pod: Object, asked: Pod) -> FilterResult:
        nominated = self._preemption.node_of(pod)
        if nominated in self._nodes:
            found = filtered(self.extender.verbs, asked, [nominated])
            if found.node_names:
                return found
        return filtered(self.extender.verbs, asked, sorted(self._nodes))

    def _on(self, node: str) -> list[Object]:
        """The pods on a node, and those that are being bound there."""
        return [
            pod
            for pod in self._pods.values()
            if (pod["spec"].get("nodeName") or self._assumed.get(pod["metadata"]["uid"])) == node
            and pod["status"]["phase"] in ("Pending", "Running")
        ]

    def _best(self, pod: Pod, nodes: list[str]) -> tuple[str, bool]:
        """The node that is chosen, and whether it is the one that the extender found best."""
        if len(nodes) == 1:
            return nodes[0], True
        scores = rated(self.extender.verbs, pod, nodes)
        # Other plugins have a say, too.
        if self._chance.random() < 0.2:
            return self._chance.choice(nodes), False
        most = max(score.score for score in scores)
        return self._chance.choice([score.host for score in scores if score.score == most]), True

    def _list(self) -> None:
        self._at = self._api.version
        self._nodes = {name for _, name in self._api.objects["nodes"]}
        self._pods = dict(self._api.objects["pods"])
        waits = {key: 0.0 for key, pod in self._pods.items() if self._is_to_do(pod)}
        self._ready_at = {**waits, **{k: v for k, v in self._ready_at.items() if k in waits}}
        self._waiting = set()

    def _told_of_pod(self, type_: str, pod: Object) -> bool:
        """Says whether others may have room for it, as far as kube-scheduler knows."""
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        uid = pod["metadata"]["uid"]
        before = self._pods.get(key, {"spec": {}})
        # Its informer follows pods that are not over: one that ends is deleted to it.
        is_gone = type_ == "DELETED" or pod["status"]["phase"] not in ("Pending", "Running")
        if is_gone:
            self._pods.pop(key, None)
        else:
            self._pods[key] = pod
        if is_gone or pod["spec"].get("nodeName"):
            self._ready_at.pop(key, None)
            self._waiting.discard(key)
            self._assumed.pop(uid, None)
        elif self._is_to_do(pod) and key not in self._waiting:
            self._ready_at.setdefault(key, 0.0)
        was_bound, is_bound = (bool(one["spec"].get("nodeName")) for one in (before, pod))
        return was_bound if is_gone else is_bound and not was_bound

    def _is_to_do(self, pod: Object) -> bool:
        return (
            not pod["spec"].get("nodeName")
            and not pod["metadata"].get("deletionTimestamp")
            and pod["metadata"]["uid"] not in self._assumed
        )

    def _wake(self) -> None:
        for key in sorted(self._waiting):
            self._back_off(key, self._pods[key]["metadata"]["uid"])
        self._waiting = set()

    def _back_off(self, key: Key, uid: str) -> None:
        tried = self._attempts[uid] = self._attempts.get(uid, 0) + 1
        pause = min(BACKOFF_S[0] * 2 ** (tried - 1), BACKOFF_S[1])
        self._ready_at[key] = self._clock.now + pause
