"""An expensive request must not delay others: a filter ends, and the next one continues."""

from __future__ import annotations

from typing import Any

from hami_py.model import pods
from hami_py.model.pods import objects, wire
from support.extender_calls import filtered
from unit.scheduler.small import Small

NODES = [f"n{at:03}" for at in range(450)]

#: Cards and MiB of containers whose choices by links multiply.
INIT = ((4, 20_000), (4, 20_000), (8, 20_000), (8, 20_000), (7, 41_000), (4, 1_000))
SIDECARS = ((4, 20_000), (8, 1_000), (8, 1_000))
APPS = ((6, 100), (3, 20_000), (5, 41_000), (2, 100))


def islands(name: str) -> objects.Node:
    """Eight cards, linked well by fours."""

    def card(at: int) -> wire.Card:
        others = (other for other in range(8) if other != at)
        links = {f"GPU-{name}-{other}": 100 if other // 4 == at // 4 else 50 for other in others}
        return wire.Card(f"GPU-{name}-{at}", at, "NVIDIA A100-SXM4-80GB", 80_000, links=links)

    written = {pods.annotations.CARDS: pods.encode_cards(tuple(map(card, range(8))))}
    return objects.Node(objects.Metadata(name=name, annotations=written))


def hard_pod(name: str = "hard", namespace: str = "ml") -> objects.Pod:
    """It wants the best links for each of its containers; of each name it is another class."""

    def container(kind: str, at: int, cards: int, mib: int) -> dict[str, Any]:
        limits = {"nvidia.com/gpu": cards, "nvidia.com/gpumem": mib}
        sidecar = {"restartPolicy": "Always"} if kind == "sidecar" else {}
        return {"name": f"{kind}-{at}", "resources": {"limits": limits}, **sidecar}

    def those(kind: str, asked: tuple[tuple[int, int], ...]) -> list[dict[str, Any]]:
        return [container(kind, at, *each) for at, each in enumerate(asked)]

    init = those("init", INIT[:2]) + those("sidecar", SIDECARS)
    init += [container("late", at, *each) for at, each in enumerate(INIT[2:])]
    strict = {"hami.io/gpu-scheduler-policy": "topology-strict", "nvidia.com/nouse-gputype": name}
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"}
    metadata["annotations"] = strict
    spec: dict[str, Any] = {"initContainers": init, "containers": those("app", APPS)}
    return pods.decode_pod.convert({"metadata": metadata, "spec": spec})


def test_a_filter_that_would_take_too_long_is_retried_and_continues() -> None:
    small = Small([])
    small.listed()
    small.cluster.nodes.replace([islands(name) for name in NODES])
    answers = []
    for _ in range(60):
        answers.append(filtered(small.verbs, hard_pod(), NODES))
        # As kube-scheduler tries again.
        small.now_s += 10
    ended = [at for at, answer in enumerate(answers) if not answer.error]
    assert ended and ended[0] > 0, [answer.error for answer in answers]
    for answer in answers[: ended[0]]:
        assert "not looked at yet" in answer.error
        assert "the next attempt continues from here" in answer.error
        assert not answer.node_names
    # When all nodes are known, each has its reason, and kube-scheduler gets no error.
    last = answers[ended[0]]
    assert set(last.failed_nodes) | set(last.failed_and_unresolvable_nodes) == set(NODES)
    assert not any("not looked at" in why for why in last.failed_nodes.values())


def test_a_namespace_with_many_hard_pods_is_refused_and_others_are_not() -> None:
    """Each a class of its own, again and again: as an error kube-scheduler would try each again."""
    small = Small([])
    small.listed()
    small.cluster.nodes.replace([islands(name) for name in NODES])
    rounds = [
        [filtered(small.verbs, hard_pod(f"hard-{at}", "many"), NODES) for at in range(100)]
        for _ in range(2)
    ]
    errors = [sum(bool(answer.error) for answer in answers) for answers in rounds]
    assert 0 < errors[0] < 20 and errors[1] == 0, errors
    for answer in rounds[1]:
        # No pod is evicted from a node that was not searched.
        why = answer.failed_and_unresolvable_nodes
        assert len(why) + len(answer.failed_nodes) == len(NODES)
        assert "not looked at, pods of its namespace have taken too long" in why.values()
    # Others do not pay for it, nor does who asks for nothing hard.
    assert "continues from here" in filtered(small.verbs, hard_pod("hard", "few"), NODES).error
    small.create("plain", 1000, namespace="many")
    assert len(small.fits("plain", *NODES)) == len(NODES)
    # The debt is paid with time.
    small.now_s += 10
    again = filtered(small.verbs, hard_pod("hard-99", "many"), NODES)
    assert "continues from here" in again.error
