"""Claims of a DRA driver that is not ours, beside devices of a device plugin, on a real node.

The driver's log, containerd's log and the containers' output are the oracles.
"""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import claims, waiting
from cluster.api import Object
from cluster.claims import CLAIMS, CLASSES, EXTENDED, SLICES, ClaimsCluster
from cluster.claims_driver import NAME
from cluster.device_plugin import Interfaces, Plugin, StartPlugin
from cluster.gpu_pods import IDS, pod, runs, shows
from cluster.node import Node
from cluster.objects import NODES, PODS

pytestmark = [
    pytest.mark.programs("controllers", "kubectl", "node"),
    pytest.mark.timeout(600),
]

#: The gates that these findings need.
GATES = (
    "DynamicResourceAllocation",
    "DRAConsumableCapacity",
    "DRAExtendedResource",
    "KubeletPodResourcesDynamicResources",
    "KubeletPodResourcesGet",
)


@pytest.fixture
def claimed(claims_cluster: ClaimsCluster) -> Iterator[ClaimsCluster]:
    yield claims_cluster
    claims_cluster.clear()


@pytest.fixture(scope="module")
def node(claims_cluster: ClaimsCluster) -> Node:
    return claims_cluster.node


def calls(claimed: ClaimsCluster, asked: Plugin, uid: str, claim: str) -> list[str]:
    """All calls for this pod and its claim, in the order of their times."""
    epoch = time.time() - time.monotonic()
    of_plugin = [(call.method, call.at + epoch) for call in asked.calls()]
    of_driver = [(call.method, call.at) for call in claimed.driver.calls(claim=claim)]
    of_runtime = claims.runtime_calls(claimed.node.containerd.log, uid)
    found = sorted(of_plugin + of_driver + of_runtime, key=lambda call: call[1])
    begin = found[0][1]
    print("calls, ms:", [(method, round((at - begin) * 1000)) for method, at in found])
    return [method for method, _ in found if "Watch" not in method and "Options" not in method]


def test_the_gates_are_on_by_default(claimed: ClaimsCluster) -> None:
    lines = re.findall(
        r'^kubernetes_feature_enabled\{name="(\w+)",stage="(\w*)"\} (\d)',
        claimed.api.text("/metrics"),
        re.M,
    )
    found = {name: (stage, value) for name, stage, value in lines if name in GATES}
    print("gates:", found)
    assert found.keys() == set(GATES)
    assert {value for _, value in found.values()} == {"1"}


def test_a_claim_is_prepared_before_the_sandbox_and_a_device_before_its_container(
    claimed: ClaimsCluster, plugin: StartPlugin
) -> None:
    asked = plugin()
    claims.create(claimed.api, "four", {"gpu": "4Gi"})
    script = "echo claim=$CLAIM_GPU ids=$IDS; ls /dev | grep nvidia"
    container = claims.uses("main", script, ("four", None), count=1)
    made = claimed.api.create(PODS, claims.pod("one", [container], ["four"]))
    claimed.phase("one", "Succeeded")
    assert calls(claimed, asked, made["metadata"]["uid"], "four")[:7] == [
        "GetPreferredAllocation",
        "Allocate",
        "NodePrepareResources",
        "NodePrepareResources answered",
        "RunPodSandbox",
        "PreStartContainer",
        "CreateContainer main",
    ]
    first, *devices = claimed.node.output("one").splitlines()
    assert first.startswith("claim=gpu-0:4Gi ids=GPU-")
    assert devices == ["nvidia0", "nvidiactl"]


def test_both_cdi_sources_are_applied_and_the_plugins_wins(
    claimed: ClaimsCluster,
    plugin: StartPlugin,
    compiled: Interfaces,
    tmp_path: Path,
) -> None:
    """The plugin's device comes last, so its mount and its variable replace the claim's."""

    def edits(owner: str) -> Object:
        folder = tmp_path / owner
        folder.mkdir()
        (folder / "owner").write_text(owner)
        options = ["ro", "nosuid", "nodev", "bind"]
        mounts = [
            {"hostPath": str(folder), "containerPath": path, "options": options}
            for path in ("/both", f"/{owner}")
        ]
        return {"mounts": mounts, "env": [f"BOTH={owner}", f"OF_{owner.upper()}=yes"]}

    device = {"name": "one", "containerEdits": edits("plugin")}
    content = {"cdiVersion": "0.6.0", "kind": "hami-py.test/limits", "devices": [device]}
    file = claimed.node.cdi / "limits.json"
    file.write_text(json.dumps(content))
    cdi = compiled.plugin.CDIDevice(name="hami-py.test/limits=one")
    plugin(answer={"cdi_devices": [cdi], "envs": {"BOTH": "response", "POD": "response"}})
    config = [claims.opaque(NAME, {"containerEdits": edits("claim")})]
    claims.create(claimed.api, "four", {"gpu": "4Gi"}, config)
    (tmp_path / "pod").mkdir()
    (tmp_path / "pod" / "owner").write_text("pod")
    script = (
        "cat /claim/owner /plugin/owner /both/owner; echo; echo $OF_CLAIM $OF_PLUGIN $BOTH $POD"
    )
    container = claims.uses(
        "main",
        script,
        ("four", None),
        count=1,
        env=[{"name": name, "value": "pod"} for name in ("BOTH", "POD")],
        volumeMounts=[{"name": "pod", "mountPath": "/both"}],
    )
    volumes = [{"name": "pod", "hostPath": {"path": str(tmp_path / "pod")}}]
    claimed.api.create(PODS, claims.pod("one", [container], ["four"], volumes=volumes))
    claimed.phase("one", "Succeeded")
    mounted, variables = claimed.node.output("one").splitlines()
    print("mounted:", mounted, "variables:", variables)
    assert mounted == "claimpluginplugin"
    assert variables == "yes yes plugin pod"
    file.unlink()


