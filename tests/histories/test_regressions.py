"""Bugs that the histories have found, each in the fewest steps that show it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from hami_py.model import pods
from hami_py.model.pods import wire
from hami_py.scheduler.extender_api import BindArgs
from hami_py.scheduler.settings import Timing
from histories import histories
from histories.assignments import ASSIGNMENT
from histories.election import Election
from histories.fake_api import FakeApi
from histories.faults import LATE_S, Client, Clock, Fate
from histories.reading import CARDS, LABEL
from histories.replica import Replica
from histories.status_errors import Object
from support.extender_calls import filtered

PODS = "/api/v1/namespaces/x/pods"


class Stand:
    """A server with nodes of one card of 10,000 MiB, and replicas that follow it."""

    def __init__(self, *nodes: str) -> None:
        self.api, self.clock = FakeApi(), Clock()
        self.fate = Fate.DONE
        self.meanwhile: Callable[[], object] = lambda: None
        for name in nodes:
            self.do("POST", "/api/v1/nodes", node(name, [card(name, 0)]))

    def replica(self, name: str, lease: Election | None = None) -> Replica:
        def meanwhile() -> None:
            self.meanwhile()

        client = Client(self.api, self.clock, fate=lambda _: self.fate, meanwhile=meanwhile)
        replica = Replica(name, client, self.clock, lease)
        self.tell(replica)
        return replica

    def tell(self, *replicas: Replica) -> None:
        """Their watches are told of everything."""
        for replica in replicas:
            for watch in replica.watches:
                watch.catch_up(self.api.version)

    def do(self, method: str, path: str, body: Object | None = None) -> Object:
        code, answer = self.api.request(method, path, None, body)
        assert code in (200, 201), answer
        return json.loads(answer)  # type: ignore[no-any-return]

    def pod(self, name: str, mib: int = 6000) -> Object:
        limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(mib)}
        spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
        metadata = {"name": name, "labels": LABEL}
        body = {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
        return self.do("POST", PODS, body)

    def filter(self, replica: Replica, pod: Object) -> list[str]:
        names = sorted(name for _, name in self.api.objects["nodes"])
        found = filtered(replica.verbs, pods.decode_pod.convert(pod), names)
        return found.node_names or []

    def bind(self, replica: Replica, pod: Object, node: str) -> str:
        metadata = pod["metadata"]
        asked = BindArgs(metadata["name"], metadata["namespace"], metadata["uid"], node)
        return replica.verbs.bind(asked).error

    def finish_bindings(self, replica: Replica) -> None:
        """Longer than anything is in doubt."""
        self.clock.advance(self.clock.now + 60)
        replica.tick()

    def given(self, pod: Object) -> str | None:
        """The card that a pod has."""
        seen = self.do("GET", f"{PODS}/{pod['metadata']['name']}")
        text = seen["metadata"].get("annotations", {}).get(ASSIGNMENT)
        return str(json.loads(text)["containers"]["main"][0]["card"]) if text else None


def card(node: str, index: int, **more: Any) -> wire.Card:
    return wire.Card(f"GPU-{node}-{index}", index, "NVIDIA A100-SXM4-80GB", 10_000, **more)


def node(name: str, cards: list[wire.Card]) -> Object:
    annotations = {CARDS: pods.encode_cards(tuple(cards))}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": {}}


def test_a_new_leader_waits_until_it_knows_the_pods_of_a_node() -> None:
    stand = Stand("n0")
    old, new = stand.replica("a"), stand.replica("b")
    first, second = stand.pod("first"), stand.pod("second")
    assert stand.filter(old, first) == ["n0"]
    assert stand.bind(old, first, "n0") == ""
    # The lease has changed hands; the watch of the new one has not told yet.
    stand.clock.advance(stand.clock.now + 5)
    assert stand.filter(new, second) == ["n0"]
    assert "the watch has not yet reported that pod x/first is bound" in stand.bind(
        new, second, "n0"
    )
    assert stand.given(second) is None
    stand.tell(new)
    assert stand.filter(new, second) == []


def test_a_new_leader_waits_until_it_knows_the_pods_of_a_namespace_with_a_quota() -> None:
    stand = Stand("n0", "n1")
    hard = {"hard": {"limits.nvidia.com/gpumem": "8000"}}
    path = "/api/v1/namespaces/x/resourcequotas"
    stand.do("POST", path, {"metadata": {"name": "q"}, "spec": hard})
    old, new = stand.replica("a"), stand.replica("b")
    first, second = stand.pod("first"), stand.pod("second")
    assert stand.bind(old, first, "n0") == ""
    stand.clock.advance(stand.clock.now + 5)
    assert stand.filter(new, second) == ["n0", "n1"]
    assert "the watch has not yet reported" in stand.bind(new, second, "n1")


def test_a_permanent_leader_lists_a_node_once() -> None:
    stand = Stand("n0")
    replica = stand.replica("a")
    asked: list[int] = []
    stand.meanwhile = lambda: asked.append(1)
    for number in range(3):
        assert stand.bind(replica, stand.pod(f"p{number}", 1000), "n0") == ""
    # Each request passes by twice: three pods are looked up and bound, one node is looked at.
    assert len(asked) == 2 * (3 + 3 + 1)


@pytest.mark.parametrize("fate", [Fate.BUSY, Fate.LOST])
def test_a_retried_bind_does_not_get_a_card_that_became_too_small(
    fate: Fate,
) -> None:
    stand = Stand("n0")
    replica = stand.replica("a")
    pod = stand.pod("p")
    stand.tell(replica)
    # The node is looked at before the first binding.
    assert stand.bind(replica, stand.pod("small", 1000), "n0") == ""
    stand.fate = fate
    assert "try again later" in stand.bind(replica, pod, "n0")
    stand.fate = Fate.DONE
    two = [card("n0", 0, foreign_mib=5000), card("n0", 1)]
    stand.do("PATCH", "/api/v1/nodes/n0", node("n0", two))
    stand.tell(replica)
    assert stand.filter(replica, pod) == ["n0"]
    assert "no longer fit" in stand.bind(replica, pod, "n0")
    # When the first attempt can no longer take effect, it is placed as any other pod.
    stand.finish_bindings(replica)
    stand.tell(replica)
    assert stand.bind(replica, pod, "n0") == ""
    assert stand.given(pod) == "GPU-n0-1"


def test_a_bind_after_its_deadline_writes_nothing() -> None:
    """The lease may be another's by then."""
    stand = Stand("n0")
    replica = stand.replica("a")
    pod = stand.pod("p")
    stand.meanwhile = lambda: stand.clock.advance(stand.clock.now + 1.5)
    assert "try again later" in stand.bind(replica, pod, "n0")
    stand.meanwhile = lambda: None
    assert stand.given(pod) is None
    before = stand.api.version
    stand.clock.advance(stand.clock.now + 10)
    assert stand.api.version == before


