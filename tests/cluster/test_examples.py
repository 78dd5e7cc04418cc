"""deploy/examples, each applied on a real node, with a small client in place of its image.

The client sees and fills what the example requests; the stub's ledger is the oracle.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cluster import images, waiting
from cluster.api import Object
from cluster.conftest import StartWhole
from cluster.deployed import DEPLOY
from cluster.limited_pods import FILL, MIB, install
from cluster.objects import PODS
from cluster.whole import WholeCluster

pytestmark = [pytest.mark.programs("controllers", "kubectl", "node"), pytest.mark.timeout(300)]

EXAMPLES = sorted((DEPLOY / "examples").glob("*.yaml"))

CARD_MIB, CONTEXT_MIB = 81_559, 527

#: Each container fills its memory, one after the other, and says how much it got.
SCRIPT = f"{' '.join(FILL)}; echo done; sleep infinity"


@pytest.fixture(scope="module")
def cluster(whole_cluster: StartWhole) -> WholeCluster:
    cluster = whole_cluster(cards="h100,h100,h100")
    install(cluster)
    return cluster


@pytest.fixture(autouse=True)
def _clear(cluster: WholeCluster) -> Iterator[None]:
    yield
    for kind in ("deployments", "statefulsets", "jobs", "pods", "services"):
        cluster.kubectl("delete", kind, "--selector=example", "--ignore-not-found")
    cluster.api.delete_all(PODS)
    waiting.until(lambda: not cluster.api.list(PODS), "the example's pods are deleted")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_under_its_limits(cluster: WholeCluster, path: Any) -> None:
    """The first takes 20 s for the cluster, which the others share."""
    documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
    pods = 0
    for document in documents:
        document["metadata"].setdefault("labels", {})["example"] = path.stem
        template = _template(document)
        if template is not None:
            pods += document["spec"].get("replicas", 1)
            for container in _containers(template):
                _replace_image(container, template)
        cluster.kubectl("apply", "-f", _write(cluster, document))
    waiting.until(lambda: len(_running(cluster)) == pods, f"{pods} pods run", 120.0)
    for pod in _running(cluster):
        for container in pod["spec"]["containers"]:
            _check(cluster, pod, container)


def _template(document: Object) -> Object | None:
    if document["kind"] == "Pod":
        return document
    found: Object | None = document["spec"].get("template")
    return found


def _containers(template: Object) -> list[Object]:
    spec = template["spec"]
    return [*spec.get("initContainers", ()), *spec["containers"]]


def _replace_image(container: Object, template: Object) -> None:
    container |= {"image": images.CLIENT, "imagePullPolicy": "Never"}
    is_init = container in template["spec"].get("initContainers", ())
    gpu = "nvidia.com/gpu" in container.get("resources", {}).get("limits", {})
    script = " ".join(FILL) if is_init else SCRIPT
    container["command"] = ["/bin/sh", "-c", script if gpu else "sleep infinity"]
    container.pop("args", None)
    template["spec"]["terminationGracePeriodSeconds"] = 0


def _write(cluster: WholeCluster, document: Object) -> str:
    path = cluster.control_plane.folder / "example.json"
    path.write_text(json.dumps(document))
    return str(path)


def _running(cluster: WholeCluster) -> list[Object]:
    return [pod for pod in cluster.api.list(PODS) if pod["status"].get("phase") == "Running"]


def _check(cluster: WholeCluster, pod: Object, container: Object) -> None:
    limits = container["resources"].get("limits", {})
    assigned = json.loads(pod["metadata"].get("annotations", {}).get("hami.io/assignment", "null"))
    if "nvidia.com/gpu" not in limits:
        assert assigned is None or container["name"] not in assigned["containers"]
        return
    cards = assigned["containers"][container["name"]]
    assert len({card["card"] for card in cards}) == int(limits["nvidia.com/gpu"])
    wanted = _mib(limits.get("nvidia.com/gpumem", str(CARD_MIB)))
    assert {card["memory_mib"] for card in cards} == {wanted}
    name = pod["metadata"]["name"]

    def report() -> Any:
        lines = cluster.node.output(name, container["name"]).splitlines()
        assert "Traceback (most recent call last):" not in lines, lines
        return json.loads(lines[-2]) if lines[-1:] == ["done"] else None

    seen = waiting.until(report, f"{name} has filled its memory")
    # The driver keeps a part of a whole card, and CUDA does not count it.
    total = min(wanted * MIB, cluster.gpu.ledger()["cards"][0]["total"])
    assert seen["total"] == total
    assert seen["got"] == (total - CONTEXT_MIB * MIB) // MIB * MIB


def _mib(quantity: str) -> int:
    """A number of MiB as the API server writes it."""
    return int(quantity[:-1]) * 1000 if quantity.endswith("k") else int(quantity)
