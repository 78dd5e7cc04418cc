"""Every case of the decision whether a container may run on the devices that the kubelet picked."""

from collections.abc import Sequence

import pytest

from hami_py.model.pods.wire import CardAllocation
from hami_py.node.decision import BoundPod, Decision, Hold, NodeView, Run, decide, whole_cards
from unit.node.build import bound, on, view


def run(decision: Decision, *cards: CardAllocation) -> dict[str, dict[str, str]]:
    """The changed assignments: by pod and container, the letters of the cards."""
    assert isinstance(decision, Run), decision
    assert decision.cards == cards
    return {
        uid: {
            name: "".join(card.card for card in allocations)
            for name, allocations in assignment.containers.items()
        }
        for uid, assignment in decision.changed.items()
    }


def held(decision: Decision) -> tuple[str, bool]:
    assert isinstance(decision, Hold), decision
    return decision.reason, decision.is_mismatch


class TestEqualCards:
    """The kubelet picked the assigned cards."""

    @pytest.mark.parametrize("picked", [["A", "B"], ["B", "A"]])
    def test_it_runs_in_any_order_of_the_devices(self, picked: Sequence[str]) -> None:
        pod = bound("p", main=[on("A", 3000), on("B", 4000)])
        assert run(decide(view(pod), "p", "main", picked), on("A", 3000), on("B", 4000)) == {}

    def test_what_is_only_assigned_does_not_count(self) -> None:
        """The scheduler may know of ends that the node does not know yet."""
        one, two = bound("p", main=on("A", 8000)), bound("q", main=on("A", 8000))
        assert run(decide(view(one, two), "p", "main", ["A"]), on("A", 8000)) == {}

    def test_it_waits_while_a_pod_that_is_not_known_any_more_has_the_room(self) -> None:
        node = view(bound("p", main=on("A", 5000)), allocated={("gone", "main"): [on("A", 4000)]})
        reason, is_mismatch = held(decide(node, "p", "main", ["A"]))
        assert reason.startswith("card A has 4000 MiB free, and 5000 are needed")
        assert not is_mismatch

    def test_it_waits_for_cores(self) -> None:
        pod = bound("p", main=on("A", 1, 60))
        node = view(pod, allocated={("q", "main"): [on("A", 1, 50)]})
        assert (
            "card A has 50 % free, and 60 are needed" in held(decide(node, "p", "main", ["A"]))[0]
        )

    def test_one_of_two_cards_without_room_is_enough_to_wait(self) -> None:
        pod = bound("p", main=[on("A"), on("B")])
        node = view(pod, allocated={("q", "main"): [on("B", 8000)]})
        assert held(decide(node, "p", "main", ["A", "B"]))[0].startswith("card B has 0 MiB free")

    def test_the_last_mebibyte_is_used(self) -> None:
        pod = bound("p", main=on("A", 5000, 50))
        node = view(pod, allocated={("q", "main"): [on("A", 3000, 50)]})
        assert run(decide(node, "p", "main", ["A"]), on("A", 5000, 50)) == {}


