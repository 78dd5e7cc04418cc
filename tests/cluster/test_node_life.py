"""A release of the chart and a node's agent: figures, modes, upgrades, a rollback, the removal.

The commands are those of docs/install.md, all of them; `install_page` types them.
"""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cluster import gpu_operator, objects, waiting
from cluster.api import ApiError, Object
from cluster.conftest import StartWhole
from cluster.deployed import create_soon
from cluster.install_page import NOT_HERE, InstallPage
from cluster.kubectl import kubectl
from cluster.limited_pods import (
    MIB,
    PROGRAM,
    Limited,
    command,
    compute,
    run_in,
    running,
)
from cluster.objects import NODES, PODS
from cluster.whole import WholeCluster
from hami_py.cli import hami
from hami_py.cli.doctor import node as doctor
from support.running import Started

pytestmark = [
    pytest.mark.programs("controllers", "kubectl", "node", "helm"),
    pytest.mark.timeout(300),
]

SYSTEM = "/api/v1/namespaces/hami-system"

#: Those of docs/install.md until a pod runs under its limits, on prepared nodes.
MOST_COMMANDS = 6

HOOKS = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture(scope="module")
def page(whole_cluster: StartWhole, tmp_path_factory: pytest.TempPathFactory) -> InstallPage:
    """The page, followed on a new cluster until hami is installed and its first pod has run."""
    cluster = whole_cluster(cards="a100,a100")
    page = InstallPage(cluster, tmp_path_factory.mktemp("page"))
    _prepare(cluster, page)
    *first, check, test, waiting_pods, logs = page.commands("The first ten minutes")
    assert len(first) <= MOST_COMMANDS
    assert "nvidia-smi" in first[-1]
    for each in first:
        page.type(each)
    assert "FAIL" not in page.type(check)
    assert re.search(r"^ok   limit on card 0: .* could be allocated", page.type(test), re.M)
    page.type(logs)
    page.type(waiting_pods)
    cluster.api.delete(f"{PODS}/train")
    waiting.gone(cluster.api, f"{PODS}/train")
    return page


def _prepare(cluster: WholeCluster, page: InstallPage) -> None:
    """The node as the page wants it, with a look at what each command of the toolkit has done."""
    wanted = [each for each in page.commands("Prepare the nodes") if each not in NOT_HERE]
    said = {each: page.type(each) for each in wanted}
    for each in ("cdi generate", "cdi list"):
        (text,) = (text for command, text in said.items() if each in command)
        assert all(uuid in text for uuid in cluster.gpu.uuids())
    root = cluster.node.root
    (drop_in,) = (root / "etc/containerd/conf.d").iterdir()
    assert 'default_runtime_name = "nvidia"' in drop_in.read_text()
    assert doctor.container_toolkit(root, root / "var/lib/kubelet")


@pytest.fixture(scope="module")
def cluster(page: InstallPage) -> WholeCluster:
    """The cluster; the last test removes hami."""
    return page.cluster


def start(cluster: WholeCluster, *pods: Limited) -> None:
    for pod in pods:
        create_soon(cluster.control_plane, pod.pod("sleep infinity"))
    for pod in pods:
        running(cluster, pod.name)


def delete_all(cluster: WholeCluster) -> None:
    cluster.api.delete_all(PODS)
    waiting.until(lambda: not cluster.api.list(PODS), "the pods are deleted")


def agents(cluster: WholeCluster) -> list[dict[str, Any]]:
    return [
        pod
        for pod in cluster.api.list(f"{SYSTEM}/pods")
        if pod["metadata"]["name"].startswith("hami-node-")
    ]


def _replicas(cluster: WholeCluster) -> list[Object]:
    """The pods of the webhook, also those that end."""
    selector = "labelSelector=app.kubernetes.io/name=hami-webhook"
    return cluster.api.list(f"{SYSTEM}/pods?{selector}")


