"""The web view in a whole cluster, as the chart runs it, and what a browser asks it."""

import json
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import objects, waiting
from cluster.charts import rendered
from cluster.kubectl import kubectl
from cluster.whole import WholeCluster


@dataclass(frozen=True)
class Page:
    """A browser with a token sends requests to the view in the cluster."""

    address: str
    token: str

    def ask(self, path: str) -> Any:
        """The answer, once the view has read the cluster."""
        url = f"http://{self.address}{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.token}"})

        def answered() -> Any:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                return json.load(answer) if answer.status == 200 else None

        return waiting.until(answered, f"{path} is answered")

    def containers(self) -> list[Any]:
        """Those of all nodes."""
        nodes = [node["name"] for node in self.ask("/api/picture")["nodes"]]
        return [each for node in nodes for each in self.ask(f"/api/node?name={node}")["containers"]]


def install_view(whole: WholeCluster, folder: Path) -> str:
    """Adds the view to what is installed; its address."""
    made = [
        each
        for each in rendered("--set", "view.enabled=true")
        if each["metadata"]["name"] in ("hami-view", "hami-settings")
        and each["kind"] != "ClusterRole"
    ]
    listed = {"kind": "List", "apiVersion": "v1", "items": made}
    (folder / "view.json").write_text(json.dumps(listed))
    done = kubectl(whole.control_plane, "apply", "-f", folder / "view.json")
    assert done.returncode == 0, done.stderr
    whole.rolled_out("deployment/hami-view")
    found = whole.api.list("/api/v1/namespaces/hami-system/pods")
    (pod,) = [each for each in found if each["metadata"]["name"].startswith("hami-view-")]
    return f"{pod['status']['podIP']}:9384"


def page_of_all(whole: WholeCluster, address: str) -> Page:
    """The view with the token of an account that may see all."""
    account = "/api/v1/namespaces/default/serviceaccounts"
    whole.api.create(account, {"metadata": {"name": "all"}})
    user = {"kind": "ServiceAccount", "name": "all", "namespace": "default"}
    bound = objects.grant("all", "cluster-admin", user)
    whole.api.create(f"{objects.RBAC}/clusterrolebindings", bound)
    made = whole.api.create(f"{account}/all/token", {"spec": {}})
    return Page(address, made["status"]["token"])
