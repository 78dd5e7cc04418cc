"""The calls of kube-scheduler to an extender, and its use of the responses."""

import threading
from typing import Any

import pytest

from cluster import extender as extenders
from cluster import objects, waiting
from cluster.api import Object
from cluster.certificates import Authority
from cluster.conftest import StartControlPlane
from cluster.extender import CARD, SHARE, Extender, Scheduling
from cluster.objects import NODES, PODS
from cluster.recorder import Call
from cluster.recordings import Recordings


def test_filter_prioritize_and_bind_send_names_if_nodes_are_cached(
    scheduling: Scheduling, recordings: Recordings
) -> None:
    cluster, extender = scheduling({"/prioritize": extenders.prefer("b")})
    pod = cluster.api.create(PODS, objects.pod("one", SHARE))
    bound = waiting.bound(cluster.api, "one")
    assert bound["spec"]["nodeName"] == "b"
    assert bound["metadata"]["annotations"] == {extenders.ASSIGNED: "card-0"}
    (asked,) = extender.calls("/filter")
    assert sorted(asked.body) == ["NodeNames", "Nodes", "Pod"]
    assert sorted(asked.body["NodeNames"]) == ["a", "b"]
    assert asked.body["Nodes"] is None
    assert asked.body["Pod"]["metadata"]["uid"] == pod["metadata"]["uid"]
    (scored,) = extender.calls("/prioritize")
    assert sorted(scored.body) == ["NodeNames", "Nodes", "Pod"]
    (bind,) = extender.calls("/bind")
    assert bind.body == {
        "PodName": "one",
        "PodNamespace": "default",
        "PodUID": pod["metadata"]["uid"],
        "Node": "b",
    }
    recordings.keep("extender-filter-names", asked.body)
    recordings.keep("extender-prioritize-names", scored.body)
    recordings.keep("extender-bind", bind.body)


def test_filter_sends_whole_nodes_if_they_are_not_cached(
    scheduling: Scheduling, recordings: Recordings
) -> None:
    cluster, extender = scheduling(nodeCacheCapable=False)
    cluster.api.create(PODS, objects.pod("one", SHARE))
    waiting.bound(cluster.api, "one")
    (asked,) = extender.calls("/filter")
    assert asked.body["NodeNames"] is None
    assert sorted(extenders.names(asked.body)) == ["a", "b"]
    recordings.keep("extender-filter-nodes", asked.body)


def test_a_pod_without_managed_resources_is_not_sent(scheduling: Scheduling) -> None:
    cluster, extender = scheduling()
    cluster.api.create(PODS, objects.pod("plain", {"cpu": 1}))
    waiting.bound(cluster.api, "plain")
    assert extender.calls() == []
    cluster.api.create(PODS, objects.pod("memory-only", {"nvidia.com/gpumem": 1000}))
    waiting.bound(cluster.api, "memory-only")
    assert [call.path for call in extender.calls()] == ["/filter", "/prioritize", "/bind"]


def test_an_init_container_alone_makes_a_pod_managed(scheduling: Scheduling) -> None:
    cluster, extender = scheduling()
    init = [objects.container("init", SHARE)]
    pod = objects.pod("init", containers=[objects.container()], initContainers=init)
    cluster.api.create(PODS, pod)
    waiting.bound(cluster.api, "init")
    assert len(extender.calls("/filter")) == 1


@pytest.mark.parametrize("ignored", [False, True])
def test_nodes_short_of_a_resource_are_sent_only_if_it_is_ignored(
    scheduling: Scheduling, ignored: bool
) -> None:
    managed = [{"name": name, "ignoredByScheduler": ignored} for name in extenders.RESOURCES]
    small = {**CARD, "nvidia.com/gpumem": 2000}
    cluster, extender = scheduling(nodes={"a": CARD, "small": small}, managedResources=managed)
    cluster.api.create(PODS, objects.pod("one", SHARE))
    waiting.bound(cluster.api, "one")
    (asked,) = extender.calls("/filter")
    assert ("small" in asked.body["NodeNames"]) == ignored


def test_reasons_of_the_extender_are_in_the_pods_condition(scheduling: Scheduling) -> None:
    cluster, _ = scheduling({"/filter": extenders.filter_none})
    cluster.api.create(PODS, objects.pod("one", SHARE))
    message = waiting.unschedulable(cluster.api, "one")
    assert "0/2 nodes are available: 2 no card with 3000 MiB free" in message


def test_keys_of_a_response_may_have_any_case(scheduling: Scheduling) -> None:
    """Go's decoder ignores case; no client should use case to tell two keys apart."""
    cluster, _ = scheduling({"/filter": lambda call: {"nodenames": call.body["NodeNames"]}})
    cluster.api.create(PODS, objects.pod("one", SHARE))
    waiting.bound(cluster.api, "one")


def test_a_filter_response_without_nodes_rejects_all_nodes(scheduling: Scheduling) -> None:
    cluster, _ = scheduling({"/filter": lambda call: {}})
    cluster.api.create(PODS, objects.pod("one", SHARE))
    message = waiting.unschedulable(cluster.api, "one")
    assert message.startswith("0/2 nodes are available"), message