def test_a_shared_claim_is_prepared_once_and_pod_resources_shows_all_of_it(
    claimed: ClaimsCluster, compiled: Interfaces
) -> None:
    claims.create(claimed.api, "shared", {"a": "4Gi", "b": "2Gi"})
    script = "echo a=$CLAIM_A b=$CLAIM_B"
    init = claims.uses("init", script, ("shared", "b"))
    wait = f"{script}; sleep 1000"
    apps = [
        claims.uses("first", wait, ("shared", "a")),
        claims.uses("second", wait, ("shared", "b")),
        claims.uses("all", wait, ("shared", None)),
        runs("none", wait, count=0),
    ]
    sidecar = claims.uses("sidecar", wait, ("shared", "a"), restartPolicy="Always")
    claimed.api.create(PODS, claims.pod("one", apps, ["shared"], initContainers=[init, sidecar]))
    two = claims.uses("main", wait, ("shared", None))
    claimed.phase("one", "Running")
    claimed.api.create(PODS, claims.pod("two", [two], ["shared"]))
    claimed.phase("two", "Running")
    only_a, only_b, both = "a=gpu-0:4Gi b=\n", "a= b=gpu-0:2Gi\n", "a=gpu-0:4Gi b=gpu-0:2Gi\n"
    wanted = {"init": only_b, "sidecar": only_a, "first": only_a, "second": only_b, "all": both}
    wanted["none"] = "a= b=\n"
    assert {name: claimed.node.output("one", name) for name in wanted} == wanted
    assert claimed.node.output("two") == both
    assert len(claimed.driver.calls("NodePrepareResources")) == 1

    shown = claims.shown(compiled, claimed.node.pod_resources)
    print("pod-resources:", shown)
    allocated = claims.results(claimed.api, "shared")
    everything = sorted(("shared", NAME, "gpu-0", each["shareID"]) for each in allocated.values())
    assert len({each["shareID"] for each in allocated.values()}) == 2
    app = dict.fromkeys(("sidecar", "first", "second", "all"), everything)
    assert shown["one"] == {**app, "none": []}, "no init container, and no request"
    assert shown["two"] == {"main": everything}

    reserved = claimed.api.get(f"{CLAIMS}/shared")["status"]["reservedFor"]
    assert sorted(each["name"] for each in reserved) == ["one", "two"]
    claimed.api.delete(f"{PODS}/one")
    waiting.gone(claimed.api, f"{PODS}/one")
    time.sleep(2.0)
    assert not claimed.driver.calls("NodeUnprepareResources"), "the other pod uses it"
    claimed.api.delete(f"{PODS}/two")
    waiting.until(lambda: claimed.driver.calls("NodeUnprepareResources"), "it is unprepared")


def test_two_pods_at_once_prepare_their_claim_twice(claimed: ClaimsCluster) -> None:
    claims.create(claimed.api, "shared", {"gpu": "4Gi"})
    claimed.driver.hold()
    for name in ("one", "two"):
        container = claims.uses("main", "sleep 1000", ("shared", None))
        claimed.api.create(PODS, claims.pod(name, [container], ["shared"]))
    calls = claimed.driver.calls
    # The kubelet may not be allowed to read the claim for one of them at first.
    waiting.until(lambda: calls("NodePrepareResources")[1:], "there are two calls", claims.DEADLINE)
    claimed.driver.recover()
    for name in ("one", "two"):
        claimed.phase(name, "Running")
    assert len(claimed.driver.calls("NodePrepareResources")) == 2


