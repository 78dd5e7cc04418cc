"""Card requests of a pod: by UUID, type, NUMA node, links, and full or empty cards first."""

import pytest

from cluster.extended import card, node
from cluster.placing import AVOID, CARD_POLICY, NODE_POLICY, USE, Placing, asks

A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"
USE_TYPE, AVOID_TYPE = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
NUMA = {"nvidia.com/numa-bind": "true"}


def test_cards_are_chosen_by_uuid(placing: Placing) -> None:
    for name in "ab":
        placing.add(node(name, [card(name, 0), card(name, 1)]))
    named = {USE: "GPU-b-1, GPU-a-1"}
    full = asks(6000)
    for name in ("one", "two"):
        placing.place(name, full, named)
    assert {*placing.cards("one"), *placing.cards("two")} == {"GPU-a-1", "GPU-b-1"}
    assert "too little memory" in placing.refuse("three", asks(4001), named)
    placing.place("others", full, {AVOID: "GPU-a-1,GPU-b-1,GPU-a-0"})
    assert placing.cards("others") == ["GPU-b-0"]
    assert "excluded by UUID" in placing.refuse("none", full, {USE: "GPU-away"})


def test_cards_are_chosen_by_type(placing: Placing) -> None:
    """Parts of the model's name, in any case; on one node and among nodes."""
    placing.add(
        node("a", [card("a", 0, model=A100), card("a", 1, model=H100)]),
        node("b", [card("b", 0, model=A100)]),
    )
    for name, annotations, wanted in (
        ("h100", {USE_TYPE: "h100"}, "GPU-a-1"),
        ("either", {USE_TYPE: "T4, A100", AVOID: "GPU-a-0"}, "GPU-b-0"),
        ("not-a100", {AVOID_TYPE: "sxm4"}, "GPU-a-1"),
    ):
        placing.place(name, asks(3000), annotations)
        assert placing.cards(name) == [wanted]
    why = placing.refuse("none", asks(3000), {AVOID_TYPE: "a100,H100"})
    assert "of another type" in why


def test_cards_of_a_container_are_of_one_numa_node_if_requested(placing: Placing) -> None:
    cards = [card("a", index, numa=index // 2) for index in range(4)]
    placing.add(node("a", cards))
    placing.fill("GPU-a-0", asks(9000))
    (two,) = placing.place("two", asks(3000, cards=2), NUMA).values()
    assert {has.card for has in two} == {"GPU-a-2", "GPU-a-3"}
    placing.fill("GPU-a-3", asks(7000))
    why = placing.refuse("three", asks(3000, cards=2), NUMA)
    assert "no NUMA node has 2 fitting cards" in why
    (apart,) = placing.place("apart", asks(3000, cards=2)).values()
    assert {has.card for has in apart} == {"GPU-a-1", "GPU-a-2"}


def test_cards_of_a_container_are_chosen_by_their_links(placing: Placing) -> None:
    """Pairs 0-1 and 2-3 are linked by 100, all others by 10."""
    uuids = [f"GPU-a-{index}" for index in range(4)]

    def links(index: int) -> dict[str, int]:
        return {
            uuid: 100 if other // 2 == index // 2 else 10
            for other, uuid in enumerate(uuids)
            if other != index
        }

    placing.add(node("a", [card("a", index, links=links(index)) for index in range(4)]))
    aware, strict = {CARD_POLICY: "topology-aware"}, {CARD_POLICY: "topology-strict"}
    placing.fill("GPU-a-0", asks(9000))
    # One card is not taken out of a pair that is whole.
    placing.place("one", asks(9000), aware)
    assert placing.cards("one") == ["GPU-a-1"]
    (pair,) = placing.place("pair", asks(4000, cards=2), aware).values()
    assert {has.card for has in pair} == {"GPU-a-2", "GPU-a-3"}
    (again,) = placing.place("again", asks(4000, cards=2), strict).values()
    assert {has.card for has in again} == {"GPU-a-2", "GPU-a-3"}
    placing.delete("one")
    placing.fill("GPU-a-2", asks(2000))
    why = placing.refuse("third", asks(2000, cards=2), strict)
    assert "no 2 free cards are linked as well as the node's best" in why
    (apart,) = placing.place("apart", asks(2000, cards=2), aware).values()
    assert {has.card for has in apart} == {"GPU-a-1", "GPU-a-3"}


def test_nodes_without_known_links_reject_strict_topology(placing: Placing) -> None:
    placing.add(node("a", [card("a", 0), card("a", 1)]))
    why = placing.refuse("one", asks(1000, cards=2), {CARD_POLICY: "topology-strict"})
    assert "it is not known how its cards are linked, and 2 linked cards are requested" in why


def test_full_cards_or_empty_ones_first(placing: Placing) -> None:
    placing.add(node("a", [card("a", index) for index in range(3)]))
    placing.fill("GPU-a-1", asks(3000))
    placing.place("packed", asks(2000), {CARD_POLICY: "binpack"})
    assert placing.cards("packed") == ["GPU-a-1"]
    placing.place("spread", asks(2000), {CARD_POLICY: "spread"})
    assert placing.cards("spread") != ["GPU-a-1"]
    placing.place("spread-too", asks(2000), {CARD_POLICY: "spread"})
    used, _ = placing.given()
    assert used == {"GPU-a-0": 2000, "GPU-a-1": 5000, "GPU-a-2": 2000}
    # A card that no node has, or none.
    assert "not idle" in placing.refuse("alone", asks(2000), {CARD_POLICY: "mutex"})


def test_a_node_label_sets_the_order_of_its_cards(placing: Placing) -> None:
    """Its label, where the pod says nothing; without either it is the empty ones."""
    for name, said in (("a", {"hami.io/placement": "binpack"}), ("b", {})):
        placing.add(node(name, [card(name, 0), card(name, 1)], labels=said))
        placing.fill(f"GPU-{name}-1", asks(3000))
    for name, wanted in (("a", "GPU-a-1"), ("b", "GPU-b-0")):
        placing.place(f"on-{name}", asks(2000), affinity=on(name))
        assert placing.cards(f"on-{name}") == [wanted]


def on(name: str) -> dict[str, object]:
    """The affinity of a pod that goes to this node only."""
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@pytest.mark.parametrize(("policy", "filled"), [("binpack", "c"), ("spread", "abd")])
def test_full_nodes_or_empty_ones_first(placing: Placing, policy: str, filled: str) -> None:
    placing.add(*(node(name, [card(name, 0), card(name, 1)]) for name in "abcd"))
    for name in filled:
        placing.fill(f"GPU-{name}-0", asks(8000, cores=80))
    placing.place("one", asks(2000, cores=20), {NODE_POLICY: policy})
    assert placing.node("one") == "c"