class TestContainersInTurn:
    """An init container has ended before the apps of its pod start."""

    POD = bound("p", init=on("A", 8000), main=on("A", 8000))

    @pytest.mark.parametrize(("first", "second"), [("init", "main"), ("main", "init")])
    def test_both_are_prepared_before_the_first_one_starts(self, first: str, second: str) -> None:
        """They have the same devices, so the kubelet does not say which one it is."""
        node = view(self.POD, allocated={("p", first): [on("A", 8000)]})
        assert run(decide(node, "p", second, ["A"]), on("A", 8000)) == {}

    def test_for_another_pod_they_count_once(self) -> None:
        pod = bound("p", init=on("A", 4000), main=on("A", 3000))
        allocated = {("p", "init"): [on("A", 4000)], ("p", "main"): [on("A", 3000)]}
        node = view(pod, bound("q", main=on("A", 4000)), allocated=allocated)
        assert run(decide(node, "q", "main", ["A"]), on("A", 4000)) == {}

    def test_sidecars_and_apps_run_at_one_time(self) -> None:
        pod = bound("p", sidecar=on("A", 5000), main=on("A", 5000), init=on("A", 1000))
        node = view(pod, allocated={("p", "sidecar"): [on("A", 5000)]})
        assert held(decide(node, "p", "main", ["A"]))[0].startswith("card A has 3000 MiB free")
        assert run(decide(node, "p", "init", ["A"]), on("A", 1000)) == {}

    def test_a_sidecar_runs_beside_init_containers(self) -> None:
        pod = bound("p", init=on("A", 5000), sidecar=on("A", 5000))
        node = view(pod, allocated={("p", "init"): [on("A", 5000)]})
        assert held(decide(node, "p", "sidecar", ["A"]))[0].startswith("card A has 3000 MiB free")

    def test_of_a_pod_that_is_not_known_any_more_all_count(self) -> None:
        allocated = {("gone", "init"): [on("A", 4000)], ("gone", "main"): [on("A", 3000)]}
        node = view(bound("q", main=on("A", 2000)), allocated=allocated)
        assert held(decide(node, "q", "main", ["A"]))[0].startswith("card A has 1000 MiB free")

    def test_both_move_to_a_card_that_has_room_for_one(self) -> None:
        node = view(self.POD)
        changed = run(decide(node, "p", "main", ["B"]), on("B", 8000))
        assert changed == {"p": {"init": "A", "main": "B"}}
        moved = bound("p", init=on("A", 8000), main=on("B", 8000))
        node = view(moved, allocated={("p", "main"): [on("B", 8000)]})
        changed = run(decide(node, "p", "init", ["B"]), on("B", 8000))
        assert changed == {"p": {"init": "B", "main": "B"}}

    def test_one_that_has_ended_keeps_the_card_that_it_had(self) -> None:
        """It has devices of that card, and would run again on them."""
        pod = bound("p", init=on("A", 6000), main=on("A", 2000))
        allocated = {("p", "main"): [on("A", 2000)]}
        node = view(pod, bound("q", main=on("B", 5000)), allocated=allocated, ended={("p", "init")})
        assert run(decide(node, "q", "main", ["A"]), on("A", 5000)) == {"q": {"main": "A"}}


