"""What the API server says of pods, nodes and quotas: the fields that we read, typed.

Kubernetes' objects have hundreds of fields and get new ones with each release: unknown ones are
ignored, and a field that we do not read is not listed here. What we do read has to have the right
type; a wrong one is an ``InvalidValue`` that names the path in the JSON. ``null`` is what an absent
field is, as in Kubernetes' own decoder.

Field names and types: https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/
"""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec

from hami_py.model.pods.constraints import Affinity, NodeSpec, Toleration
from hami_py.model.pods.decoding import ApiObject as _Object
from hami_py.model.pods.decoding import Decoder

Quantity: TypeAlias = str | int | float
"""The API server writes quantities as strings; in people's manifests they may also be numbers."""

Quantities: TypeAlias = dict[str, Quantity]

OVER = frozenset({"Succeeded", "Failed"})
"""Phases of a pod whose containers have all ended for good."""

DEFAULT_SCHEDULER = "default-scheduler"
"""What the API server writes where a pod names no scheduler."""

_NONE: Mapping[str, str] = {}


class Metadata(_Object, frozen=True):
    """``ObjectMeta``."""

    name: str = ""
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class FieldRef(_Object, frozen=True):
    """``ObjectFieldSelector``."""

    field_path: str = ""


class VariableSource(_Object, frozen=True):
    """``EnvVarSource``; its other kinds count as there, and are not looked into."""

    field_ref: FieldRef | None = None


class Variable(_Object, frozen=True):
    """``EnvVar``."""

    name: str
    value: str | None = None
    value_from: VariableSource | None = None


class VariablesFrom(_Object, frozen=True):
    """``EnvFromSource``; what is in it is not seen here, only that it is there."""


class Resources(_Object, frozen=True):
    """``ResourceRequirements``."""

    limits: Quantities | None = None
    requests: Quantities | None = None


class Capabilities(_Object, frozen=True):
    """``Capabilities``."""

    add: tuple[str, ...] | None = None


class SecurityContext(_Object, frozen=True):
    """A container's ``SecurityContext``."""

    privileged: bool | None = None
    capabilities: Capabilities | None = None


class VolumeMount(_Object, frozen=True):
    """``VolumeMount``."""

    name: str = ""
    mount_path: str = ""
    read_only: bool | None = None
    recursive_read_only: str | None = None
    sub_path: str | None = None
    sub_path_expr: str | None = None
    mount_propagation: str | None = None


class Container(_Object, frozen=True):
    """``Container``."""

    name: str
    env: tuple[Variable, ...] | None = None
    env_from: tuple[VariablesFrom, ...] | None = None
    resources: Resources | None = None
    restart_policy: str | None = None
    restart_policy_rules: tuple[object, ...] | None = None
    security_context: SecurityContext | None = None
    volume_mounts: tuple[VolumeMount, ...] | None = None

    @property
    def is_sidecar(self) -> bool:
        """Of an init container: it keeps running beside the containers that come after it."""
        return self.restart_policy == "Always"


class HostPath(_Object, frozen=True):
    """``HostPathVolumeSource``."""

    path: str = ""
    type: str | None = None


class Claim(_Object, frozen=True):
    """What has to be claimed for a pod; what is in it is not seen here, only that it is there."""


class Volume(_Object, frozen=True):
    """``Volume``; its other kinds are not looked at."""

    name: str = ""
    host_path: HostPath | None = None
    persistent_volume_claim: Claim | None = None
    ephemeral: Claim | None = None


class PodOs(_Object, frozen=True):
    """``PodOS``."""

    name: str = ""


class SchedulingGate(_Object, frozen=True):
    """``PodSchedulingGate``."""

    name: str = ""


class PodSpec(_Object, frozen=True):
    """``PodSpec``; an ephemeral container is a container, and never has resources."""

    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    ephemeral_containers: tuple[Container, ...] | None = None
    os: PodOs | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    scheduler_name: str | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    runtime_class_name: str | None = None
    priority: Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)] | None = None
    restart_policy: str | None = None
    host_pid: bool | None = msgspec.field(name="hostPID", default=None)
    volumes: tuple[Volume, ...] | None = None
    resource_claims: tuple[Claim, ...] | None = None


class Condition(_Object, frozen=True):
    """``PodCondition``."""

    type: str
    status: str = "Unknown"
    reason: str | None = None
    message: str | None = None


class PodStatus(_Object, frozen=True):
    """``PodStatus``."""

    phase: str | None = None
    conditions: tuple[Condition, ...] | None = None
    nominated_node_name: str | None = None


class Pod(_Object, frozen=True):
    """``Pod``."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus | None = None

    @property
    def uid(self) -> str:
        """The API server's, or nothing: a pod in admission has none yet."""
        return self.metadata.uid or ""

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels, none if there are none."""
        return self.metadata.labels or _NONE

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations, none if there are none."""
        return self.metadata.annotations or _NONE

    @property
    def is_over(self) -> bool:
        """All its containers have ended for good: it holds nothing any more."""
        return self.status is not None and self.status.phase in OVER

    @property
    def claims(self) -> bool:
        """Whether volumes or devices are claimed for it, which may take until they are bound."""
        volumes = self.spec.volumes or ()
        return bool(self.spec.resource_claims) or any(
            volume.persistent_volume_claim is not None or volume.ephemeral is not None
            for volume in volumes
        )

    @property
    def gates(self) -> tuple[str, ...]:
        """Who has to let it go before any scheduler is told of it."""
        return tuple(gate.name for gate in self.spec.scheduling_gates or ())

    @property
    def unscheduled(self) -> Condition | None:
        """Why the last attempt to schedule it failed, as kube-scheduler wrote it."""
        conditions = (self.status and self.status.conditions) or ()
        failed = (c for c in conditions if c.type == "PodScheduled" and c.status == "False")
        return next(failed, None)

    @property
    def nominated(self) -> str | None:
        """The node that kube-scheduler has in mind for it; empty is none."""
        return (self.status and self.status.nominated_node_name) or None

    @property
    def is_started(self) -> bool:
        """Its ordinary init containers are done for good: what only they asked for is free.

        They run again with a new sandbox, after a reboot for one, unless nothing of the pod is ever
        restarted. So they count for as long as the pod is there, as Kubernetes itself counts them.
        A rule of a container (``restartPolicyRules``) may start all of them again whatever the
        pod's policy, and the condition stays True meanwhile.
        """
        spec, conditions = self.spec, (self.status and self.status.conditions) or ()
        all_containers = (*(spec.init_containers or ()), *(spec.containers or ()))
        return (
            spec.restart_policy == "Never"
            and not any(container.restart_policy_rules for container in all_containers)
            and any(c.type == "Initialized" and c.status == "True" for c in conditions)
        )


class Node(_Object, frozen=True):
    """``Node``."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels, none if there are none."""
        return self.metadata.labels or _NONE

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations, none if there are none."""
        return self.metadata.annotations or _NONE


class QuotaSpec(_Object, frozen=True):
    """``ResourceQuotaSpec``."""

    hard: Quantities | None = None


class ResourceQuota(_Object, frozen=True):
    """``ResourceQuota``."""

    metadata: Metadata
    spec: QuotaSpec = QuotaSpec()


decode_pod = Decoder(Pod, "pod")
decode_node = Decoder(Node, "node")
decode_quota = Decoder(ResourceQuota, "resourcequota")
