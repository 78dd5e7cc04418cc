"""What all cards of a cluster do, from objects and the figures of node agents."""

from __future__ import annotations

import threading

import pytest

from hami_py.kube.errors import Forbidden
from hami_py.model.columns import record
from hami_py.overview import Scope
from support.slice_uses import container
from unit.overview.fake_cluster import AGENTS, GIB, FakeCluster, figures, on


@pytest.fixture
def cluster() -> FakeCluster:
    """Two nodes; a pod of each of two namespaces on the first one."""
    cluster = FakeCluster()
    cluster.add_node("a")
    cluster.add_node("b")
    cluster.add_pod("mine", on("GPU-a-0", 4096, 30), node="a")
    cluster.add_pod("other", on("GPU-a-0", 8192), node="a", namespace="others")
    mine = container(
        *("team", "mine", "main", "GPU-a-0"),
        limit=4 * GIB,
        share=30,
        share_used=0.25,
        memory_used=3 * GIB,
        memory_peak=3 * GIB,
        throttled=2.5,
        refusals=7,
        processes=2,
    )
    cluster.figures = {"a": figures("a", mine, used=5 * GIB), "b": figures("b")}
    return cluster


def test_what_is_allocated_and_what_is_used(cluster: FakeCluster) -> None:
    seen = cluster.overview()
    first, second = seen.nodes
    (card,) = first.cards
    assert (first.name, first.address, first.mode, first.level) == (
        *("a", "10.0.0.1", "full", "preload"),
    )
    assert (card.memory, card.memory_allocated, card.memory_used) == (40 * GIB, 12 * GIB, 5 * GIB)
    assert (card.share_allocated, card.share_used, card.containers) == (0.3, 0.25, 2)
    assert second.cards[0].memory_allocated == 0
    other, mine = map(record, seen.containers)
    assert mine == {
        "namespace": "team",
        "pod": "mine",
        "container": "main",
        "node": "a",
        "card": "GPU-a-0",
        "index": 0,
        "memory_used": 3 * GIB,
        "driver_memory": 0,
        "memory_limit": 4 * GIB,
        "memory_peak": 3 * GIB,
        "share_used": 0.25,
        "share_limit": 0.3,
        "engine_time": 0.0,
        "throttled": 2.5,
        "refusals": 7,
        "last_used": None,
        "processes": 2,
        "level": "preload",
        "time_level": "lease",
        "enforcement": "memory by preload, time by lease",
        "user": None,
        "command": None,
    }
    assert (other["pod"], other["node"], other["index"]) == ("other", "a", 0)
    assert (other["memory_limit"], other["memory_used"], other["level"]) == (8 * GIB, None, None)
    assert seen.notes == ()


def test_a_node_of_others_shows_what_its_agent_knows(cluster: FakeCluster) -> None:
    """It publishes no cards, and its pods have no assignment."""
    cluster.add_agent("c")
    claimed = container("team", "claimed", "main", "GPU-c-0", limit=GIB)
    cluster.figures["c"] = figures("c", claimed, used=2 * GIB)
    seen = cluster.overview()
    (node,) = [each for each in seen.nodes if each.name == "c"]
    assert [card.memory_used for card in node.cards] == [2 * GIB]
    assert [each.pod for each in seen.containers if each.node == "c"] == ["claimed"]


def test_each_list_is_read_once_and_each_agent_once(cluster: FakeCluster) -> None:
    cluster.overview()
    assert len(cluster.asked) == len(set(cluster.asked)) == 4 + 2


def test_a_namespace_limits_the_pods_and_not_the_sums(cluster: FakeCluster) -> None:
    seen = cluster.overview(Scope("others"))
    assert [each.pod for each in seen.containers] == ["other"]
    assert seen.nodes[0].cards[0].memory_allocated == 12 * GIB


def test_a_node_without_an_answer_is_named_and_holds_no_other_up(cluster: FakeCluster) -> None:
    """While all silent agents wait at once, the last ones have answered."""
    silent = [f"s{number}" for number in range(31)]
    for name in silent:
        cluster.add_node(name)
    answered, all_wait = threading.Event(), threading.Barrier(len(silent) + 1)

    def answering(agent: str) -> None:
        node = agent.removeprefix("agent-")
        if node in silent:
            all_wait.wait(30)
            assert answered.wait(30)
        if node == "b":
            all_wait.wait(30)
            answered.set()

    cluster.answering = answering
    seen = {node.name: node for node in cluster.overview().nodes}
    assert seen["b"].silent is None
    assert seen["s0"].silent == "its node agent does not answer: 404: Not Found"
    assert seen["s0"].cards[0].memory_used is None


