"""Webhook and extender judge by the settings file, also while they have read different ones."""

from pathlib import Path
from typing import Any, cast

import pytest

from hami_py._native import Allocator
from hami_py.cluster.state import Cluster
from hami_py.kube import ApiServer, read_settings
from hami_py.model import pods
from hami_py.model.pods import PodSettings, wire
from hami_py.scheduler.settings import Timing
from hami_py.scheduler.verbs import Verbs
from hami_py.webhook.review import Reviewer
from support.artifacts import ROOT
from support.extender_calls import filtered
from unit.cluster_commands import GPU, pod_of
from unit.scheduler.small import Server, node
from unit.webhook.test_review import ask, patched

#: The names of Alibaba Cloud, and deploy's settings with them and without.
THEIRS = {"aliyun.com/gpu-mem": "4", "aliyun.com/gpu-core.percentage": "30"}
OFF = ROOT / "deploy" / "settings.yaml"
ON = "profiles: [hami, aliyun]\n" + OFF.read_text()


@pytest.fixture
def on(tmp_path: Path) -> PodSettings:
    file = tmp_path / "settings.yaml"
    file.write_text(ON)
    return read_settings(file)


def extender(settings: PodSettings) -> Verbs:
    """One that knows a node ``a`` with a card of 10,000 MiB."""
    cluster = Cluster(Allocator(), settings)
    cluster.nodes.replace([node("a", 1)])
    for sink in (cluster.pods, cluster.quotas, cluster.budgets):
        sink.replace([])
    return Verbs(cluster, cast(ApiServer, Server()), Timing())


def told_of(verbs: Verbs, pod: dict[str, Any]) -> None:
    verbs._cluster.pods.changed(pods.decode_pod.convert(pod))


def room(verbs: Verbs) -> int:
    """MiB that a pod may have at most, as the filter says."""
    least, most = 0, 1 << 20
    while most - least > 1:
        middle = (least + most) // 2
        asked = pods.decode_pod.convert(
            pod_of({**GPU, "nvidia.com/gpumem": str(middle)}, uid="other")
        )
        fits = bool(filtered(verbs, asked, ["a"]).node_names)
        least, most = (middle, most) if fits else (least, middle)
    return least


def mutated(settings: PodSettings, pod: dict[str, Any]) -> dict[str, Any]:
    response = ask(Reviewer(settings), "mutate", pod)
    assert response["allowed"]
    return dict(patched(pod, response))


def test_webhook_and_extender_read_the_names_that_the_file_enables(on: PodSettings) -> None:
    pod = mutated(on, pod_of(THEIRS))
    assert pod["spec"]["schedulerName"] == "hami-scheduler"
    assert pod["metadata"]["labels"] == {"hami.io/pod": "true"}
    (main,) = pod["spec"]["containers"]
    assert main["resources"]["limits"] == {**THEIRS, **GPU}
    assert {"name": "CUDA_DEVICE_MEMORY_LIMIT", "value": "4096m"} in main["env"]
    verbs = extender(on)
    asked = pods.decode_pod.convert(pod)
    assert filtered(verbs, asked, ["a", "none"]).node_names == ["a"]
    refused_there = pods.decode_pod.convert(pod_of({**THEIRS, "aliyun.com/gpu-mem": "10"}))
    said = filtered(verbs, refused_there, ["a"])
    assert "less memory than requested" in said.failed_and_unresolvable_nodes["a"]


def test_names_that_the_file_does_not_enable_are_ignored() -> None:
    settings = read_settings(OFF)
    pod = pod_of(THEIRS)
    assert mutated(settings, pod) == pod
    verbs = extender(settings)
    # All nodes: it is no pod of ours.
    both = ["a", "none"]
    assert filtered(verbs, pods.decode_pod.convert(pod), both).node_names == both


def bound(pod: dict[str, Any], mib: int) -> dict[str, Any]:
    """The pod with its cards, as the binding writes it."""
    share = wire.CardAllocation("GPU-a-0", mib, 30)
    assignment = wire.Assignment(1, "u", "a", {"main": (share,)})
    given = pods.encode_assignment(assignment)
    metadata = {**pod["metadata"], "annotations": {pods.annotations.ASSIGNMENT: given}}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": "a"}}


def test_a_pod_keeps_its_cards_when_settings_are_reverted(on: PodSettings) -> None:
    theirs = bound(mutated(on, pod_of(THEIRS)), 4096)
    stricter = PodSettings(default_cards=0, default_memory_mib=500)
    for settings in (on, read_settings(OFF)):
        verbs = extender(settings)
        assert room(verbs) == 10_000
        told_of(verbs, theirs)
        assert room(verbs) == 10_000 - 4096
    verbs = extender(stricter)
    told_of(verbs, bound(pod_of({"nvidia.com/gpumem": "9500"}), 9500))
    assert room(verbs) == 500


def test_without_values_of_the_webhook_the_extenders_default_counts() -> None:
    """As while new settings roll out."""
    pod = mutated(PodSettings(), pod_of(GPU))
    read = pods.read_request(pods.decode_pod.convert(pod), PodSettings(default_memory_mib=4096))
    assert read is not None
    assert read.containers[0].memory == wire.Size(mib=4096)
    wrote = mutated(PodSettings(default_memory_mib=4096), pod_of(GPU))
    read = pods.read_request(pods.decode_pod.convert(wrote), PodSettings())
    assert read is not None
    assert read.containers[0].memory == wire.Size(mib=4096)
