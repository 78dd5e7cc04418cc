"""A page of metrics of each part: its own code writes it, with every metric and every label."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from hami_py._native import Allocator
from hami_py.cluster.state import Cluster
from hami_py.model import NodeCard, pods
from hami_py.model.pods import objects, wire
from hami_py.monitor import (
    NodeFigures,
    PodExcess,
    exposition,
    hami_exposition,
)
from hami_py.scheduler.metrics import Metrics
from hami_py.serving import Bodies
from hami_py.webhook import metrics as webhook_metrics
from hami_py.webhook.review import Reviewer, read_review
from support.slice_uses import container


@dataclass(frozen=True)
class Family:
    """A metric as a query names it, with its type, its labels and its help text."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Page:
    """The metrics of one part at one path; ``port`` is with the scheme."""

    part: str
    port: str
    path: str
    text: str

    def families(self) -> list[Family]:
        """The metrics in their order."""
        return list(_families(self.text))


def pages() -> list[Page]:
    """All pages."""
    extender, figures = _extender(), _figures()
    return [
        Page("Extender", "9381", "/metrics", extender.exposition()),
        Page("Extender, by card", "9381", "/metrics/cards", extender.cards().decode()),
        Page("Extender, HAMi's names", "9381", "/metrics/hami", extender.hami().decode()),
        Page("Webhook", "9443, TLS", "/metrics", _webhook()),
        Page("Node agent", "9382", "/metrics", exposition(figures).decode()),
        Page(
            "Node agent, HAMi's names", "9382", "/metrics/hami", hami_exposition(figures).decode()
        ),
    ]


def names() -> set[str]:
    """Every name of a metric, and those of the series of a histogram."""
    return {
        name
        for page in pages()
        for family in page.families()
        for name in (
            [f"{family.name}{part}" for part in ("", "_bucket", "_count", "_sum")]
            if family.kind == "histogram"
            else [family.name]
        )
    }


def _families(text: str) -> Iterator[Family]:
    labels: dict[str, dict[str, None]] = {}
    found: dict[str, Metric] = {}
    for family in text_string_to_metric_families(text):
        if not family.name.endswith("_created"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = family
            # The labels in their order.
            labels[name] = {label: None for sample in family.samples for label in sample.labels}
            labels[name].pop("le", None)
    for name, family in found.items():
        yield Family(
            name, family.type, tuple(labels[name]), re.sub(r"\s+", " ", family.documentation)
        )


class _Watch:
    undecoded = 0

    def silent_s(self) -> float | None:
        return 1.0


class _Keeper:
    expires_at = 0.0
    failures = 0


def _extender() -> Metrics:
    allocator = Allocator()
    card = wire.Card("GPU-0", 0, "NVIDIA T4", 16_384)
    allocator.set_node(wire.encode(wire.Node("n", (card,))))
    ask = wire.ContainerRequest("main", "app", 1, wire.Size(mib=3000), 30)
    name = wire.PodName("uid", "ml", "train")
    allocator.reserve(wire.encode(wire.PodRequest(name, 0, (ask,), wire.CardRequest())), "n", 0)
    allocator.set_quota(wire.encode(wire.Quota("ml", "q", gpu=1)))
    cluster = Cluster(allocator, pods.PodSettings())
    limits = {"nvidia.com/gpu": 1}
    cluster.pods.changed(
        _pod(
            "waits", uid="u", spec={"containers": [{"name": "c", "resources": {"limits": limits}}]}
        )
    )
    watch: Any = _Watch()
    meter = Metrics(cluster, {"nodes": watch})
    meter.timed("filter", lambda _: None)(None)
    return meter


def _pod(name: str, *, uid: str, spec: Mapping[str, Any]) -> objects.Pod:
    metadata = {"name": name, "namespace": "ml", "uid": uid}
    return pods.decode_pod(json.dumps({"metadata": metadata, "spec": spec}).encode())


def _webhook() -> str:
    reviewer = Reviewer(pods.PodSettings())
    review = {
        "request": {
            "uid": "u",
            "kind": {"kind": "Pod"},
            "operation": "CREATE",
            "object": {"metadata": {"name": "p"}, "spec": {"containers": []}},
        }
    }
    reviewer.mutate(read_review(json.dumps(review)))
    keeper: Any = _Keeper()
    return webhook_metrics.exposition(reviewer, keeper, Bodies(1))


def _figures() -> NodeFigures:
    card = NodeCard("GPU-0", 0, "NVIDIA T4", 2, 1, 1, 0.5, 0, healthy=True)
    used = container("ml", "p", "main", "GPU-0", limit=1, share=30, share_used=0.2, last_used=1.0)
    used = replace(used, card_allocated=0.3)
    excess = (PodExcess("ml", "p", "GPU-0", 1),)
    return NodeFigures("n", (card,), (used,), {"bypass": 1}, 0, registered=True, excess=excess)
