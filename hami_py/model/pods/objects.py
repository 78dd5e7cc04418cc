"""Kubernetes' pods, nodes and quotas as typed objects, with only the fields that hami reads.

Kubernetes' objects have hundreds of fields and get new ones with each release: unknown fields are
ignored. A field of a wrong type is an ``InvalidValue`` that names its path in the JSON. ``null``
means an absent field, as in Kubernetes' own decoder. Operators and effects are plain text, so that
a new one does not make a pod or a node undecodable.

Field names and types: https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, TypeAlias

import msgspec

from hami_py.model.pods.decoding import ApiObject, Decoder

Quantity: TypeAlias = str | int | float
"""The API server writes quantities as strings; in manifests they may also be numbers."""

Quantities: TypeAlias = dict[str, Quantity]

OVER = frozenset({"Succeeded", "Failed"})
"""Phases of a pod whose containers have all ended and are not restarted."""

DEFAULT_SCHEDULER = "default-scheduler"
"""The API server's default for ``spec.schedulerName``."""

_NONE: Mapping[str, str] = {}


def unix_time(text: str | None) -> float | None:
    """The Unix time of a time of the API server, such as ``2026-01-02T03:04:05Z``."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else None
    except ValueError:
        return None


class Metadata(ApiObject, frozen=True):
    """``ObjectMeta``."""

    name: str = ""
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class FieldRef(ApiObject, frozen=True):
    """``ObjectFieldSelector``."""

    field_path: str = ""


class VariableSource(ApiObject, frozen=True):
    """``EnvVarSource``; the other kinds of sources are accepted and not read."""

    field_ref: FieldRef | None = None


class Variable(ApiObject, frozen=True):
    """``EnvVar``."""

    name: str
    value: str | None = None
    value_from: VariableSource | None = None


class VariablesFrom(ApiObject, frozen=True):
    """``EnvFromSource``; only its presence is read."""


class ContainerClaim(ApiObject, frozen=True):
    """``ResourceClaim`` of a container: a resource claim of its pod, or one request of it."""

    name: str = ""
    request: str | None = None


class Resources(ApiObject, frozen=True):
    """``ResourceRequirements``."""

    limits: Quantities | None = None
    requests: Quantities | None = None
    claims: tuple[ContainerClaim, ...] | None = None


class Capabilities(ApiObject, frozen=True):
    """``Capabilities``."""

    add: tuple[str, ...] | None = None


class SecurityContext(ApiObject, frozen=True):
    """A container's ``SecurityContext``."""

    privileged: bool | None = None
    capabilities: Capabilities | None = None


class VolumeMount(ApiObject, frozen=True):
    """``VolumeMount``."""

    name: str = ""
    mount_path: str = ""
    read_only: bool | None = None
    recursive_read_only: str | None = None


class VolumeDevice(ApiObject, frozen=True):
    """``VolumeDevice``: a volume as a block device."""

    name: str = ""
    device_path: str = ""


class Container(ApiObject, frozen=True):
    """``Container``."""

    name: str
    env: tuple[Variable, ...] | None = None
    env_from: tuple[VariablesFrom, ...] | None = None
    resources: Resources | None = None
    restart_policy: str | None = None
    restart_policy_rules: tuple[object, ...] | None = None
    security_context: SecurityContext | None = None
    volume_mounts: tuple[VolumeMount, ...] | None = None
    volume_devices: tuple[VolumeDevice, ...] | None = None
    termination_message_path: str | None = None

    @property
    def is_sidecar(self) -> bool:
        """Whether an init container keeps running beside the containers that start after it."""
        return self.restart_policy == "Always"


class HostPath(ApiObject, frozen=True):
    """``HostPathVolumeSource``."""

    path: str = ""


class Claim(ApiObject, frozen=True):
    """A volume claim of a pod; only its presence is read."""


class PodClaim(ApiObject, frozen=True):
    """``PodResourceClaim``; the name of a claim made from a template is in the pod's status."""

    name: str = ""
    resource_claim_name: str | None = None


class Volume(ApiObject, frozen=True):
    """``Volume``; the other kinds are not read."""

    name: str = ""
    host_path: HostPath | None = None
    persistent_volume_claim: Claim | None = None
    ephemeral: Claim | None = None


class Toleration(ApiObject, frozen=True):
    """``Toleration``."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Requirement(ApiObject, frozen=True):
    """``NodeSelectorRequirement``."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class Term(ApiObject, frozen=True):
    """``NodeSelectorTerm``."""

    match_expressions: tuple[Requirement, ...] | None = None
    match_fields: tuple[Requirement, ...] | None = None


class NodeSelector(ApiObject, frozen=True):
    """``NodeSelector``."""

    node_selector_terms: tuple[Term, ...] | None = None


