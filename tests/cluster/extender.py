"""A scheduler extender for findings: it says yes to all, binds with an annotation, and records.

Kubernetes' own name for the protocol is k8s.io/kube-scheduler/extender/v1; its Go structs have no
JSON tags, so the keys are capitalised.
"""

from collections.abc import Callable, Mapping
from typing import Any

from cluster import objects
from cluster.api import Api, ApiError, Object
from cluster.control_plane import ControlPlane
from cluster.recorder import Call, Recorder

#: The resources of a node with one card of eight slots, and the request of a pod for a part of it.
CARD = {"nvidia.com/gpu": 8, "nvidia.com/gpumem": 40960, "nvidia.com/gpucores": 100}
SHARE = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}

#: Where the extender says which card a pod got.
ASSIGNED = "hami-py.test/assigned"

RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores")


def config(url: str, **wanted: object) -> Object:
    """A KubeSchedulerConfiguration's part for one extender; ``wanted`` are its fields."""
    managed = [{"name": name, "ignoredByScheduler": False} for name in RESOURCES]
    extender = {
        "urlPrefix": url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "weight": 1,
        "nodeCacheCapable": True,
        "managedResources": managed,
        "httpTimeout": "10s",
        **wanted,
    }
    return {"extenders": [{key: value for key, value in extender.items() if value is not None}]}


def names(arguments: Any) -> list[str]:
    """The nodes of an ExtenderArgs, however it says them."""
    if arguments.get("NodeNames") is not None:
        return list(arguments["NodeNames"])
    return [node["metadata"]["name"] for node in arguments["Nodes"]["items"]]


def filter_all(call: Call) -> Object:
    """ExtenderFilterResult: every node will do."""
    return {
        "NodeNames": call.body.get("NodeNames"),
        "Nodes": call.body.get("Nodes"),
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


def filter_none(call: Call) -> Object:
    """ExtenderFilterResult: no node has a card with room."""
    failed = dict.fromkeys(names(call.body), "no card with 3000 MiB free")
    return {"NodeNames": [], "FailedNodes": failed, "Error": ""}


def prefer(node: str) -> Callable[[Call], list[Object]]:
    """HostPriorityList: ten for this node, none for the others."""

    def prioritize(call: Call) -> list[Object]:
        return [{"Host": name, "Score": 10 * (name == node)} for name in names(call.body)]

    return prioritize


def bind_with(api: Callable[[], Api], **annotations: str) -> Callable[[Call], Object]:
    """Binds by one POST, with the pod's UID and these annotations. ``api`` is asked at the call."""

    def bind(call: Call) -> Object:
        wanted = call.body
        pod = {"metadata": {"name": wanted["PodName"]}}
        metadata = {"uid": wanted["PodUID"], "annotations": {ASSIGNED: "card-0", **annotations}}
        path = f"/api/v1/namespaces/{wanted['PodNamespace']}/pods/{wanted['PodName']}/binding"
        try:
            api().create(path, objects.binding(pod, wanted["Node"], **metadata))
        except ApiError as error:
            return {"Error": str(error)}
        return {"Error": ""}

    return bind


class Extender(Recorder):
    """All verbs; ``handlers`` says those that a test wants otherwise.

    ``api`` has to be set before the first pod: the cluster starts after its extender.
    """

    api: Api

    def __init__(self, handlers: Mapping[str, Any] | None = None, **options: Any) -> None:
        ours = {
            "/filter": filter_all,
            "/prioritize": lambda call: [{"Host": n, "Score": 0} for n in names(call.body)],
            "/bind": bind_with(lambda: self.api),
            "/preempt": lambda call: {
                "NodeNameToMetaVictims": call.body["NodeNameToMetaVictims"]
                or {
                    node: {
                        "Pods": [{"UID": pod["metadata"]["uid"]} for pod in victims["Pods"]],
                        "NumPDBViolations": victims["NumPDBViolations"],
                    }
                    for node, victims in (call.body["NodeNameToVictims"] or {}).items()
                }
            },
        }
        super().__init__({**ours, **(handlers or {})}, **options)


#: The fixture `scheduling`.
Scheduling = Callable[..., tuple[ControlPlane, Extender]]