def test_an_error_of_prioritize_is_ignored(scheduling: Scheduling) -> None:
    cluster, extender = scheduling({"/prioritize": lambda call: (500, {})})
    cluster.api.create(PODS, objects.pod("one", SHARE))
    waiting.bound(cluster.api, "one")
    assert len(extender.calls("/prioritize")) == 1


@pytest.mark.parametrize(("percentage", "sent"), [(None, 100), (100, 200)])
def test_of_200_nodes_the_extender_gets_half_by_default(
    scheduling: Scheduling, percentage: int | None, sent: int
) -> None:
    """numFeasibleNodesToFind: max(100, 50 % - nodes / 125) where the percentage is not set."""
    whole = {} if percentage is None else {"percentageOfNodesToScore": percentage}
    names = [f"n{number:03}" for number in range(200)]
    cluster, extender = scheduling(nodes=dict.fromkeys(names, CARD), whole=whole)
    cluster.api.create(PODS, objects.pod("one", SHARE))
    waiting.bound(cluster.api, "one")
    (asked,) = extender.calls("/filter")
    assert len(asked.body["NodeNames"]) == sent


def test_an_error_of_the_filter_is_reported_and_retried(scheduling: Scheduling) -> None:
    answers = iter([{"Error": "not ready yet"}])
    cluster, extender = scheduling(
        {"/filter": lambda call: next(answers, None) or extenders.filter_all(call)}
    )
    cluster.api.create(PODS, objects.pod("one", SHARE))
    waiting.bound(cluster.api, "one")
    assert len(extender.calls("/filter")) == 2


def test_an_extender_that_is_down_keeps_pods_pending_until_it_returns(
    scheduling: Scheduling,
) -> None:
    down = threading.Event()
    down.set()

    def filter_unless_down(call: Call) -> Any:
        return (503, {}) if down.is_set() else extenders.filter_all(call)

    cluster, _ = scheduling({"/filter": filter_unless_down})
    cluster.api.create(PODS, objects.pod("one", SHARE))
    message = waiting.unschedulable(cluster.api, "one")
    assert "503" in message
    down.clear()
    waiting.bound(cluster.api, "one")


def test_a_failed_bind_is_retried_from_the_filter(scheduling: Scheduling) -> None:
    failed = iter([{"Error": "the card is taken"}])
    cluster, extender = scheduling(
        {"/bind": lambda call: next(failed, None) or extenders.bind_with(lambda: cluster.api)(call)}
    )
    cluster.api.create(PODS, objects.pod("one", SHARE))
    waiting.bound(cluster.api, "one")
    paths = [call.path for call in extender.calls()]
    assert paths == ["/filter", "/prioritize", "/bind"] * 2


def test_the_next_pod_is_filtered_before_the_last_one_is_bound(scheduling: Scheduling) -> None:
    held = threading.Event()
    binders: list[str] = []

    def hold_first(call: Call) -> Object:
        binders.append(call.body["PodName"])
        if call.body["PodName"] == "one":
            assert held.wait(60.0)
        return extenders.bind_with(lambda: cluster.api)(call)

    cluster, extender = scheduling({"/bind": hold_first}, httpTimeout="60s")
    try:
        cluster.api.create(PODS, objects.pod("one", SHARE))
        extender.wait_for("/bind", 1)
        cluster.api.create(PODS, objects.pod("two", SHARE))
        waiting.bound(cluster.api, "two")
        assert "nodeName" not in cluster.api.get(f"{PODS}/one")["spec"]
    finally:
        held.set()
    waiting.bound(cluster.api, "one")
    assert binders == ["one", "two"]


def test_a_pending_pod_is_filtered_again_when_a_node_annotation_changes(
    scheduling: Scheduling,
) -> None:
    cluster, extender = scheduling({"/filter": extenders.filter_none})
    cluster.api.create(PODS, objects.pod("one", SHARE))
    waiting.unschedulable(cluster.api, "one")
    before = len(extender.calls("/filter"))
    cluster.api.patch(f"{NODES}/a", {"metadata": {"annotations": {"hami-py.test/woken": "1"}}})
    extender.wait_for("/filter", before + 1)


def test_an_extender_behind_tls_is_checked_by_its_authority(
    control_plane: StartControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> None:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    client = authority.issue("kube-scheduler")
    server = authority.issue("extender", hosts=["127.0.0.1"])
    tls = {
        "caFile": str(authority.certificate),
        "certFile": str(client.certificate),
        "keyFile": str(client.key),
    }
    with Extender(identity=server) as extender:
        config = extenders.config(extender.url, enableHTTPS=True, tlsConfig=tls)
        cluster = control_plane(scheduler=config)
        extender.api = cluster.api
        cluster.api.create(NODES, objects.node("a", CARD))
        cluster.api.create(PODS, objects.pod("one", SHARE))
        waiting.bound(cluster.api, "one")
        # The pool of the scheduler's connections is closed with it.
        cluster.stop()
