"""Runs the commands that the Kubernetes pages tell a person to type."""

import base64
import json
import os
import re
import shlex
import subprocess

import pytest
import yaml

from cluster import binaries, objects, waiting
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.deployed import DEPLOY, apply, running
from cluster.extended import assignment, card, extended, node
from cluster.kubectl import hami, kubectl
from cluster.objects import NODES, PODS
from cluster.servers import free_ports
from hami_py.model import pods

pytestmark = pytest.mark.programs("kubectl")

DOCS = DEPLOY.parent / "docs"

WHY = "Why does a pod wait?"


def typed(cluster: ControlPlane, command: str, **names: str) -> str:
    """A command of a page, with names in place of those in capitals, and what it says."""
    for placeholder, name in names.items():
        command = re.sub(rf"\b{placeholder}\b", name, command)
    program, *arguments = shlex.split(command)
    assert program == "kubectl"
    done = kubectl(cluster, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_manually_created_node_gets_the_pending_pod(control_plane: StartControlPlane) -> None:
    contributing = (DOCS.parent / "CONTRIBUTING.md").read_text()
    page = contributing.split("## Try it without the node agent\n")[1]
    (block,) = re.findall(r"^```sh\n(.*?)^```$", page.split("\n## ")[0], re.M | re.S)
    (show,) = re.findall(r"^\$ (kubectl get pod train .*)$", (DOCS / "pods.md").read_text(), re.M)
    asked = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    with extended(control_plane) as (cluster, _):
        cluster.api.create(NODES, objects.node("bare"))
        cluster.api.create(PODS, objects.pod("train", asked))
        waiting.unschedulable(cluster.api, "train", "Insufficient nvidia.com/gpumem")
        for command in block.splitlines():
            typed(cluster, command, NODE="bare")
        waiting.bound(cluster.api, "train")
        assert pods.decode_assignment(typed(cluster, show)) == assignment(cluster.api, "train")


def test_the_documented_command_shows_the_webhook_settings(
    control_plane: StartControlPlane,
) -> None:
    page = (DOCS / "settings.md").read_text().split("## The settings file\n")[1]
    name, content = re.findall(r"^    (kubectl -n hami-system get .*)$", page, re.M)[:2]
    cluster = control_plane()
    apply(cluster)
    found = typed(cluster, content, NAME=typed(cluster, name))
    assert found == (DEPLOY / "settings.yaml").read_text()


def test_the_documented_role_allows_queries(control_plane: StartControlPlane) -> None:
    """Runs the commands before and after the grant of the page's rights."""
    page = (DOCS / "operate.md").read_text()
    (role,) = [
        found
        for found in map(yaml.safe_load, re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S))
        if found.get("kind") == "ClusterRole"
    ]
    with extended(control_plane) as (cluster, _):
        cluster.api.create(NODES, node("a", [card("a", 0)]))
        cluster.api.create(PODS, objects.pod("train", {"nvidia.com/gpumem": 3000}))
        waiting.bound(cluster.api, "train")
        there = ("--kubeconfig", cluster.kubeconfig_for(cluster.user("asker")))
        assert hami("explain", "pod", "train", *there).returncode == 1
        cluster.api.create(f"{objects.RBAC}/clusterroles", role)
        name = role["metadata"]["name"]
        typed(
            cluster, f"kubectl create clusterrolebinding {name} --clusterrole {name} --user asker"
        )
        for question in (["explain", "pod", "train"], ["snapshot"]):
            done = hami(*question, *there)
            assert done.returncode == 0, done.stderr


def test_the_documented_command_explains_a_pending_pod(control_plane: StartControlPlane) -> None:
    """Each `kubectl get` of these two parts of the pages."""
    pages = [(DOCS / f"{name}.md").read_text() for name in ("operate", "install")]
    parts = [
        page.split(f"## {title}\n")[1].split("\n## ")[0]
        for page, title in zip(pages, (WHY, "Uninstall"), strict=True)
    ]
    commands = re.findall(r"kubectl (?:-n hami-system )?get [^`\n]+", "\n".join(parts))
    cluster = control_plane()
    cluster.api.create(NODES, node("a", [card("a", 0)]))
    waits = objects.pod("waits", schedulerName="nobody")
    waits["metadata"]["labels"] = pods.annotations.LABELS
    cluster.api.create(PODS, waits)
    apply(cluster)
    lease = {"metadata": {"name": "hami-scheduler"}, "spec": {"holderIdentity": "pod-1_x"}}
    cluster.api.create("/apis/coordination.k8s.io/v1/namespaces/hami-system/leases", lease)
    said = [typed(cluster, command, NODE="a") for command in commands]
    assert [answer for answer in said if answer.startswith("pod-1_")] == ["pod-1_x"]
    (sums,) = [json.loads(answer) for answer in said if answer.startswith("{")]
    assert sums["nvidia.com/gpumem"] == "10k"
    (line,) = [each for answer in said for each in answer.splitlines() if "waits" in each]
    assert line.split()[:2] == ["default", "waits"]


def test_certificates_are_replaced_manually(control_plane: StartControlPlane) -> None:
    """Types the commands of the page and waits until the webhook has followed each of them."""
    page = (DOCS / "operate.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.M | re.S)
    (block,) = [each for each in blocks if "kubectl" in each]
    (at_once,) = re.findall(r"^\| at once \| [^`]*`(kubectl [^`]*)`", page, re.M)
    cluster = control_plane()
    apply(cluster)
    (port,) = free_ports(1)

    def trusted() -> bytes:
        secret = cluster.api.get("/api/v1/namespaces/hami-system/secrets/hami-webhook")
        return base64.b64decode(secret.get("data", {}).get("ca.crt", ""))

    def authorities() -> int:
        return trusted().count(b"BEGIN CERTIFICATE")

    with running(cluster, "webhook", "--listen", f"127.0.0.1:{port}"):
        waiting.until(lambda: authorities() == 1, "there is an authority")
        paths = f"{binaries.folder('kubectl')}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": paths, "KUBECONFIG": str(cluster.kubeconfig)}
        shell = ["sh", "-c", block]
        done = subprocess.run(
            shell, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        waiting.until(lambda: authorities() == 2, "the next authority is announced")
        before = trusted()
        typed(cluster, at_once)
        waiting.until(lambda: authorities() == 1, "there is a new authority")
        assert trusted() not in before
