"""``hami explain`` on unreadable nodes and on scheduling gates, compared with kube-scheduler.

The oracle is kube-scheduler: the pod's condition with our extender's text, and the node to which it
binds the pod. The API server reports that a pod with gates is not scheduled.
"""

import json
from typing import Any

from cluster import objects, waiting
from cluster.conftest import StartControlPlane
from cluster.extended import card, extended, node, until_known
from cluster.objects import NODES, PODS
from cluster.placing import GPU, MEMORY
from cluster.test_queries import hami
from hami_py.kube import ApiServer
from hami_py.model import pods

GATE = "example.com/hold"


def test_explain_shows_unreadable_nodes_and_scheduling_gates(
    control_plane: StartControlPlane,
) -> None:
    """Runs the command against a cluster in which it cannot read everything."""
    with extended(control_plane) as (cluster, scheduler):
        api = cluster.api
        for name in ("a", "barred", "broken", "bare"):
            made: dict[str, Any] = node(name, [card(name, 0), card(name, 1)])
            if name == "broken":
                made["metadata"]["annotations"][pods.annotations.CARDS] = "{"
            if name == "bare":
                del made["metadata"]["annotations"][pods.annotations.CARDS]
            api.create(NODES, made)
        written = {"annotations": {pods.annotations.ASSIGNMENT: "{"}}
        api.create(PODS, objects.pod("other", {GPU: 1}, metadata=written, nodeName="barred"))

        def explained(name: str) -> dict[str, Any]:
            done = hami("explain", "pod", name, "--json", "--kubeconfig", cluster.kubeconfig)
            assert done.returncode == 0, done.stderr
            answer: dict[str, Any] = json.loads(done.stdout)
            return answer

        until_known(ApiServer.connect(cluster.kubeconfig), scheduler)
        # Too large for each card of a; not for both together, by which kube-scheduler reckons.
        api.create(PODS, objects.pod("large", {GPU: 1, MEMORY: 12_000}))
        said = waiting.unschedulable(api, "large")
        told = explained("large")
        why = {each["node"]: each["reason"] for each in told["nodes"]}
        assert why.keys() == {"a", "barred", "broken"}
        assert "pod default/other" in why["barred"]
        assert pods.annotations.CARDS in why["broken"]
        assert told["without_cards"] == ["bare"]
        assert told["left_out"] == []
        for reason in (
            "1 its cards cannot be read",
            "1 no cards are registered",
            "1 the cards of a pod there cannot be read",
        ):
            assert reason in said, said

        gated = objects.pod("gated", {GPU: 1, MEMORY: 100}, schedulingGates=[{"name": GATE}])
        api.create(PODS, gated)
        waiting.unschedulable(api, "gated")
        (condition,) = api.get(f"{PODS}/gated")["status"]["conditions"]
        assert condition["reason"] == "SchedulingGated"
        told = explained("gated")
        assert told["gates"] == [GATE]
        assert [each["node"] for each in told["nodes"] if each["fits"]] == ["a"]
        text = hami("explain", "pod", "gated", "--kubeconfig", cluster.kubeconfig).stdout
        assert f"while it has these scheduling gates: {GATE}" in text
        api.patch(f"{PODS}/gated", {"spec": {"schedulingGates": None}})
        assert waiting.bound(api, "gated")["spec"]["nodeName"] == "a"
        assert explained("gated")["gates"] == []
