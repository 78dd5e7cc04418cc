"""Helpers of the failure tests: pods, the sums of their assignments, and calls of an extender."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timezone
from typing import Any

import urllib3

from cluster import objects, waiting
from cluster.api import Api, Object
from cluster.objects import PODS

#: A scheduler that there is not: such pods are bound by the test alone.
NOBODY = "nobody"


def pod(name: str, mib: int, **more: Any) -> Object:
    """A pod with a share of a card."""
    return objects.pod(name, {"nvidia.com/gpu": 1, "nvidia.com/gpumem": mib}, **more)


def given(api: Api) -> Counter[str]:
    """MiB by card, of all bound pods that have not ended, as their annotations say."""
    sums: Counter[str] = Counter()
    for seen in api.list(PODS):
        if not seen["spec"].get("nodeName") or seen["status"].get("phase") in (
            "Succeeded",
            "Failed",
        ):
            continue
        written = seen["metadata"].get("annotations", {}).get("hami.io/assignment")
        if written is None:
            continue
        for shares in json.loads(written)["containers"].values():
            for share in shares:
                sums[share["card"]] += share["memory_mib"]
    return sums


def bound(api: Api) -> dict[str, str]:
    """Nodes by pod, of those that are bound."""
    seen = {one["metadata"]["name"]: one["spec"].get("nodeName") for one in api.list(PODS)}
    return {name: node for name, node in seen.items() if node}


def take_lease(api: Api, path: str, holder: str) -> None:
    """Acquire a lease as client-go does, whoever holds it."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    before = api.get(path)["spec"]["leaseTransitions"]
    taken = {"holderIdentity": holder, "acquireTime": now, "renewTime": now}
    api.patch(path, {"spec": {**taken, "leaseTransitions": before + 1}})


def ask(port: int, verb: str, arguments: Object) -> Any:
    """The response of an extender; the status is always 200."""
    answer = urllib3.request(
        "POST", f"http://127.0.0.1:{port}/{verb}", json=arguments, timeout=60.0, retries=False
    )
    assert answer.status == 200, answer.data
    return answer.json()


def bind(port: int, made: Object, node: str) -> str:
    """The error of a bind; empty for success."""
    metadata = made["metadata"]
    return str(
        ask(
            port,
            "bind",
            {
                "PodName": metadata["name"],
                "PodNamespace": metadata["namespace"],
                "PodUID": metadata["uid"],
                "Node": node,
            },
        )["Error"]
    )


def fits(port: int, made: Object, *nodes: str) -> list[str]:
    """Where the filter lets it go; an error of the filter's is none."""
    return list(ask(port, "filter", {"Pod": made, "NodeNames": list(nodes)})["NodeNames"])


def until_bound(api: Api, count: int, deadline: float = 120.0) -> dict[str, str]:
    """Nodes by pod, once so many are bound."""

    def look() -> dict[str, str] | None:
        seen = bound(api)
        return seen if len(seen) >= count else None

    return waiting.until(look, f"{count} pods are bound", deadline)
