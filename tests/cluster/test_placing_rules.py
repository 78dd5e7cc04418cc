"""An operator's settings for nodes, cards, namespaces and priorities, and their effect on pods."""

from collections.abc import Iterator

import pytest

from cluster import objects, waiting
from cluster.api import Api, Object
from cluster.extended import card, node
from cluster.objects import PODS, QUOTAS
from cluster.placing import NODE_POLICY, USE, Placing, asks


@pytest.fixture(scope="module", autouse=True)
def others(placing_cluster: Placing) -> None:
    """Another namespace, and pods of other priorities."""
    api = placing_cluster.api
    api.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    for name, value in (("low", 10), ("high", 1000)):
        priority_class(api, name, value)


def priority_class(api: Api, name: str, value: int) -> None:
    """One that may be named by pods."""
    api.create(
        "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value}
    )
    waiting.takes(api, objects.pod(priorityClassName=name))


def annotate(**said: str | None) -> Object:
    """A patch of annotations in the domain hami.io."""
    return {"metadata": {"annotations": {f"hami.io/{name}": text for name, text in said.items()}}}


def test_an_unschedulable_node_gets_no_pod_and_its_pods_count(placing: Placing) -> None:
    """Of card a 60 % are given before and of card b 50 % while a is closed: afterwards 51 % fit
    on neither. Percentages, which only the extender adds up."""
    placing.add(*(node(name, [card(name, 0)]) for name in "ab"))
    placing.fill("GPU-a-0", asks(percent=60))
    placing.change("a", {"spec": {"unschedulable": True}})
    placing.place("one", asks(percent=30), {NODE_POLICY: "binpack"})
    assert placing.node("one") == "b"
    assert "node(s) were unschedulable" in placing.refuse("two", asks(percent=40), {USE: "GPU-a-0"})
    placing.place("three", asks(percent=20))
    assert placing.node("three") == "b"
    placing.write("a", {"spec": {"unschedulable": None}})
    # It waited, and 60 + 40 are a card.
    assert placing.node("two") == "a"
    assert "too little memory" in placing.refuse("four", asks(percent=51))
    placing.place("five", asks(percent=50))
    assert placing.given()[0] == {"GPU-a-0": 10_000, "GPU-b-0": 10_000}


def test_a_cordoned_card_gets_no_pod_and_its_pods_count(placing: Placing) -> None:
    placing.add(node("a", [card("a", 0), card("a", 1)]))
    placing.fill("GPU-a-0", asks(6000))
    placing.change("a", annotate(cordon="GPU-a-0"))
    placing.place("one", asks(3000))
    assert placing.cards("one") == ["GPU-a-1"]
    assert "cordoned" in placing.refuse("two", asks(3000, cards=2))
    placing.change("a", annotate(cordon="all"))
    assert "cordoned" in placing.refuse("three", asks(1000))
    placing.write("a", annotate(cordon=None))
    assert set(placing.cards("two")) == {"GPU-a-0", "GPU-a-1"}
    placing.cards("three")
    assert "too little memory" in placing.refuse("four", asks(1001), {USE: "GPU-a-0"})
    placing.place("five", asks(1000), {USE: "GPU-a-0"})


def test_a_quota_of_the_namespace_is_enforced(placing: Placing) -> None:
    """A share counts as what it is on the card that was chosen."""
    placing.add(node("a", [card("a", index) for index in range(4)]))
    quota = {"metadata": {"name": "gpus"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "8000"}}}
    placing.api.create(QUOTAS, quota)
    placing.sync_extender()
    placing.place("one", asks(percent=50))
    second = asks(percent=40)
    why = placing.refuse("two", second)
    assert "quota gpus of namespace default allows 8000 MiB: 5000 in use, 4000 requested" in why
    # Another namespace has its own.
    other = placing.api.create("/api/v1/namespaces/other/pods", objects.pod("two", second))
    path = f"/api/v1/namespaces/other/pods/{other['metadata']['name']}"
    waiting.until(
        lambda: placing.api.get(path)["spec"].get("nodeName"), "the other namespace's is bound"
    )
    placing.api.delete(path, grace_seconds=0)
    placing.api.delete(f"{PODS}/one", grace_seconds=0)
    placing.grants("two")


