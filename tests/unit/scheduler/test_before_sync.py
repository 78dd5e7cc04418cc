"""kube-scheduler runs in our pod and calls at once; a list that has not arrived is not empty."""

import pytest

from hami_py.scheduler.extender_api import MetaPod, MetaVictims, PreemptArgs
from support.extender_calls import filtered, rated
from unit.scheduler.small import Small


@pytest.mark.parametrize("missing", ["nodes", "pods", "quotas"])
def test_no_card_is_assigned_before_the_first_lists(missing: str) -> None:
    small = Small()
    pod = small.create("p")
    for name in {"nodes", "pods", "quotas"} - {missing}:
        sink = getattr(small.cluster, name)
        sink.replace(small._listed if name == "nodes" else [])
    answer = filtered(small.verbs, pod, ["a", "b"])
    assert "the cluster is not known yet" in answer.error
    assert answer.node_names == []
    assert "the cluster is not known yet" in small.bind("p", "a")
    assert small.server.written == []
    scores = rated(small.verbs, pod, ["a", "b"])
    assert {score.host: score.score for score in scores} == {"a": 0, "b": 0}
    victims = {"a": MetaVictims([MetaPod("uid-other")])}
    assert small.verbs.preempt(PreemptArgs(pod, meta_victims=victims)).meta_victims == {}
    small.listed()
    assert small.fits("p") == ["a", "b"]
    assert small.bind("p", "a") == ""


def test_a_pod_without_our_resources_is_accepted() -> None:
    small = Small()
    small.create("p")
    del small.server.pods["p"]["spec"]["containers"][0]["resources"]
    assert small.fits("p") == ["a", "b"]
