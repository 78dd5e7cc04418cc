"""Every case of the decision whether a container may start with its assigned cards."""

from collections.abc import Sequence

import pytest

from hami_py.model.pods.wire import CardAllocation
from hami_py.node.decision import Capacity, Decision, NodeView, Run, Wait, decide, whole_cards
from unit.node.build import bound, kind_of, on, view


def run(decision: Decision, *cards: CardAllocation) -> None:
    assert isinstance(decision, Run), decision
    assert decision.cards == cards


def held(decision: Decision) -> str:
    assert isinstance(decision, Wait), decision
    return decision.reason


def fix(decision: Decision) -> str:
    assert isinstance(decision, Wait), decision
    return decision.fix


class TestAssignedCards:
    def test_it_runs_on_them_in_their_order(self) -> None:
        """Row i of the limits page is the i-th card, and the environment has its limits."""
        pod = bound("p", main=[on("B", 3000), on("A", 4000)])
        run(decide(view(pod), "p", "main"), on("B", 3000), on("A", 4000))

    def test_what_is_only_assigned_does_not_count(self) -> None:
        """The scheduler may know of ends that the node does not know yet."""
        one, two = bound("p", main=on("A", 8000)), bound("q", main=on("A", 8000))
        run(decide(view(one, two), "p", "main"), on("A", 8000))

    def test_it_waits_while_a_pod_that_is_not_known_any_more_has_the_room(self) -> None:
        node = view(bound("p", main=on("A", 5000)), allocated={("gone", "main"): [on("A", 4000)]})
        decision = decide(node, "p", "main")
        assert held(decision).startswith("card A has 4000 MiB free, and 5000 are needed")
        assert fix(decision) == "do nothing: the kubelet tries again"

    def test_it_waits_for_cores(self) -> None:
        pod = bound("p", main=on("A", 1, 60))
        node = view(pod, allocated={("q", "main"): [on("A", 1, 50)]})
        assert "card A has 50 % free, and 60 are needed" in held(decide(node, "p", "main"))

    def test_one_of_two_cards_without_room_is_enough_to_wait(self) -> None:
        pod = bound("p", main=[on("A"), on("B")])
        node = view(pod, allocated={("q", "main"): [on("B", 8000)]})
        assert held(decide(node, "p", "main")).startswith("card B has 0 MiB free")

    def test_the_last_mebibyte_is_used(self) -> None:
        pod = bound("p", main=on("A", 5000, 50))
        node = view(pod, allocated={("q", "main"): [on("A", 3000, 50)]})
        run(decide(node, "p", "main"), on("A", 5000, 50))

    def test_a_card_that_is_not_on_the_node_any_more(self) -> None:
        pod = bound("p", main=[on("A"), on("X")])
        decision = decide(view(pod), "p", "main")
        assert held(decision) == "card X is not on this node any more"
        assert fix(decision) == "delete the pod"

    def test_an_unhealthy_card(self) -> None:
        node = NodeView(
            {"A": Capacity(8000, unhealthy="XID 79")}, view(bound("p", main=on("A"))).pods
        )
        decision = decide(node, "p", "main")
        assert held(decision) == "card A is unhealthy: XID 79"
        assert fix(decision) == "see the event CardUnhealthy of the node"

    def test_a_container_without_cards(self) -> None:
        decision = decide(view(bound("p", main=on("A"))), "p", "injected")
        assert held(decision) == "the pod's assignment has no card for this container"
        assert fix(decision) == "delete the pod"


class TestContainersInTurn:
    """An init container has ended before the apps of its pod start."""

    POD = bound("p", init=on("A", 8000), main=on("A", 8000))

    @pytest.mark.parametrize(("first", "second"), [("init", "main"), ("main", "init")])
    def test_both_are_prepared_before_the_first_one_starts(self, first: str, second: str) -> None:
        """They have the same devices, so the kubelet does not say which one it is."""
        node = view(self.POD, allocated={("p", first): [on("A", 8000)]})
        run(decide(node, "p", second), on("A", 8000))

    def test_for_another_pod_they_count_once(self) -> None:
        pod = bound("p", init=on("A", 4000), main=on("A", 3000))
        allocated = {("p", "init"): [on("A", 4000)], ("p", "main"): [on("A", 3000)]}
        node = view(pod, bound("q", main=on("A", 4000)), allocated=allocated)
        run(decide(node, "q", "main"), on("A", 4000))

    def test_sidecars_and_apps_run_at_one_time(self) -> None:
        pod = bound("p", sidecar=on("A", 5000), main=on("A", 5000), init=on("A", 1000))
        node = view(pod, allocated={("p", "sidecar"): [on("A", 5000)]})
        assert held(decide(node, "p", "main")).startswith("card A has 3000 MiB free")
        run(decide(node, "p", "init"), on("A", 1000))

    def test_a_sidecar_runs_beside_init_containers(self) -> None:
        pod = bound("p", init=on("A", 5000), sidecar=on("A", 5000))
        node = view(pod, allocated={("p", "init"): [on("A", 5000)]})
        assert held(decide(node, "p", "sidecar")).startswith("card A has 3000 MiB free")

    def test_of_a_pod_that_is_not_known_any_more_all_count(self) -> None:
        allocated = {("gone", "init"): [on("A", 4000)], ("gone", "main"): [on("A", 3000)]}
        node = view(bound("q", main=on("A", 2000)), allocated=allocated)
        assert held(decide(node, "q", "main")).startswith("card A has 1000 MiB free")


class TestWithoutAnAssignment:
    """A pod that was created without the webhook may have whole cards."""

    NODE = view(bound("q", main=on("B", 1)), allocated={("gone", "main"): [on("C", 0, 1)]})

    @staticmethod
    def decided(node: NodeView, *picked: str, container: str = "main") -> Decision:
        kinds = {name: kind_of(name) for name in ("init", "main", "two")}
        return whole_cards(node, "p", container, kinds, picked)

    @pytest.mark.parametrize("picked", ["A", "B", "X"])
    def test_it_gets_all_of_a_card_that_nobody_has(self, picked: str) -> None:
        run(self.decided(self.NODE, picked), on("A", 8000, 100))

    def test_it_gets_the_picked_one_of_several(self) -> None:
        run(self.decided(view(), "B"), on("B", 8000, 100))

    def test_as_many_as_it_has_devices(self) -> None:
        run(self.decided(view(), "C", "C"), on("C", 8000, 100), on("A", 8000, 100))

    @pytest.mark.parametrize("picked", [["A", "A"], ["A", "B", "C"]])
    def test_it_waits_if_others_have_parts_of_too_many(self, picked: Sequence[str]) -> None:
        reason = held(self.decided(self.NODE, *picked))
        assert reason.endswith(f"it needs {len(picked)} whole cards; 1 are free")

    def test_the_pods_own_init_container_had_the_card(self) -> None:
        node = view(cards={"A": 8000}, allocated={("p", "init"): [on("A", 8000, 100)]})
        run(self.decided(node, "A"), on("A", 8000, 100))

    def test_not_the_card_of_a_container_that_runs_beside_it(self) -> None:
        node = view(allocated={("p", "two"): [on("A", 8000, 100)]})
        run(self.decided(node, "A"), on("B", 8000, 100))

    def test_no_unhealthy_card(self) -> None:
        node = NodeView({"A": Capacity(8000, unhealthy="XID 79")}, {})
        assert held(self.decided(node, "A")).endswith("0 are free")
