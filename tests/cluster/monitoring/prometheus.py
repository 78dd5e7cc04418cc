"""A Prometheus that scrapes a test cluster, and what it knows.

Its configuration is that of deploy/chart/files/scrape.yaml, or the one that the Prometheus operator
makes of the chart's PodMonitors. It runs on the host and asks the API server which pods there are.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import urllib3
import yaml

from cluster import binaries
from cluster.api import Object
from cluster.charts import CHART
from cluster.monitoring.rules import RULES, rules
from cluster.servers import Server, free_ports

Job = dict[str, Any]

#: Seconds. A busy machine scrapes later, but not less.
_INTERVAL = "2s"

_SCRAPE = CHART / "files" / "scrape.yaml"


def documented_jobs() -> list[Job]:
    """The jobs for a Prometheus without the operator."""
    return list(yaml.safe_load(_SCRAPE.read_text())["scrape_configs"])


def monitored_jobs(made: Sequence[Object]) -> list[Job]:
    """The jobs that the Prometheus operator makes of the PodMonitors among these objects.

    As generatePodMonitorConfig does:
    https://github.com/prometheus-operator/prometheus-operator/blob/main/pkg/prometheus/promcfg.go
    """
    return [
        _job(monitor, number, endpoint)
        for monitor in made
        if monitor["kind"] == "PodMonitor"
        for number, endpoint in enumerate(monitor["spec"]["podMetricsEndpoints"])
    ]


def _job(monitor: Object, number: int, endpoint: Mapping[str, Any]) -> Job:
    name, namespace = monitor["metadata"]["name"], monitor["metadata"]["namespace"]

    def keep(source: str, value: str) -> dict[str, Any]:
        return {"action": "keep", "source_labels": [source], "regex": f"({value})"}

    def copy(source: str, target: str) -> dict[str, Any]:
        return {"source_labels": [f"__meta_kubernetes_{source}"], "target_label": target}

    meta = "__meta_kubernetes_pod"
    phase = {"source_labels": [f"{meta}_phase"], "regex": "(Failed|Succeeded)", "action": "drop"}
    selected = [
        keep(f"{meta}_label_{re.sub('[^a-zA-Z0-9_]', '_', label)}", value)
        for label, value in monitor["spec"]["selector"]["matchLabels"].items()
    ]
    own = [{_snake(key): value for key, value in each.items()} for each in endpoint["relabelings"]]
    return {
        "job_name": f"podMonitor/{namespace}/{name}/{number}",
        "honor_labels": endpoint.get("honorLabels", False),
        "metrics_path": endpoint.get("path", "/metrics"),
        "scheme": endpoint.get("scheme", "http"),
        "tls_config": {_snake(key): value for key, value in endpoint.get("tlsConfig", {}).items()},
        "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [namespace]}}],
        "relabel_configs": [
            *(phase, *selected, keep(f"{meta}_container_port_name", endpoint["port"])),
            *(copy("namespace", "namespace"), copy("pod_container_name", "container")),
            *(
                copy("pod_name", "pod"),
                {"target_label": "job", "replacement": f"{namespace}/{name}"},
            ),
            {"target_label": "endpoint", "replacement": endpoint["port"]},
            *own,
        ],
    }


def _snake(name: str) -> str:
    return re.sub("([A-Z])", lambda found: f"_{found[1].lower()}", name)


class Prometheus:
    """It runs while it is used in `with`; ``options`` are its flags beside the usual ones."""

    def __init__(
        self,
        folder: Path,
        jobs: Sequence[Job],
        kubeconfig: Path,
        options: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir()
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        for job in jobs:
            for discovery in job.get("kubernetes_sd_configs", ()):
                discovery["kubeconfig_file"] = str(kubeconfig)
        every = {"scrape_interval": _INTERVAL, "scrape_timeout": _INTERVAL}
        config = {
            "global": {**every, "evaluation_interval": _INTERVAL},
            "rule_files": [str(RULES)],
            "scrape_configs": list(jobs),
        }
        file = folder / "prometheus.json"
        file.write_text(json.dumps(config))
        flags = {
            "config.file": file,
            "storage.tsdb.path": folder / "data",
            "web.listen-address": f"127.0.0.1:{port}",
            "log.level": "warn",
            **(options or {}),
        }
        program = binaries.folder("prometheus") / "prometheus"
        command: list[str | Path] = [
            program,
            *(f"--{name}={value}" for name, value in flags.items()),
        ]
        self.server = Server(command, folder / "prometheus.log", self._is_ready)

    def __enter__(self) -> "Prometheus":
        self.server.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.server.stop()

    def get(self, path: str, **query: str) -> Any:
        """The data of an answer of its API."""
        answer = urllib3.request("GET", f"{self.url}/api/v1/{path}", fields=query, timeout=30.0)
        body = json.loads(answer.data)
        assert body["status"] == "success", f"{query}: {body}"
        return body["data"]

    def ask(self, query: str) -> list[tuple[dict[str, str], float]]:
        """The labels and values of a query's result now; without what is no number."""
        found = self.get("query", query=query)["result"]
        values = [(each["metric"], float(each["value"][1])) for each in found]
        return [(labels, value) for labels, value in values if not math.isnan(value)]

    def value(self, query: str) -> float:
        """The result of a query that has one; NaN if it has none yet."""
        found = self.ask(query)
        assert len(found) <= 1, f"{query}: {found}"
        return found[0][1] if found else math.nan

    def jobs(self) -> dict[str, int]:
        """How many targets each job has that are up."""
        return {labels["job"]: int(value) for labels, value in self.ask("sum by (job) (up)")}

    def selectors(self, query: str) -> list[tuple[str, str]]:
        """The metrics of a query, each with the selector."""
        return list(_selectors(self.get("parse_query", query=query)))

    def unknown(self, query: str) -> list[str]:
        """The metrics of a query that no target and no rule has."""
        known = {"up", *self.get("metadata"), *(each.get("record") for each in rules())}
        names = [name for name, _ in self.selectors(query)]
        return [name for name in names if not {name, re.sub("_bucket$", "", name)} & known]

    def alerts(self) -> dict[str, Any]:
        """The alerts by name, as they stand."""
        groups = self.get("rules", type="alert")["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    def _is_ready(self) -> bool:
        try:
            answer = urllib3.request("GET", f"{self.url}/-/ready", timeout=5.0, retries=False)
        except urllib3.exceptions.HTTPError:
            return False
        return answer.status == 200


def _selectors(node: Any) -> Iterator[tuple[str, str]]:
    """Of a parsed query."""
    if isinstance(node, list):
        for each in node:
            yield from _selectors(each)
    elif isinstance(node, dict):
        if node.get("type") in ("vectorSelector", "matrixSelector"):
            matchers = [
                f"{each['name']}{each['type']}{json.dumps(each['value'])}"
                for each in node["matchers"]
            ]
            yield node["name"], f"{{{', '.join(matchers)}}}"
        for each in node.values():
            yield from _selectors(each)