def exposition(cluster: WholeCluster) -> str:
    """The agent's page."""
    (agent,) = agents(cluster)
    return cluster.api.text(f"{SYSTEM}/pods/{agent['metadata']['name']}:9382/proxy/metrics")


def metrics(cluster: WholeCluster) -> dict[tuple[str, str], float]:
    """The values of the agent's page, by name and pod; cards have an empty pod."""
    found: dict[tuple[str, str], float] = {}
    for line in exposition(cluster).splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)(\{.*\})? (\S+)", line).groups()  # type: ignore[union-attr]
            pod = re.search(r'pod="([^"]*)"', labels or "")
            key = (name, pod[1] if pod else "")
            found[key] = found.get(key, 0) + float(value)
    return found


def _reaches(cluster: WholeCluster, key: tuple[str, str], value: float) -> bool:
    return metrics(cluster)[key] >= value


def test_the_figures_are_those_of_the_stubs_ledger(cluster: WholeCluster) -> None:
    """Takes 20 s for the cluster, which the tests of this file share."""
    pod = Limited("figures", 3000, 30)
    start(cluster, pod)
    used = ("hami_container_memory_used_bytes", pod.name)
    # The agent may have looked right before the slot was made.
    waiting.until(lambda: used in metrics(cluster), "the use is known")
    bound = metrics(cluster)
    assert bound[("hami_container_memory_limit_bytes", pod.name)] == 3000 * MIB
    assert bound[("hami_container_share_limit_ratio", pod.name)] == 0.3
    assert bound[used] == 0
    assert bound[("hami_container_enforcement", pod.name)] == 1
    with Started(command(cluster, pod.name, *PROGRAM, "hold", "256"), {}) as program:
        program.wait_for("holding")
        ledger = cluster.gpu.ledger()
        (held,) = [
            card["groups"][pod.name]["occupied"]["now"]
            for card in ledger["cards"]
            if card["groups"].get(pod.name, {}).get("allocations")
        ]
        for name, named in (
            ("hami_container_memory_used_bytes", pod.name),
            ("hami_card_memory_used_bytes", ""),
        ):
            waiting.until(partial(_reaches, cluster, (name, named), held), name)
        now = metrics(cluster)
        assert now[("hami_container_memory_used_bytes", pod.name)] == held
        assert now[("hami_container_processes", pod.name)] == 1
        assert now[("hami_container_refusals_total", pod.name)] > 0
        assert program.finish().code == 0
    waiting.until(
        lambda: metrics(cluster)[("hami_container_memory_used_bytes", pod.name)] == 0, "it is free"
    )
    assert metrics(cluster)[("hami_container_memory_peak_bytes", pod.name)] == held
    percent = compute(cluster, [pod.name], 2)
    assert percent[pod.name] < 40
    assert metrics(cluster)[("hami_container_engine_seconds_total", pod.name)] > 0.2
    assert metrics(cluster)[("hami_node_registered", "")] == 1
    assert metrics(cluster)[("hami_card_memory_allocated_bytes", "")] == 3000 * MIB
    delete_all(cluster)


def test_a_pod_gets_the_least_level_that_it_accepts_or_waits(cluster: WholeCluster) -> None:
    for name, least in (("strict", "kernel"), ("lenient", "preload")):
        pod = Limited(name, 3000, 30).pod("sleep infinity")
        pod["metadata"]["annotations"] = {"hami.io/isolation": least}
        create_soon(cluster.control_plane, pod)
    waiting.unschedulable(cluster.api, "strict", "its cards have weaker isolation than requested")

    def explained(name: str) -> str:
        there = ("--kubeconfig", str(cluster.control_plane.kubeconfig))
        done = CliRunner().invoke(hami, ["explain", "pod", name, "--all", *there])
        return done.stdout

    of_cards = "; has too weak isolation (kernel requested, offered preload)\n"
    assert explained("strict").count(of_cards) == len(cluster.gpu.uuids())
    running(cluster, "lenient")
    of_pod = r'^hami_container_enforcement\{.*pod="lenient".*$'
    (line,) = re.findall(of_pod, exposition(cluster), re.M)
    assert 'level="preload"' in line
    assert 'time="lease"' in line
    said = (
        "memory is enforced by preload and time by lease, because the node offers nothing stronger"
    )
    assert f"by what {cluster.node.name} offers now, {said}" in explained("lenient")

    def told() -> list[str]:
        events = cluster.api.list("/api/v1/namespaces/default/events")
        return [each["message"] for each in events if each["reason"] == "LimitsEnforced"]

    # The agent also knows why the driver does not limit memory.
    begin = "container main: memory is enforced by preload and time by lease, because the "
    waiting.until(lambda: any(each.startswith(begin) for each in told()), "the event is there")
    delete_all(cluster)