def test_a_binding_in_progress_when_the_lease_is_lost_does_not_overlap_the_next_leaders() -> None:
    """Less than those 5 s apart both would be bound: neither API server nor extender would see."""
    stand = Stand("n0")
    old, new = stand.replica("a"), stand.replica("b")
    first, second = stand.pod("first"), stand.pod("second")
    # So that the node is known to the old one, and only the binding is asked for.
    assert stand.bind(old, stand.pod("small", 1000), "n0") == ""
    stand.tell(old, new)

    def meanwhile() -> None:
        stand.meanwhile = lambda: None
        stand.clock.advance(stand.clock.now + histories.GAP_S[0])
        assert stand.bind(new, second, "n0") == ""

    stand.meanwhile = meanwhile
    assert "try again later" in stand.bind(old, first, "n0")
    assert (stand.given(first), stand.given(second)) == (None, "GPU-n0-0")


def test_writes_of_one_leader_end_before_the_next_starts() -> None:
    assert Timing().bind_s + LATE_S < Timing().handover_s <= histories.GAP_S[0]


def test_a_write_after_its_deadline_does_not_overlap_the_next_leaders() -> None:
    """The lease is handed over while it is under way, and the next one begins as soon as it may."""
    stand = Stand("n0")
    lease = Election(stand.clock, random.Random(0))  # noqa: S311
    stand.api.lease = lease.read
    lease.take("a", 60.0)
    old, new = stand.replica("a", lease), stand.replica("b", lease)
    first, second = stand.pod("first"), stand.pod("second")
    # So that the node is known to the old one, and only the lease is read before the write.
    assert stand.bind(old, stand.pod("small", 1000), "n0") == ""
    stand.tell(old, new)
    stand.clock.advance(stand.clock.now + 1)
    errors: list[str] = []
    passed: list[int] = []

    def meanwhile() -> None:
        passed.append(1)
        if len(passed) == 2:
            # The lease was read; the write is next.
            stand.fate = Fate.LATE
        if len(passed) <= 2:
            return
        stand.meanwhile, stand.fate = lambda: None, Fate.DONE
        lease.take("b", 0.0)
        for _ in range(60):
            errors.append(stand.bind(new, second, "n0"))
            stand.clock.advance(stand.clock.now + 0.1)

    stand.meanwhile = meanwhile
    assert "try again later" in stand.bind(old, first, "n0")
    assert any("the previous one may still be binding" in error for error in errors)
    assert stand.given(first) == "GPU-n0-0"
    assert stand.given(second) is None


