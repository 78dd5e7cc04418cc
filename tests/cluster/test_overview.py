"""`kubectl hami` on two nodes with twelve limited pods: its figures are those of the stub's ledger.

The ledger is kept outside of the pods, and shares no code with hami.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from cluster import binaries, images, objects, waiting
from cluster.api import ApiError, Object
from cluster.charts import rendered
from cluster.conftest import StartWhole
from cluster.deployed import create_soon
from cluster.limited_pods import LABEL, install
from cluster.monitoring import dcgm, evaluation
from cluster.monitoring.prometheus import Prometheus, documented_jobs, monitored_jobs
from cluster.node import OTHER_PODS, Node
from cluster.node_gpu import NodeGpu
from cluster.objects import NODES
from cluster.waiting import timed
from cluster.web_view import Page, install_view, page_of_all
from cluster.whole import WholeCluster
from support import artifacts

pytestmark = [
    pytest.mark.programs("controllers", "kubectl", "node", "helm", "prometheus"),
    pytest.mark.timeout(300),
]

MIB = 1 << 20

#: The stub's cards of the two nodes, with the bytes that their driver reserves for itself.
CARDS = {"a100": 571 * MIB, "a100-80": 869 * MIB}

#: The namespaces of two tenants; each has six pods.
TENANTS = ("red", "blue")

#: Percent of the card's time of the one pod that computes.
CORES = 40


class Two:
    """A cluster with two nodes, each with cards of its own."""

    def __init__(self, whole: WholeCluster, folder: Path, ends: contextlib.ExitStack) -> None:
        self.whole, self.api = whole, whole.api
        short = Path(tempfile.mkdtemp(prefix="hami-second-"))
        self.gpu = NodeGpu(artifacts.find(), short, "a100-80,a100-80")
        node = Node(
            *(binaries.folder("node"), whole.control_plane, folder, "n2"),
            images=images.whole(),
            runtime=self.gpu.runtime,
            pods=OTHER_PODS,
        )
        self.api.patch(f"{NODES}/{ends.enter_context(node).name}", {"metadata": {"labels": LABEL}})
        ends.enter_context(self.gpu)
        self.gpu.start(node)

    def ledger(self) -> tuple[dict[str, int], dict[str, int]]:
        """The bytes that are in use now, by card and by group of processes.

        NVML counts what the driver reserves as used.
        """
        cards: dict[str, int] = {}
        groups: dict[str, int] = {}
        for gpu, reserved in zip((self.whole.gpu, self.gpu), CARDS.values(), strict=True):
            for card in gpu.ledger()["cards"]:
                cards[card["uuid"]] = card["occupied"]["now"] + reserved
                for name, group in card["groups"].items():
                    groups[name] = groups.get(name, 0) + group["occupied"]["now"]
        # Programs without a group, such as the agents, hold nothing.
        assert not groups.pop("", 0)
        return cards, groups


def pod(tenant: str, number: int) -> Object:
    """A pod that fills its memory; the first of each tenant computes instead."""
    name = f"{tenant}-{number}"
    env = [{"name": "STUB_GPU_GROUP", "value": name}]
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 2048 + 512 * number}
    limits["nvidia.com/gpucores"] = 10 if number else CORES
    command = ["/programs/tenant", "fill" if number else "compute"]
    image = {"image": images.CLIENT, "imagePullPolicy": "Never"}
    main = objects.container("main", limits, env=env, command=command, **image)
    # Both nodes have pods, however the scheduler would place them.
    node = {"kubernetes.io/hostname": f"n{1 + TENANTS.index(tenant)}"}
    return objects.pod(name, containers=[main], restartPolicy="Never", nodeSelector=node)


def pods_of(tenant: str) -> str:
    return f"/api/v1/namespaces/{tenant}/pods"


@pytest.fixture(scope="module")
def two(whole_cluster: StartWhole, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """The cluster with its twelve pods, and one that fits nowhere."""
    whole = whole_cluster(cards="a100,a100")
    with contextlib.ExitStack() as ends:
        with timed("a cluster of two nodes"):
            two = Two(whole, tmp_path_factory.mktemp("n2"), ends)
            install(whole)
        for tenant in TENANTS:
            two.api.create("/api/v1/namespaces", {"metadata": {"name": tenant}})
            for number in range(6):
                create_soon(whole.control_plane, pod(tenant, number), pods_of(tenant))
        two.api.create(
            pods_of("red"),
            objects.pod("red-waits", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 81000}),
        )

        def all_run() -> bool:
            found = [each for tenant in TENANTS for each in two.api.list(pods_of(tenant))]
            return [each["status"].get("phase") for each in found].count("Running") == 12

        waiting.until(all_run, "twelve pods run", 120)
        yield two


def hami(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`kubectl hami`, as its executable runs it."""
    program = "import sys; from hami_py.cli import kubectl; kubectl()"
    command = [sys.executable, "-c", program, *arguments, "--kubeconfig", str(kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done


def read(two: Two, *arguments: str) -> Any:
    kubeconfig = two.whole.control_plane.kubeconfig
    done = hami(kubeconfig, *arguments, "-o", "json")
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_all_figures_are_those_of_the_ledger(two: Two) -> None:
    """Takes 40 s for two nodes and twelve pods, which the tests of this file share."""

    def figures() -> tuple[Any, Any, tuple[Any, Any]]:
        seen, pods = read(two, "inspect"), read(two, "top", "pod", "-A")
        shown = {card["uuid"]: card["memory_used"] for n in seen["nodes"] for card in n["cards"]}
        return seen, pods, (shown, {row["pod"]: row["memory_used"] for row in pods["containers"]})

    def agree() -> bool:
        shown, (cards, groups) = figures()[2], two.ledger()
        filled = [groups.get(f"{tenant}-{n}", 0) for tenant in TENANTS for n in range(1, 6)]
        return min(filled) > 2048 * MIB and shown == (cards, groups)

    with timed("inspect and top agree with the ledger"):
        with contextlib.suppress(TimeoutError):
            waiting.until(agree, "all figures agree", 60)
        assert figures()[2] == two.ledger()
        seen, pods, _ = figures()
    assert [node["name"] for node in seen["nodes"]] == ["n1", "n2"]
    rows = {row["pod"]: row for row in pods["containers"]}
    for tenant in TENANTS:
        for number in range(6):
            row = rows[f"{tenant}-{number}"]
            assert row["memory_limit"] == (2048 + 512 * number) * MIB
            assert row["memory_peak"] >= row["memory_used"]
            assert (row["level"], row["time_level"]) == ("preload", "lease")
            assert bool(row["refusals"]) is bool(number), "a program that fills is refused at last"
    allocated = sum(c["memory_allocated"] for n in seen["nodes"] for c in n["cards"])
    assert allocated == sum(row["memory_limit"] for row in rows.values())
    (waits,) = seen["waiting"]
    # The cards of one node are too small, and those of the other have too little left.
    assert (waits["pod"], waits["nodes"], waits["of"]) == ("red-waits", 1, 2)


@pytest.mark.alone
def test_the_used_share_is_the_ledgers(two: Two) -> None:
    """Of the two pods that compute; each alone on its card or not, its share is the limit."""
    shares = {}
    for row in read(two, "top", "pod", "-A")["containers"]:
        shares[row["pod"]] = row["share_used"]
    for tenant in TENANTS:
        assert CORES / 2 <= 100 * shares[f"{tenant}-0"] <= CORES + 15
        assert shares[f"{tenant}-1"] == 0


#: The two ways in which a Prometheus knows what to scrape.
CONFIGURED = ("documented", "monitored")


@pytest.fixture(scope="module")
def scraped(
    two: Two, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Prometheus]]:
    """A Prometheus with the jobs of deploy/chart/files, and one with those of the PodMonitors."""
    made = rendered("--set", "metrics.podMonitor=true")
    jobs = dict(zip(CONFIGURED, (documented_jobs(), monitored_jobs(made)), strict=True))
    folder, kubeconfig = tmp_path_factory.mktemp("prometheus"), two.whole.control_plane.kubeconfig
    with dcgm.exporter([*two.ledger()[0]]) as address, contextlib.ExitStack() as running:
        # As with the GPU operator, its labels of pods are not those of its own pod.
        its = {"targets": [address], "labels": {"namespace": "gpu-operator", "pod": "exporter"}}
        exporter = {"job_name": "dcgm", "static_configs": [its]}
        yield {
            name: running.enter_context(
                Prometheus(folder / name, [*jobs[name], exporter], kubeconfig)
            )
            for name in CONFIGURED
        }


@pytest.mark.parametrize("configured", CONFIGURED)
def test_prometheus_answers_every_query(
    two: Two, scraped: Mapping[str, Prometheus], configured: str
) -> None:
    """Takes 15 s. Meanwhile a pod starts and others are refused, for the metrics of rare events."""
    prometheus = scraped[configured]
    targets = {"dcgm": 1, "hami-node": 2, "hami-scheduler": 2, "hami-webhook": 2}
    waiting.until(lambda: prometheus.jobs() == targets, f"all is scraped: {targets}")
    limits = {"gpu": 20, "gpumem": 99999, "gpucores": 999}
    hard = {f"limits.nvidia.com/{name}": most for name, most in limits.items()}
    quota = {"metadata": {"name": configured}, "spec": {"hard": hard}}
    two.api.create("/api/v1/namespaces/red/resourcequotas", quota)
    two.api.create(pods_of("red"), pod("red", 6))
    refused = objects.pod("refused", {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 101})

    def are_solved() -> bool:
        with pytest.raises(ApiError):
            two.api.create(pods_of("red"), refused)
        return not evaluation.problems(prometheus)

    with timed("every query has an answer"), contextlib.suppress(TimeoutError):
        waiting.until(are_solved, "every query has an answer", 120)
    assert evaluation.problems(prometheus) == []
    two.api.delete(f"{pods_of('red')}/red-6")
    waiting.gone(two.api, f"{pods_of('red')}/red-6")


@pytest.mark.parametrize("configured", CONFIGURED)
def test_prometheus_has_the_figures_of_the_ledger(
    two: Two, scraped: Mapping[str, Prometheus], configured: str
) -> None:
    prometheus = scraped[configured]

    def agrees() -> bool:
        cards, groups = two.ledger()
        asked = "sum by (pod) (hami_container_memory_used_bytes)"
        by_pod = {labels["pod"]: int(value) for labels, value in prometheus.ask(asked)}
        of_cards = prometheus.value("sum(hami_card_memory_used_bytes)")
        # The ledger keeps the groups of the pods that were deleted.
        held = {name: amount for name, amount in groups.items() if amount}
        return by_pod == held and of_cards == sum(cards.values())

    waiting.until(agrees, f"its figures agree: {two.ledger()}", 120)
    limits = prometheus.ask("sum by (namespace) (hami_container_memory_limit_bytes)")
    assert {labels["namespace"] for labels, _ in limits} == set(TENANTS)
    # The pods of a card have all of its power together; the cards are the exporter's in order.
    (query,) = [query for name, query in evaluation.panel_queries().items() if "Power by" in name]
    drawn = prometheus.ask(f"sum by (UUID) ({query})")
    order = [*two.ledger()[0]]
    assert {labels["UUID"]: pytest.approx(value) for labels, value in drawn} == {
        labels["UUID"]: dcgm.value("DCGM_FI_DEV_POWER_USAGE", order.index(labels["UUID"]))
        for labels, _ in drawn
    }
    assert len(drawn) == len(TENANTS)
    alerts = prometheus.alerts().items()
    critical = {name: rule["state"] for name, rule in alerts if "critical" in str(rule["labels"])}
    assert set(critical.values()) == {"inactive"}, critical


def test_a_watch_follows_the_cluster(two: Two) -> None:
    program = "import sys; from hami_py.cli import kubectl; kubectl()"
    arguments = ["top", "pod", "-A", "-o", "json", "--watch", "0.5", "--kubeconfig"]
    command = [sys.executable, "-c", program, *arguments, str(two.whole.control_plane.kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "blue-4" in process.stdout.readline()
        two.api.delete(f"{pods_of('blue')}/blue-4")
        for line in process.stdout:
            if "blue-4" not in line:
                break
        process.terminate()


@pytest.fixture
def tenant(two: Two, tmp_path: Path) -> Path:
    """The kubeconfig of a service account of `red` that may view that namespace."""
    account = "/api/v1/namespaces/red/serviceaccounts"
    if two.api.request("GET", f"{account}/viewer")[0] == 404:
        two.api.create(account, {"metadata": {"name": "viewer"}})
        bind(two, "red", "ClusterRole", "view")
    token = two.api.create(f"{account}/viewer/token", {"spec": {}})["status"]["token"]
    config = json.loads(two.whole.control_plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    config["contexts"][0]["context"]["namespace"] = "red"
    path = tmp_path / "tenant.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def bind(two: Two, namespace: str, kind: str, role: str) -> None:
    subject = {"kind": "ServiceAccount", "name": "viewer", "namespace": "red"}
    at = f"/namespaces/{namespace}/rolebindings" if namespace else "/clusterrolebindings"
    made = objects.grant(f"viewer-{role}", role, subject, kind=kind)
    two.api.create(f"{objects.RBAC}{at}", made)


@pytest.mark.parametrize(
    "arguments",
    [("inspect",), ("inspect", "-d"), ("top", "pod", "-A"), ("top", "node"), ("quota",)],
)
def test_a_tenant_sees_nothing_of_others(
    two: Two, tenant: Path, arguments: tuple[str, ...]
) -> None:
    for output in ([], ["-o", "json"]):
        done = hami(tenant, *arguments, *output)
        said = done.stdout + done.stderr
        assert "blue" not in said
        assert 'cannot list resource "nodes"' in done.stderr
        assert "only pods of namespace red are shown" in done.stderr
    assert "red-1" in hami(tenant, "top", "pod").stdout
    assert "red-waits" in hami(tenant, "inspect").stdout


@pytest.fixture(scope="module")
def view(two: Two, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the view."""
    return install_view(two.whole, tmp_path_factory.mktemp("view"))


@pytest.fixture(scope="module")
def everything(two: Two, view: str) -> Page:
    return page_of_all(two.whole, view)


def test_the_view_shows_the_ledgers_figures(two: Two, everything: Page) -> None:
    def agrees() -> Any:
        seen, rows = everything.ask("/api/picture"), everything.containers()
        cards, groups = two.ledger()
        shown = {card["uuid"]: card["memory_used"] for n in seen["nodes"] for card in n["cards"]}
        used = {row["pod"]: row["memory_used"] for row in rows}
        # The ledger keeps the groups of the pods that were deleted.
        held = {name: amount for name, amount in groups.items() if amount}
        return seen if shown == cards and used == held else None

    with timed("the view agrees with the ledger"):
        seen = waiting.until(agrees, f"all figures agree: {two.ledger()}", 60)
    assert [seen["waiting"], seen["notes"]] == [read(two, "inspect")["waiting"], []]
    waiting.until(
        lambda: "red-waits" in {each["name"] for each in everything.ask("/api/picture")["events"]},
        "its events",
    )
    # Each container has such an event. They would leave no room for others.
    written = {each["reason"] for each in two.api.list("/api/v1/events")}
    shown = {each["reason"] for each in everything.ask("/api/picture")["events"]}
    assert written - shown >= {"LimitsEnforced"}
    history = everything.ask("/api/node?name=n1&history=1")["history"]
    assert {each["pod"] for each in history["series"]} >= {"", "red-1"}
    # Used now, and 20 s ago at most.
    assert all(each["memory"] for each in history["series"])


def test_a_deleted_pod_leaves_the_view(two: Two, everything: Page) -> None:
    two.api.delete(f"{pods_of('blue')}/blue-3")
    waiting.until(lambda: "blue-3" not in str(two.api.list(pods_of("blue"))), "it is deleted")
    with timed("a deleted pod is gone from the view"):
        waiting.until(lambda: "blue-3" not in str(everything.containers()), "it is gone")


def test_a_tenant_sees_nothing_of_others_in_the_view(two: Two, tenant: Path, view: str) -> None:
    token = json.loads(tenant.read_text())["users"][0]["user"]["token"]
    page = Page(view, token)
    picture = page.ask("/api/picture")
    assert "red-1" in {each["pod"] for each in page.containers()}
    waiting.until(lambda: "red-waits" in str(page.ask("/api/picture")["events"]), "its events")
    for said in (picture, page.ask("/api/picture"), page.containers()):
        assert "blue" not in json.dumps(said)
    assert "only pods of namespace red are shown" in str(picture["notes"])
    assert page.ask("/api/node?name=n1&history=1")["history"] is None
    for made_up in ("made-up", token[:-8] + "AAAAAAAA"):
        with pytest.raises(HTTPError, match="401"):
            Page(view, made_up).ask("/api/picture")


def test_the_roles_of_the_chart_are_enough(two: Two, tenant: Path) -> None:
    """Last in this file: the tenant becomes a viewer of the whole cluster."""
    bind(two, "", "ClusterRole", "view")
    bind(two, "hami-system", "Role", "hami-usage")

    def sees_all() -> bool:
        done = hami(tenant, "inspect", "-o", "json")
        return not done.stderr and "blue-1" in done.stdout

    waiting.until(sees_all, "the rights are in force")
    seen = json.loads(hami(tenant, "inspect", "-o", "json").stdout)
    assert seen["notes"] == []
    assert None not in [card["memory_used"] for n in seen["nodes"] for card in n["cards"]]
    admin = read(two, "inspect", "-o", "json")
    assert [node["name"] for node in seen["nodes"]] == [node["name"] for node in admin["nodes"]]