class NodeAffinity(ApiObject, frozen=True):
    """``NodeAffinity``; preferences are not read, because they exclude no node."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(ApiObject, frozen=True):
    """``Affinity``; affinity to other pods is not read."""

    node_affinity: NodeAffinity | None = None


class PodOs(ApiObject, frozen=True):
    """``PodOS``."""

    name: str = ""


class SchedulingGate(ApiObject, frozen=True):
    """``PodSchedulingGate``."""

    name: str = ""


class PodSpec(ApiObject, frozen=True):
    """``PodSpec``; an ephemeral container has a container's fields, and never resources."""

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
    resource_claims: tuple[PodClaim, ...] | None = None


class Condition(ApiObject, frozen=True):
    """``PodCondition``."""

    type: str
    status: str = "Unknown"
    reason: str | None = None
    message: str | None = None


class RequestMapping(ApiObject, frozen=True):
    """``ContainerExtendedResourceRequest``."""

    container_name: str = ""
    request_name: str = ""


class ExtendedClaim(ApiObject, frozen=True):
    """``PodExtendedResourceClaimStatus``: the claim that the scheduler has made for resources."""

    resource_claim_name: str = ""
    request_mappings: tuple[RequestMapping, ...] | None = None


class PodStatus(ApiObject, frozen=True):
    """``PodStatus``."""

    phase: str | None = None
    conditions: tuple[Condition, ...] | None = None
    nominated_node_name: str | None = None
    resource_claim_statuses: tuple[PodClaim, ...] | None = None
    extended_resource_claim_status: ExtendedClaim | None = None


class Pod(ApiObject, frozen=True):
    """``Pod``."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus | None = None

    @property
    def uid(self) -> str:
        """Its UID, or an empty text: during admission a pod has none yet."""
        return self.metadata.uid or ""

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return self.metadata.labels or _NONE

    @property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations."""
        return self.metadata.annotations or _NONE

    @property
    def is_over(self) -> bool:
        """Whether all its containers have ended for good, so that it holds no card."""
        return self.status is not None and self.status.phase in OVER

    @property
    def claims(self) -> bool:
        """Whether it has claims for volumes or devices, whose binding may take time."""
        volumes = self.spec.volumes or ()
        return bool(self.spec.resource_claims) or any(
            volume.persistent_volume_claim is not None or volume.ephemeral is not None
            for volume in volumes
        )

    @property
    def gates(self) -> tuple[str, ...]:
        """The scheduling gates that must be removed before a scheduler sees the pod."""
        return tuple(gate.name for gate in self.spec.scheduling_gates or ())

    @property
    def unscheduled(self) -> Condition | None:
        """The condition by which kube-scheduler reports that the last attempt failed."""
        conditions = (self.status and self.status.conditions) or ()
        failed = (c for c in conditions if c.type == "PodScheduled" and c.status == "False")
        return next(failed, None)

    @property
    def nominated(self) -> str | None:
        """The node that kube-scheduler nominated for it."""
        return (self.status and self.status.nominated_node_name) or None

    @property
    def is_started(self) -> bool:
        """Whether its ordinary init containers have ended for good, so that their cards are free.

        They run again in a new sandbox, for example after a reboot, unless the pod is never
        restarted. So they count for as long as the pod exists, as in Kubernetes itself. A rule of a
        container (``restartPolicyRules``) may start them again whatever the pod's policy is, and
        the condition stays True meanwhile.
        """
        spec, conditions = self.spec, (self.status and self.status.conditions) or ()
        all_containers = (*(spec.init_containers or ()), *(spec.containers or ()))
        return (
            spec.restart_policy == "Never"
            and not any(container.restart_policy_rules for container in all_containers)
            and any(c.type == "Initialized" and c.status == "True" for c in conditions)
        )


class Taint(ApiObject, frozen=True):
    """``Taint``."""

    key: str = ""
    value: str | None = None
    effect: str = ""

    def __str__(self) -> str:
        """The taint as kubectl writes it."""
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


class NodeSpec(ApiObject, frozen=True):
    """``NodeSpec``."""

    unschedulable: bool | None = None
    taints: tuple[Taint, ...] | None = None


class Node(ApiObject, frozen=True):
    """``Node``."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return self.metadata.labels or _NONE

    @property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations."""
        return self.metadata.annotations or _NONE


class QuotaSpec(ApiObject, frozen=True):
    """``ResourceQuotaSpec``."""

    hard: Quantities | None = None


class ResourceQuota(ApiObject, frozen=True):
    """``ResourceQuota``."""

    metadata: Metadata
    spec: QuotaSpec = QuotaSpec()


decode_pod = Decoder(Pod, "pod")
decode_node = Decoder(Node, "node")
decode_quota = Decoder(ResourceQuota, "resourcequota")
