"""Reads from the API server's audit log which users wrote to pods, and events about them.

It also says which claims the node agents have read.

It is for clusters with `Settings(audits=True)`. The API server logs a request when it arrives, and
again when it is answered.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cluster import waiting
from cluster.api import Object
from cluster.objects import PODS

if TYPE_CHECKING:
    from cluster.control_plane import ControlPlane

#: What the names of hami's users begin with.
HAMI = "system:serviceaccount:hami-system:"

_LOG = "audit.log"

#: A binding has two places in the API, and an event too.
_RESOURCES = [
    {"group": "", "resources": ["pods", "pods/*", "bindings", "events"]},
    {"group": "events.k8s.io", "resources": ["events"]},
]

#: The writes that give a pod its cards. Of these the log has the whole request.
_ASSIGNING = [{"group": "", "resources": ["pods/binding"]}, {"group": "", "resources": ["pods"]}]

_READS = ["get", "list", "watch"]

#: Of these the log has the reads of node agents, too.
_READ = [{"group": "resource.k8s.io", "resources": ["resourceclaims"]}]

_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [
        {
            "level": "Request",
            "userGroups": ["system:serviceaccounts:hami-system"],
            "verbs": ["create", "patch"],
            "resources": _ASSIGNING,
        },
        {
            "level": "Metadata",
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            "resources": _RESOURCES,
        },
        {
            "level": "Metadata",
            "users": [f"{HAMI}hami-node"],
            "verbs": _READS,
            "resources": _READ,
            "omitStages": ["ResponseStarted", "ResponseComplete"],
        },
        {"level": "None"},
    ],
}


class Write(NamedTuple):
    """A request that was to change a pod, and the status code of its answer.

    An event has the name of its object, a point, and a number.
    """

    user: str
    verb: str
    resource: str
    pod: str
    code: int


def flags(folder: Path) -> dict[str, object]:
    """The flags for an API server that writes its audit log to this folder."""
    policy = folder / "audit.json"
    policy.write_text(json.dumps(_POLICY))
    return {"audit-policy-file": policy, "audit-log-path": folder / _LOG}


def _writes(folder: Path) -> list[Write]:
    """All writes so far, in their order."""
    return [_write(event) for event in _answered(folder)]


def _answered(folder: Path) -> list[Object]:
    """The answers to all writes so far, once those that were begun have been answered."""

    def look() -> list[Object] | None:
        events = [event for event in _events(folder) if event["verb"] not in _READS]
        answered = [event for event in events if event["stage"] == "ResponseComplete"]
        begun = {event["auditID"] for event in events}
        return answered if begun == {event["auditID"] for event in answered} else None

    return waiting.until(look, "all writes to pods are answered")


def _events(folder: Path) -> list[Object]:
    # The last line may be half written.
    lines = (folder / _LOG).read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]


def reads_of_claims(cluster: ControlPlane) -> list[str]:
    """The names of the claims that node agents have read, in order; an empty name = many."""
    return [
        event["objectRef"].get("name", "")
        for event in _events(cluster.folder)
        if event["verb"] in _READS
    ]


def bound_at(cluster: ControlPlane) -> dict[str, float]:
    """When the API server had bound each pod, in seconds of the wall clock."""
    return {
        event["objectRef"]["name"]: datetime.fromisoformat(
            event["stageTimestamp"].replace("Z", "+00:00")
        ).timestamp()
        for event in _answered(cluster.folder)
        if event["objectRef"].get("subresource") == "binding"
        and event["responseStatus"]["code"] == 201
    }


def each_bound_in_one_write(cluster: ControlPlane, user: str, names: Iterable[str]) -> None:
    """Check that this user bound each of these pods by one write, and wrote to none besides.

    kube-scheduler writes only conditions and nominations to them, and no other user writes.
    """
    pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in cluster.api.list(PODS)}
    wanted = {name: pods[name] for name in names}

    def heard() -> set[str]:
        events = cluster.api.list("/api/v1/namespaces/default/events")
        return {each["involvedObject"]["uid"] for each in events if each["reason"] == "Scheduled"}

    # By the user that binds: all its writes are logged by then.
    waiting.until(lambda: heard().issuperset(wanted.values()), "kube-scheduler heard of all")
    written = [
        write for write in _since_cleared(_writes(cluster.folder)) if write.resource != "events"
    ]
    theirs = [write for write in written if write.user == user]
    assert sorted(theirs) == sorted(
        Write(user, "create", "pods/binding", name, 201) for name in wanted
    ), theirs
    others = {
        (write.user, write.verb, write.resource)
        for write in written
        if write.pod in wanted and write.user != user
    }
    assert others <= {
        ("admin", "create", "pods"),
        ("system:kube-scheduler", "patch", "pods/status"),
    }, others


def writes_per_pod(
    cluster: ControlPlane, prefix: str, names: Collection[str]
) -> dict[str, list[Write]]:
    """What users with this prefix wrote to each of these pods, and which events about it."""
    found: dict[str, list[Write]] = {name: [] for name in names}
    for write in _writes(cluster.folder):
        pod = write.pod.rpartition(".")[0] if write.resource == "events" else write.pod
        if write.user.startswith(prefix) and pod in found:
            found[pod].append(write)
    return found


def _since_cleared(written: list[Write]) -> list[Write]:
    """Those since pods were last deleted all together, which is the end of a test."""
    ends = [number for number, write in enumerate(written) if write.verb == "deletecollection"]
    return written[ends[-1] + 1 :] if ends else written


def _write(event: Object) -> Write:
    what = event["objectRef"]
    resource = "/".join(filter(None, (what["resource"], what.get("subresource"))))
    return Write(
        event["user"]["username"],
        event["verb"],
        resource,
        what.get("name", ""),
        event["responseStatus"]["code"],
    )