def test_a_node_without_a_running_agent_is_named(cluster: FakeCluster) -> None:
    cluster.add_node("c", agent=False)
    cluster.add_node("d", agent=False)
    cluster.add_agent("d", phase="Pending")
    *_, without, pending = cluster.overview().nodes
    assert without.silent == "no node agent runs there"
    assert pending.silent == "its node agent does not run"


def test_of_two_agents_the_active_one_answers(cluster: FakeCluster) -> None:
    """While a new release replaces another, both run."""
    cluster.lists[AGENTS].insert(0, {**cluster.lists[AGENTS][0]})
    cluster.lists[AGENTS][0]["metadata"] = {"name": "agent-new", "namespace": "hami-system"}
    assert cluster.overview().nodes[0].silent is None


def test_without_the_right_to_ask_agents_the_rest_is_shown(cluster: FakeCluster) -> None:
    cluster.forbidden = lambda path: "/proxy/" in path
    seen = cluster.overview()
    assert seen.notes == ('what is used is not shown: User "u" cannot read resource "pods/proxy"',)
    assert len([path for path in cluster.asked if "/proxy/" in path]) == 1
    first, _ = seen.nodes
    assert (first.cards[0].memory_allocated, first.cards[0].memory_used) == (12 * GIB, None)
    assert first.silent is None, "it is not the agent's fault"
    mine = record(seen.containers[1])
    assert (mine["memory_limit"], mine["share_limit"], mine["memory_used"]) == (4 * GIB, 0.3, None)


@pytest.mark.parametrize(
    ("cores", "mode", "share"),
    [(30, "full", 0.3), (100, "full", None), (0, "full", None), (30, "memory", None)],
)
def test_without_its_agent_a_node_has_the_shares_that_the_agent_would_show(
    cluster: FakeCluster, cores: int, mode: str, share: float | None
) -> None:
    cluster.add_node("c", agent=False, labels={"hami.io/mode": mode})
    cluster.add_pod("p", on("GPU-c-0", 4096, cores), node="c")
    (found,) = (each for each in cluster.overview().containers if each.node == "c")
    assert found.share_limit == share


def test_a_tenant_sees_the_own_namespace_alone(cluster: FakeCluster) -> None:
    cluster.add_pod("waits", status={"phase": "Pending"})
    cluster.forbidden = lambda path: path != "/api/v1/namespaces/team/pods"
    seen = cluster.overview()
    assert seen.nodes == ()
    assert [each.pod for each in seen.containers] == ["mine"]
    assert [each.pod for each in seen.waiting] == ["waits"]
    assert "other" not in str(seen).replace("others", "")
    assert [note.partition(":")[0] for note in seen.notes] == [
        "nodes and their cards are not shown",
        "quotas are not shown",
        "what is used is not shown",
        "only pods of namespace team are shown",
    ]


def test_with_some_pods_alone_sums_are_unknown_and_not_too_small(cluster: FakeCluster) -> None:
    cluster.forbidden = lambda path: path == "/api/v1/pods"
    (card,) = cluster.overview().nodes[0].cards
    assert (card.memory_allocated, card.share_allocated, card.containers) == (None, None, None)


def test_without_any_right_the_missing_one_is_the_error(cluster: FakeCluster) -> None:
    cluster.forbidden = lambda _: True
    with pytest.raises(Forbidden):
        cluster.overview()


def test_a_namespace_has_its_quotas_and_its_peak(cluster: FakeCluster) -> None:
    hard = {"limits.nvidia.com/gpumem": "10240", "limits.nvidia.com/gpucores": "150"}
    quota = {"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": hard}}
    cluster.lists["/api/v1/resourcequotas"] = [quota]
    others, team = cluster.overview().namespaces
    assert (team.namespace, team.quota, team.cards, team.cards_limit) == ("team", "q", 1, None)
    assert (team.memory, team.memory_limit, team.memory_peak) == (GIB, 10 * GIB, 3 * GIB)
    assert (team.share, team.share_limit) == (0, 1.5)
    assert (others.quota, others.memory_limit, others.memory_peak) == (None, None, None)


def test_a_card_that_gets_no_pods_says_why(cluster: FakeCluster) -> None:
    cluster.add_node("c", annotations={"hami.io/cordon": "all"})
    cluster.add_node("d", annotations={"hami.io/cards": "nonsense"})
    *_, cordoned, unreadable = cluster.overview().nodes
    assert cordoned.cards[0].state == "cordoned"
    assert unreadable.blocked is not None
    assert "hami.io/cards" in unreadable.blocked