def test_the_mode_of_a_node_decides_about_new_pods(cluster: WholeCluster) -> None:
    node = f"{NODES}/{cluster.node.name}"
    timed = Limited("timed", 3000, 20)
    start(cluster, timed)
    cluster.api.patch(node, {"metadata": {"labels": {"hami.io/mode": "memory"}}})
    untimed = Limited("untimed", 3000, 20)

    def is_asked_by_memory_alone() -> bool:
        """The agent and the scheduler see the label a moment later."""
        start(cluster, untimed)
        if compute(cluster, [untimed.name], 1)[untimed.name] > 80:
            return True
        cluster.api.delete(f"{PODS}/{untimed.name}")
        return False

    waiting.until(is_asked_by_memory_alone, "new pods have no time limit")
    report = run_in(cluster, untimed.name, [*PROGRAM, "fill", "256"])
    assert f'"total": {3000 * MIB}' in report
    assert compute(cluster, [timed.name], 2)[timed.name] < 30
    said = [e for e in cluster.api.list("/api/v1/events") if e["reason"] == "ModeChanged"]
    assert said
    assert "mode memory; running ones keep full" in said[0]["message"]
    cluster.api.patch(node, {"metadata": {"labels": {"hami.io/mode": "share"}}})
    delete_all(cluster)
    waiting.until(lambda: _sees_all(cluster), "new pods have no limit")
    cluster.api.patch(node, {"metadata": {"labels": {"hami.io/mode": None}}})
    delete_all(cluster)


def _sees_all(cluster: WholeCluster) -> bool:
    pod = Limited("unlimited", 3000, 20)
    start(cluster, pod)
    report = run_in(cluster, pod.name, [*PROGRAM, "fill", "1024"])
    delete_all(cluster)
    return f'"total": {3000 * MIB}' not in report


def test_the_agent_works_beside_the_gpu_operator(cluster: WholeCluster, page: InstallPage) -> None:
    """It waits for the toolkit, and takes the cards from the driver container's files.

    The Operator's DaemonSet takes them away, until the doctor's command removes it from the node.
    """
    (values,) = page.commands("Beside NVIDIA's GPU Operator")
    *_, undo = page.commands("Upgrade")
    root = cluster.node.root
    gpu_operator.install(cluster, cluster.gpu.driver)
    page.type(values)

    def waits() -> str:
        names = (pod["metadata"]["name"] for pod in agents(cluster))
        return next((name for name in names if _log(cluster, name, "wait")), "")

    new = waiting.until(waits, "the new agent waits")
    assert _log(cluster, new, "wait").endswith(f"waiting for /{gpu_operator.READY} on the node\n")
    gpu_operator.ready(cluster)
    cluster.rolled_out("daemonset/hami-node")
    gpu_operator.check_specification(root / "var/lib/hami/cdi/nvidia.yaml", cluster.gpu.uuids())
    pod = Limited("operated", 3000, 10).pod("sleep infinity")
    gpu_operator.add_stub(cluster.gpu, pod)
    create_soon(cluster.control_plane, pod)
    running(cluster, "operated")
    assert f'"total": {3000 * MIB}' in run_in(cluster, "operated", [*PROGRAM, "fill", "256"])
    delete_all(cluster)

    gpu_operator.start_plugin(cluster.api)
    waiting.until(lambda: "FAIL device plugins" in _doctor(cluster), "the doctor finds it")
    found = _doctor(cluster)
    # The doctor has read the labels of the node.
    assert "the GPU Operator has installed it" in found
    (command,) = re.findall(r"`(kubectl label [^`]*)`", found)
    assert cluster.node.name in command
    cluster.kubectl(*command.split()[1:])
    waiting.until(lambda: "ok   device plugins" in _doctor(cluster), "it has ended")
    cluster.rolled_out("daemonset/hami-node")
    page.type(undo, "--wait")
    gpu_operator.remove(cluster)


