"""Whether the limits of a running container may change."""

from collections.abc import Sequence

import pytest

from hami_py.model.pods.wire import CardAllocation
from hami_py.node.resizing import refusal, with_cards
from unit.node.build import bound, on, view

POD = bound("p", main=[on("A", 3000, 30), on("B", 3000, 30)], other=on("A", 1000, 10))


def refused(*cards: CardAllocation, beside: Sequence[CardAllocation] = ()) -> str | None:
    others = bound("q", **{f"c{number}": each for number, each in enumerate(beside)})
    node = view(POD, others, cards={"A": 8000, "B": 8000})
    found = refusal(node, "p", {"main": tuple(cards)})
    return None if found is None else found[0]


@pytest.mark.parametrize(
    ("cards", "beside", "reason"),
    [
        ([on("A", 7000, 30)], [], None),
        ([on("A", 7001, 30)], [], "card A has 7000 MiB free, and 7001 are needed"),
        ([on("A", 3000, 91)], [], "card A has 90 % free, and 91 are needed"),
        ([on("A", 5000, 30)], [on("A", 2001)], "card A has 4999 MiB free, and 5000 are needed"),
        ([on("A", 5000, 30), on("B", 9000, 30)], [], "card B has 8000 MiB free, and 9000"),
    ],
)
def test_a_larger_limit_needs_room(
    cards: list[CardAllocation], beside: list[CardAllocation], reason: str | None
) -> None:
    found = refused(*cards, beside=beside)
    assert (
        found == reason
        if reason is None or found is None
        else found.startswith(f"container main: {reason}")
    )


def test_a_smaller_limit_is_possible_on_a_card_that_is_overbooked() -> None:
    assert refused(on("A", 2999, 30), beside=[on("A", 8000)]) is None
    assert refused(on("A", 3000, 30), beside=[on("A", 8000)]) is None, "the same limit"


def test_a_limit_that_is_larger_in_one_of_two_ways_needs_room() -> None:
    found = refused(on("A", 2000, 31), beside=[on("A", 8000)])
    assert found is not None


def test_the_limits_of_a_mig_instance_are_fixed() -> None:
    pod = bound("p", main=[on("MIG-a", 4864, 14), on("B", 3000, 30)])
    node = view(pod, cards={"MIG-a": 4864, "B": 8000})
    for smaller in (on("MIG-a", 1000, 14), on("MIG-a", 4864, 10)):
        found = refusal(node, "p", {"main": (smaller, on("B", 3000, 30))})
        assert found == (
            "container main: card MIG-a is a MIG instance, whose limits are fixed",
            "create a pod that requests another instance",
        )
    assert refusal(node, "p", {"main": (on("MIG-a", 4864, 14), on("B", 4000, 30))}) is None


def test_what_a_forgotten_pod_still_has_counts() -> None:
    node = view(POD, cards={"A": 8000}, allocated={("gone", "main"): [on("A", 2000)]})
    assert refusal(node, "p", {"main": (on("A", 5001, 30),)}) is not None
    assert refusal(node, "p", {"main": (on("A", 5000, 30),)}) is None


def test_an_init_container_that_has_ended_does_not_count() -> None:
    """It had run before the container started."""
    pod = bound("p", init=on("A", 8000), main=on("A", 3000))
    assert refusal(view(pod), "p", {"main": (on("A", 8000),)}) is None


def test_two_containers_of_a_pod_cannot_get_the_same_room() -> None:
    """Each would fit beside the other's old limit."""
    pod = bound("p", one=on("A", 1000), two=on("A", 1000))
    both = {name: (on("A", 7000),) for name in ("one", "two")}
    assert refusal(view(pod, cards={"A": 8000}), "p", both) is not None
    one = {"one": (on("A", 7000),)}
    assert refusal(view(pod, cards={"A": 8000}), "p", one) is None
    # One may grow by what the other gives back.
    swapped = {"one": (on("A", 7500),), "two": (on("A", 500),)}
    assert refusal(view(pod, cards={"A": 8000}), "p", swapped) is None


def test_a_card_that_is_not_on_the_node_any_more() -> None:
    node = view(POD, cards={"B": 8000})
    found = refusal(node, "p", {"main": (on("A", 4000, 30),)})
    assert found == ("container main: card A is not on this node any more", "delete the pod")
    assert refusal(node, "p", {"main": (on("A", 2000, 30),)}) is None


def test_only_the_named_containers_change() -> None:
    changed = with_cards(POD.assignment, {"other": (on("A", 500),)})
    before = POD.assignment
    assert (changed.version, changed.pod, changed.node) == (before.version, "p", before.node)
    assert changed.containers == {**before.containers, "other": (on("A", 500),)}