def test_the_scheduler_alone_sums_the_amounts_of_a_card(claimed: ClaimsCluster) -> None:
    before = [each["spec"] for each in claimed.api.list(SLICES)]
    wanted = {"four": "4Gi", "two": "2Gi", "most": "35Gi", "odd": "1500Ki"}
    for name, memory in wanted.items():
        claims.create(claimed.api, name, {"gpu": memory})
        container = claims.uses("main", "sleep 1000", (name, None))
        claimed.api.create(PODS, claims.pod(name, [container], [name]))
        claimed.phase(name, "Running")
    found = {name: claims.results(claimed.api, name)["gpu"] for name in wanted}
    print("allocated:", found)
    assert {name: (each["device"], each["consumedCapacity"]) for name, each in found.items()} == {
        "four": ("gpu-0", {"memory": "4Gi"}),
        "two": ("gpu-0", {"memory": "2Gi"}),
        "most": ("gpu-1", {"memory": "35Gi"}),
        "odd": ("gpu-0", {"memory": "2Mi"}),
    }
    assert len({each["shareID"] for each in found.values()}) == len(wanted)
    # Without an amount it is the whole card, and no card is free.
    claims.create(claimed.api, "whole", {"gpu": None})
    container = claims.uses("main", "sleep 1000", ("whole", None))
    claimed.api.create(PODS, claims.pod("whole", [container], ["whole"]))
    print(waiting.unschedulable(claimed.api, "whole", "cannot allocate all claims"))
    claimed.api.delete(f"{PODS}/most")
    claimed.phase("whole", "Running")
    result = claims.results(claimed.api, "whole")["gpu"]
    assert (result["device"], result["consumedCapacity"]) == ("gpu-1", {"memory": "40Gi"})
    assert [each["spec"] for each in claimed.api.list(SLICES)] == before, "the slice never changes"


def test_configurations_for_other_drivers_are_copied_into_the_allocation(
    claimed: ClaimsCluster,
) -> None:
    share = claims.opaque("limits.hami.io", {"kind": "Share", "percent": 30})
    of_class = claims.opaque("limits.hami.io", {"kind": "Share", "percent": 50})
    claimed.api.create(CLASSES, claims.device_class("with-share", config=[of_class]))
    spec = claims.spec({"gpu": "4Gi"}, [{**share, "requests": ["gpu"]}])
    spec["devices"]["requests"][0]["exactly"]["deviceClassName"] = "with-share"
    claimed.api.create(CLAIMS, {"metadata": {"name": "four"}, "spec": spec})
    container = claims.uses("main", "sleep 1000", ("four", None))
    claimed.api.create(PODS, claims.pod("one", [container], ["four"]))
    claimed.phase("one", "Running")
    assert claims.allocation(claimed.api, "four")["config"] == [
        {"source": "FromClass", "requests": ["gpu"], **of_class},
        {"source": "FromClaim", "requests": ["gpu"], **share},
    ]
    claimed.api.delete(f"{CLASSES}/with-share")


def test_an_extended_resource_becomes_a_claim_where_no_device_plugin_has_it(
    claimed: ClaimsCluster, compiled: Interfaces
) -> None:
    def extended(name: str) -> None:
        container = runs("main", "env | grep -e CLAIM_ -e IDS=; sleep 1000", count=0)
        container["resources"]["limits"] = {EXTENDED: "1"}
        claimed.api.create(PODS, pod(name, container))

    def running(name: str) -> Object:
        return dict(claimed.phase(name, "Running")["status"])

    extended("claimed")
    status = running("claimed")["extendedResourceClaimStatus"]
    print("status:", status)
    (mapping,) = status["requestMappings"]
    assert (mapping["containerName"], mapping["resourceName"]) == ("main", EXTENDED)
    result = claims.results(claimed.api, status["resourceClaimName"])[mapping["requestName"]]
    assert result["consumedCapacity"] == {"memory": claims.WHOLE}
    variable = mapping["requestName"].upper().replace("-", "_")
    assert claimed.node.output("claimed") == f"CLAIM_{variable}={result['device']}:{claims.WHOLE}\n"
    assert EXTENDED not in claimed.api.get(f"{NODES}/{claimed.node.name}")["status"]["allocatable"]

    folder = claimed.node.device_plugins
    with Plugin(compiled, folder, IDS, resource=EXTENDED, name="extended.sock") as asked:
        shows(claimed.node, "allocatable", len(IDS), EXTENDED)
        extended("allocated")
        assert "extendedResourceClaimStatus" not in running("allocated")
        assert len(asked.calls("Allocate")) == 1
        assert claimed.node.output("allocated").startswith("IDS=GPU-")
        claimed.api.delete(f"{PODS}/allocated")
        waiting.gone(claimed.api, f"{PODS}/allocated")
    shows(claimed.node, "allocatable", 0, EXTENDED)
    # The kubelet still asks the plugin that has ended, which wanted PreStartContainer.
    extended("after")

    def waits() -> str | None:
        status = claimed.api.get(f"{PODS}/after")["status"]
        for container in status.get("containerStatuses") or []:
            if waiting_for := container["state"].get("waiting"):
                return str(waiting_for.get("message") or "") or None
        return None

    assert "no devices found allocated in local cache" in waiting.until(waits, "it says why")
    claimed.node.kubelet.stop()
    claimed.node.kubelet.start()
    assert running("after")["extendedResourceClaimStatus"]["requestMappings"]