def test_each_kind_of_node_has_its_scheduler(cluster: WholeCluster) -> None:
    """The default scheduler places pods on nodes with NVIDIA's plugin; ours does not."""
    api = cluster.api
    api.create(NODES, objects.node("operated", {"nvidia.com/gpu": 8}, labels=gpu_operator.LABELS))
    ignored = {"metadata": {"name": "whole-cards", "labels": {"hami.io/webhook": "ignore"}}}
    api.create("/api/v1/namespaces", ignored)
    theirs = "/api/v1/namespaces/whole-cards/pods"
    accounts = "/api/v1/namespaces/whole-cards/serviceaccounts"
    waiting.until(lambda: api.list(accounts), "its account exists")
    for path, selector, node in (
        (theirs, {gpu_operator.DEPLOY: "true"}, "operated"),
        (PODS, {}, cluster.node.name),
    ):
        pod = objects.pod("asks", {"nvidia.com/gpu": 1}, nodeSelector=selector)
        create_soon(cluster.control_plane, pod, path)
        placed = waiting.until(partial(_node, cluster, f"{path}/asks"), f"a pod is on {node}")
        assert placed == node
    selector = {gpu_operator.DEPLOY: "true"}
    waits = objects.pod("waits", {"nvidia.com/gpu": 1}, nodeSelector=selector)
    create_soon(cluster.control_plane, waits)
    assert "1 Insufficient nvidia.com/gpucores" in waiting.unschedulable(api, "waits")
    api.delete("/api/v1/namespaces/whole-cards")
    api.delete(f"{NODES}/operated")
    delete_all(cluster)


def _node(cluster: WholeCluster, pod: str) -> str | None:
    """Where it is bound."""
    name: str | None = cluster.api.get(pod)["spec"].get("nodeName")
    return name


def _log(cluster: WholeCluster, agent: str, container: str) -> str:
    """The log of a container of the agent's pod; empty before the container has started."""
    try:
        return cluster.node.output(agent, container, "hami-system")
    except ApiError:
        return ""


def _doctor(cluster: WholeCluster) -> str:
    """What `hami doctor --node` prints in the agent's container, also if a check fails."""
    in_agent = ("--namespace=hami-system", "exec", "daemonset/hami-node", "--")
    return kubectl(cluster.control_plane, *in_agent, "hami", "doctor", "--node").stdout