def test_a_lease_that_was_deleted_before_the_next_leader_saw_it_had_a_holder() -> None:
    """It is not there at the first look, and what its holder has sent is done late."""
    stand = Stand("n0")
    lease = Election(stand.clock, random.Random(0))  # noqa: S311
    is_there = True
    stand.api.lease = lambda: lease.read() if is_there else None
    lease.take("a", 60.0)
    old, new = stand.replica("a", lease), stand.replica("b", lease)
    first, second = stand.pod("first"), stand.pod("second")
    assert stand.bind(old, stand.pod("small", 1000), "n0") == ""
    stand.tell(old, new)
    stand.clock.advance(stand.clock.now + 1)
    refused: list[str] = []
    requests = iter(range(3))

    def meanwhile() -> None:
        nonlocal is_there
        if (number := next(requests)) == 1:
            stand.fate = Fate.LATE
        elif number == 2:
            stand.meanwhile, stand.fate = (lambda: None), Fate.DONE
            lease.take("b", 0.0)
            is_there = False
            refused.append(stand.bind(new, second, "n0"))
            is_there = True

    stand.meanwhile = meanwhile
    assert "no answer" in stand.bind(old, first, "n0")
    assert "it was first found missing" in refused[0]
    stand.clock.advance(stand.clock.now + 10)
    assert stand.given(first) is not None
    stand.tell(old, new)
    assert stand.bind(new, second, "n0") != ""
    assert stand.given(second) is None


def test_a_pod_that_ended_before_its_event_leaves_nothing() -> None:
    stand = Stand("n0")
    replica = stand.replica("a")
    empty = replica.cluster.allocator.digest()
    pod = stand.pod("p")
    assert stand.bind(replica, pod, "n0") == ""
    stand.do("PATCH", f"{PODS}/p", {"metadata": {}, "status": {"phase": "Succeeded"}})
    stand.api.forget()
    replica.pods.step()
    stand.clock.advance(stand.clock.now + 1)
    stand.tell(replica)
    assert replica.cluster.allocator.digest() == empty


def test_a_pod_created_and_deleted_without_a_watch_leaves_nothing() -> None:
    stand = Stand("n0")
    replica = stand.replica("a")
    empty = replica.cluster.allocator.digest()
    pod = stand.pod("p")
    assert stand.bind(replica, pod, "n0") == ""
    stand.do("DELETE", f"{PODS}/p")
    stand.api.forget()
    replica.pods.step()
    stand.clock.advance(stand.clock.now + 1)
    stand.tell(replica)
    stand.finish_bindings(replica)
    assert replica.cluster.allocator.digest() == empty