def preempt(placing: Placing, name: str, limits: Object) -> None:
    """A pod of high priority, once it is bound to a card from which others were evicted."""
    placing.create(name, limits, priorityClassName="high")
    waiting.bound(placing.api, name)


def there(placing: Placing) -> set[str]:
    return {pod["metadata"]["name"] for pod in placing.api.list(PODS)}


def test_as_many_are_evicted_as_one_card_needs(placing: Placing) -> None:
    """8000 beside 5000 + 4000 on each of two cards. kube-scheduler sees a sum of both and would be
    content with one pod of each; a card has room only without both of its own."""
    placing.add(node("a", [card("a", 0), card("a", 1)]))
    for index in range(2):
        for mib in (5000, 4000):
            placing.fill(f"GPU-a-{index}", asks(mib), priorityClassName="low")
    preempt(placing, "high", asks(8000))
    memory, _ = placing.given()
    (mine,) = placing.cards("high")
    assert memory[mine] == 8000
    assert max(memory.values()) <= 10_000


BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
def budget(placing: Placing) -> Iterator[Object]:
    """The labels of pods of which a disruption budget lets none go."""
    labels = {"app": "protected"}
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": labels}}
    placing.api.create(BUDGETS, {"metadata": {"name": "none"}, "spec": spec})
    # As its controller would write it.
    status = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    placing.api.patch(f"{BUDGETS}/none/status", {"status": status})
    yield labels
    placing.api.delete(f"{BUDGETS}/none")


def test_protected_pods_stay_if_others_can_be_evicted(placing: Placing, budget: Object) -> None:
    """4000 and 5000 on one card, 9000 on the other, for 6500 more. kube-scheduler sees sums, and
    would be content without the 5000. A card has room without the 4000 as well, or without the
    9000, whose priority is the lowest; that is protected."""
    placing.add(node("a", [card("a", 0), card("a", 1)]))
    placing.fill("GPU-a-0", asks(4000), priorityClassName="low")
    placing.fill("GPU-a-0", asks(5000), priorityClassName="low")
    protected = placing.fill("GPU-a-1", asks(9000), labels=budget)
    preempt(placing, "high", asks(6500))
    assert there(placing) == {protected, "high"}
    assert sorted(placing.given()[0].values()) == [6500, 9000]


def test_no_pod_of_equal_priority_is_evicted(placing: Placing) -> None:
    """The two of low priority have enough memory together, but on two cards. The pods that share
    their cards have the same priority as the new pod.
    """
    placing.add(node("a", [card("a", 0), card("a", 1)]))
    equal = [placing.fill(f"GPU-a-{i}", asks(5000), priorityClassName="high") for i in range(2)]
    lower = [placing.fill(f"GPU-a-{i}", asks(4000), priorityClassName="low") for i in range(2)]
    why = placing.refuse("high", asks(8000), priorityClassName="high")
    assert "Insufficient nvidia.com/gpumem" in why
    placing.sync_extender()
    assert there(placing) == {*equal, *lower, "high"}
    assert not placing.api.get(f"{PODS}/high")["spec"].get("nodeName")


@pytest.mark.parametrize(("policy", "filled"), [("binpack", "c"), ("spread", "abd")])
def test_full_nodes_or_empty_ones_first(placing: Placing, policy: str, filled: str) -> None:
    placing.add(*(node(name, [card(name, 0), card(name, 1)]) for name in "abcd"))
    for name in filled:
        placing.fill(f"GPU-{name}-0", asks(8000, cores=80))
    placing.place("one", asks(2000, cores=20), {NODE_POLICY: policy})
    assert placing.node("one") == "c"
