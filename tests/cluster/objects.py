"""Nodes and pods as tests write them: whole objects, with nothing that a test does not need."""

from collections.abc import Mapping, Sequence
from typing import Any

Object = dict[str, Any]

#: Where they are; pods and quotas of the namespace that most tests use.
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"

#: An image that is never pulled: manually created nodes run nothing.
IMAGE = "example.com/none:1"


def node(
    name: str, resources: Mapping[str, object] | None = None, **metadata: Mapping[str, str]
) -> Object:
    """A node that is ready, with room for pods and these extended resources.

    ``metadata`` is ``labels`` and ``annotations``.
    """
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "500"}
    capacity.update({key: str(value) for key, value in (resources or {}).items()})
    ready = {"type": "Ready", "status": "True", "reason": "HandMade"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **metadata},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
    }


def container(
    name: str = "main", limits: Mapping[str, object] | None = None, **more: object
) -> Object:
    """One container; ``more`` are its other fields."""
    resources = {"limits": {key: str(value) for key, value in (limits or {}).items()}}
    return {"name": name, "image": IMAGE, "resources": resources, **more}


def pod(
    name: str | None = None,
    limits: Mapping[str, object] | None = None,
    *,
    containers: Sequence[Object] | None = None,
    metadata: Mapping[str, object] | None = None,
    **spec: Any,
) -> Object:
    """A pod with one container with these limits, or with ``containers``; ``spec`` adds fields.

    Without a name it is one that the API server names: ``generateName``, as a controller's pods.
    """
    named = {"name": name} if name else {"generateName": "pod-"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**named, **(metadata or {})},
        "spec": {
            "containers": list(containers or [container(limits=limits)]),
            # No controller manager makes the default account's token.
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            **spec,
        },
    }


def binding(pod: Object, node: str, **metadata: object) -> Object:
    """A v1 Binding; ``metadata`` such as ``annotations`` and ``uid``."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod["metadata"]["name"], **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


RBAC = "/apis/rbac.authorization.k8s.io/v1"


def grant(name: str, role: str, *subjects: Object, kind: str = "ClusterRole") -> Object:
    """A RoleBinding or ClusterRoleBinding."""
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": kind, "name": role},
        "subjects": [*subjects],
    }