def test_an_upgrade_and_a_rollback_keep_the_limits_of_running_pods(
    cluster: WholeCluster, page: InstallPage
) -> None:
    """With other settings and another image; new pods follow them. Takes a minute."""
    start(cluster, Limited("kept", 3000, 10))
    upgrade, rollback = page.commands("Upgrade")
    (names,) = (each for each in page.commands("The names of Alibaba Cloud") if "helm" in each)
    page.type(upgrade)
    assert cluster.api.get(f"{PODS}/kept")["status"]["containerStatuses"][0]["restartCount"] == 0
    settings = ("--set=settings.default_cores=25", "--set=node.slots=16", "--wait")
    image = "--set=image.repository=docker.io/library/hami-py"
    for number, (each, more, cores) in enumerate(
        [(names, (*settings, image), 25), (rollback, ("--wait",), 0)]
    ):
        page.type(each, *more)
        cluster.rolled_out("daemonset/hami-node")
        # A replica that ends answers reviews by the settings before.
        waiting.until(lambda: len(_replicas(cluster)) == 2, "the other replicas have ended")
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            for hook in cluster.api.get(f"{HOOKS}/{kind}/hami-webhook")["webhooks"]:
                assert hook["rules"], "the webhook has added them, and Helm keeps them"
                assert hook["clientConfig"]["caBundle"]
        status = cluster.api.get(f"{PODS}/kept")["status"]
        assert status["containerStatuses"][0]["restartCount"] == 0
        report = json.loads(run_in(cluster, "kept", [*PROGRAM, "fill", "256"]))
        assert (report["total"], report["error"] != "") == (3000 * MIB, True)
        new = Limited(f"new-{number}", 500, 1).pod("sleep infinity")
        del new["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpucores"]
        create_soon(cluster.control_plane, new)
        running(cluster, f"new-{number}")
        assigned = cluster.api.get(f"{PODS}/new-{number}")["metadata"]["annotations"]
        (card,) = json.loads(assigned["hami.io/assignment"])["containers"]["main"]
        assert card.get("cores", 0) == cores
    delete_all(cluster)


def test_the_other_commands_of_the_page_run(page: InstallPage) -> None:
    """Takes long for what the commands wait for: pods that start and end."""
    last = page.commands("Uninstall")
    for each in page.untyped():
        if each not in last:
            page.type(each)


def test_nothing_is_left_when_hami_is_removed(cluster: WholeCluster, page: InstallPage) -> None:
    """As docs/install.md says. Takes half a minute for two rollouts."""
    root = Path(f"/proc/{cluster.node.init_pid()}/root")
    start(cluster, Limited("last", 3000, 10))
    find, clean, wait, *remove = page.commands("Uninstall")
    assert "last" in page.type(find)
    page.type(clean)
    waiting.until(lambda: not agents(cluster), "the agent has ended")

    def log() -> str:
        for pod in cluster.api.list(f"{SYSTEM}/pods"):
            name = pod["metadata"]["name"]
            if name.startswith("hami-cleanup-") and pod["status"]["phase"] == "Running":
                return cluster.node.log(name, "cleanup", "hami-system")
        return ""

    waiting.until(lambda: "still run: default/last" in log(), "it waits")
    assert (root / "var/lib/hami/ledger.json").exists()
    delete_all(cluster)
    page.type(wait)
    assert not (root / "var/lib/hami").exists()
    assert not (root / "run/hami").exists()
    assert " /run/hami " not in (root / "proc/1/mountinfo").read_text()
    assert not list((root / "var/lib/kubelet/device-plugins").glob("hami-*"))
    node = cluster.api.get(f"{NODES}/{cluster.node.name}")
    assert not [key for key in node["metadata"]["annotations"] if key.startswith("hami.io")]
    assert "nvidia.com/gpumem" not in node["status"]["capacity"]
    for each in remove:
        page.type(each)
    assert not page.untyped(), "with all tests of this file"
    labels = cluster.api.get(f"{NODES}/{cluster.node.name}")["metadata"]["labels"]
    assert not [label for label in labels if label.startswith("hami.io")]
    for path in (
        "/api/v1/namespaces",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        "/apis/storage.k8s.io/v1/storageclasses",
    ):
        waiting.until(partial(_has_none, cluster, path), f"nothing of hami in {path}")


def _has_none(cluster: WholeCluster, path: str) -> bool:
    return not _ours(cluster, path)


def _ours(cluster: WholeCluster, path: str) -> list[str]:
    try:
        found = cluster.api.list(path)
    except ApiError:
        return []
    return [o["metadata"]["name"] for o in found if o["metadata"]["name"].startswith("hami")]