class TestSwap:
    """Another container that has not started is assigned to the picked card."""

    def test_the_two_cards_are_swapped(self) -> None:
        node = view(bound("p", main=on("A", 8000)), bound("q", other=on("B", 8000)))
        changed = run(decide(node, "p", "main", ["B"]), on("B", 8000))
        assert changed == {"p": {"main": "B"}, "q": {"other": "A"}}

    def test_within_one_pod(self) -> None:
        node = view(bound("p", one=on("A", 8000), two=on("B", 8000)))
        changed = run(decide(node, "p", "one", ["B"]), on("B", 8000))
        assert changed == {"p": {"one": "B", "two": "A"}}

    def test_amounts_may_differ_if_both_fit(self) -> None:
        """Each has the other's card: without a swap both would wait forever."""
        node = view(bound("p", main=on("A", 7000)), bound("q", main=on("B", 5000)))
        changed = run(decide(node, "p", "main", ["B"]), on("B", 7000))
        assert changed == {"p": {"main": "B"}, "q": {"main": "A"}}

    def test_not_if_one_would_not_fit(self) -> None:
        pods = bound("p", main=on("A", 4000)), bound("q", main=on("B", 5000))
        node = view(*pods, cards={"A": 4000, "B": 8000})
        reason, is_mismatch = held(decide(node, "p", "main", ["B"]))
        assert reason == (
            "the kubelet has picked card B and not A; card B has 3000 MiB free, and 4000 are needed"
        )
        assert is_mismatch

    def test_only_the_wrong_one_of_two_cards(self) -> None:
        pods = bound("p", main=[on("A", 8000), on("B", 8000)]), bound("q", main=on("C", 8000))
        changed = run(decide(view(*pods), "p", "main", ["B", "C"]), on("C", 8000), on("B", 8000))
        assert changed == {"p": {"main": "CB"}, "q": {"main": "A"}}

    def test_both_cards_with_two_pods(self) -> None:
        pods = [
            bound("p", main=[on("A", 8000), on("B", 8000)]),
            bound("q", main=on("C", 8000)),
            bound("r", main=on("D", 8000)),
        ]
        node = view(*pods, cards=dict.fromkeys("ABCD", 8000))
        changed = run(decide(node, "p", "main", ["C", "D"]), on("C", 8000), on("D", 8000))
        assert changed == {"p": {"main": "CD"}, "q": {"main": "A"}, "r": {"main": "B"}}

    def test_not_with_a_container_that_has_started(self) -> None:
        pods = bound("p", main=on("A", 8000)), bound("q", main=on("B", 8000))
        node = view(*pods, allocated={("q", "main"): [on("B", 8000)]})
        assert held(decide(node, "p", "main", ["B"]))[1]

    def test_not_with_one_that_has_the_other_card_already(self) -> None:
        pods = bound("p", main=on("A", 4000)), bound("q", main=[on("A", 4000), on("B", 8000)])
        assert held(decide(view(*pods), "p", "main", ["B"]))[1]

    def test_not_while_the_picked_card_is_in_use(self) -> None:
        """The assignments are free for it, and a pod that is not known any more still runs."""
        pods = bound("p", main=on("A", 8000)), bound("q", main=on("B", 8000))
        node = view(*pods, allocated={("gone", "main"): [on("B", 1000)]})
        assert isinstance(decide(node, "p", "main", ["B"]), Hold)

    def test_nobody_gets_a_card_that_is_not_on_the_node_any_more(self) -> None:
        pods = bound("p", main=on("A", 4000)), bound("q", main=on("B", 4000))
        changed = run(decide(view(*pods, cards={"B": 8000}), "p", "main", ["B"]), on("B", 4000))
        assert changed == {"p": {"main": "B"}}

    def test_containers_in_turn_follow(self) -> None:
        """Otherwise the init container would wait for the pod that got the card."""
        pods = bound("p", init=on("A", 8000), main=on("A", 8000)), bound("q", main=on("B", 8000))
        changed = run(decide(view(*pods), "p", "main", ["B"]), on("B", 8000))
        assert changed == {"p": {"init": "B", "main": "B"}, "q": {"main": "A"}}

    def test_those_of_the_other_pod_follow_too(self) -> None:
        pods = bound("p", main=on("A", 8000)), bound("q", init=on("B", 8000), main=on("B", 8000))
        changed = run(decide(view(*pods), "p", "main", ["B"]), on("B", 8000))
        assert changed == {"p": {"main": "B"}, "q": {"init": "A", "main": "A"}}

    def test_an_ended_container_is_no_partner_if_its_pod_still_has_the_card(self) -> None:
        """Its place is its pod's, so a third pod would find its own card full."""
        node = self._with_an_ended_init(on("B", 4000))
        changed = run(decide(node, "r", "main", ["B"]), on("B", 4000))
        assert changed == {"r": {"main": "B"}, "z": {"main": "A"}}

    def test_without_another_partner_it_waits(self) -> None:
        node = self._with_an_ended_init(on("B", 4000), is_started=True)
        assert held(decide(node, "r", "main", ["B"]))[1]

    def _with_an_ended_init(self, other: CardAllocation, *, is_started: bool = False) -> NodeView:
        pods: list[BoundPod] = [
            bound("p", init=on("B", 4000), main=on("B", 4000)),
            bound("r", main=on("A", 4000)),
            bound("z", main=other),
        ]
        allocated = {("p", "main"): [on("B", 4000)]}
        if is_started:
            allocated["z", "main"] = [other]
        return view(*pods, allocated=allocated)


class TestMove:
    """The picked card has room beside all that is assigned."""

    def test_it_is_assigned_to_it(self) -> None:
        pods = bound("p", main=on("A", 3000)), bound("q", main=on("B", 5000))
        node = view(*pods, allocated={("q", "main"): [on("B", 5000)]})
        changed = run(decide(node, "p", "main", ["B"]), on("B", 3000))
        assert changed == {"p": {"main": "B"}}

    def test_rows_keep_their_places(self) -> None:
        """Row i is the i-th card, and the environment has its limits."""
        pod = bound("p", main=[on("A", 1000), on("B", 2000)])
        changed = run(decide(view(pod), "p", "main", ["C", "A"]), on("A", 1000), on("C", 2000))
        assert changed == {"p": {"main": "AC"}}

    def test_room_that_is_assigned_to_others_is_kept_for_them(self) -> None:
        pods = bound("p", main=on("A", 4000)), bound("q", main=[on("A", 1000), on("B", 5000)])
        reason, is_mismatch = held(decide(view(*pods), "p", "main", ["B"]))
        assert "card B has 3000 MiB free, and 4000 are needed" in reason
        assert is_mismatch

    def test_what_a_forgotten_pod_has_counts(self) -> None:
        node = view(bound("p", main=on("A", 4000)), allocated={("gone", "main"): [on("B", 5000)]})
        assert held(decide(node, "p", "main", ["B"]))[1]


class TestNeverPossible:
    """The container waits, with the reason."""

    @pytest.mark.parametrize(
        ("picked", "reason", "is_mismatch"),
        [
            (["A", "A"], "two devices of card A, and the container needs 2 different cards", True),
            (["C", "C"], "two devices of card C, and the container needs 2 different cards", True),
            (["A", "X"], "card X is not on this node any more", True),
            (["A"], "the kubelet has picked 1 devices, and the container needs 2", True),
            (["A", "B", "C"], "the kubelet has picked 3 devices, and the container needs 2", True),
            ([], "the kubelet has picked 0 devices, and the container needs 2", True),
        ],
    )
    def test_devices(self, picked: Sequence[str], reason: str, is_mismatch: bool) -> None:
        pod = bound("p", main=[on("A"), on("B")])
        found = held(decide(view(pod), "p", "main", picked))
        assert reason in found[0]
        assert found[1] == is_mismatch

    def test_a_container_without_cards(self) -> None:
        reason, _ = held(decide(view(bound("p", main=on("A"))), "p", "injected", ["A"]))
        assert reason == "the pod's assignment has no card for this container"


class TestWithoutAnAssignment:
    """A pod that was created without the webhook may have whole cards."""

    NODE = view(bound("q", main=on("B", 1)), allocated={("gone", "main"): [on("C", 0, 1)]})

    @pytest.mark.parametrize("picked", [["A"], ["A", "A"]])
    def test_it_gets_all_of_a_card_that_nobody_has(self, picked: Sequence[str]) -> None:
        assert run(whole_cards(self.NODE, "p", "main", picked), on("A", 8000, 100)) == {}

    @pytest.mark.parametrize("card", ["B", "C"])
    def test_it_waits_if_another_one_has_a_part_of_it(self, card: str) -> None:
        reason, is_mismatch = held(whole_cards(self.NODE, "p", "main", ["A", card]))
        assert reason.endswith(f"others have parts of card {card}")
        assert is_mismatch

    def test_it_may_start_again(self) -> None:
        node = view(allocated={("p", "main"): [on("A", 8000, 100)]})
        assert run(whole_cards(node, "p", "main", ["A"]), on("A", 8000, 100)) == {}

    def test_the_pods_own_init_container_had_the_card(self) -> None:
        node = view(cards={"A": 8000}, allocated={("p", "init"): [on("A", 8000, 100)]})
        assert run(whole_cards(node, "p", "main", ["A"]), on("A", 8000, 100)) == {}

    def test_a_card_that_is_not_on_the_node_any_more(self) -> None:
        assert held(whole_cards(self.NODE, "p", "main", ["X"]))[0].startswith("card X is not on")
