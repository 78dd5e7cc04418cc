"""Findings: what the webhook reports to the author of a pod, and how many it looks for.

The webhook reviews a pod before the API server has validated it, so Kubernetes' bounds do not hold
yet, and a review that takes seconds delays all other pods. A pod that is too large to be stored or
run is therefore refused by its size alone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hami_py.errors import InvalidValue
from hami_py.model.pods.objects import Container, Pod

Action: TypeAlias = Literal["refuse", "remove", "replace", "remark"]
"""``refuse``: the pod is not admitted. ``remove``, ``replace``: the pod is admitted without the
value, or with hami's instead. ``remark``: the pod is admitted unchanged, with a warning."""

Rule: TypeAlias = Literal[
    "request",
    "opt-out",
    "scheduler",
    "windows",
    "loader-variable",
    "unseen-variables",
    "privileged",
    "capability",
    "host-pid",
    "mount",
    "host-path",
    "node-name",
    "visible-devices",
    "off-switch",
    "own-limit",
    "own-priority",
    "small-memory",
    "mixed-cards",
    "forged-annotation",
    "isolation",
    "unknown-annotation",
    "resource-annotation",
    "late-change",
    "size",
]
"""The rule that was violated. It is a label of a metric, so its values are few and fixed."""

MAX_REFUSALS = 32
"""Refusals that are looked for; after fixing so many the author submits the pod again anyway."""

MAX_ENTRIES = 10_000
"""Entries of one kind in a whole pod, far beyond what a node runs: a kubelet runs 110 pods."""

MAX_ANNOTATION_BYTES = 256 << 10
"""Keys and values together; the API server's own limit (TotalAnnotationSizeLimitB)."""

_OUTCOME = {
    "refuse": "is refused",
    "remove": "is removed",
    "replace": "is replaced",
    "remark": "is admitted",
}


@dataclass(frozen=True)
class Finding:
    """A violation of a rule in a pod.

    Attributes:
        field: the path of the value in the pod.
        fix: what to write instead, or the reason for the action.
    """

    rule: Rule
    action: Action
    field: str
    value: str
    fix: str

    def __str__(self) -> str:
        return str(self.error()).replace("is refused", _OUTCOME[self.action], 1)

    def error(self) -> InvalidValue:
        """The finding as an error."""
        return InvalidValue(self.field, self.value, self.fix)


def refused(error: InvalidValue) -> Finding:
    """The finding for a request that cannot be read."""
    return Finding("request", "refuse", error.field, error.value, error.fix)


def first(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings up to the last refusal that is looked for."""
    left = MAX_REFUSALS
    for each in findings:
        yield each
        left -= each.action == "refuse"
        if not left:
            return


def judge_annotation_size(pod: Pod) -> Iterator[Finding]:
    """Refuse more annotations than the API server stores; a character is at least one byte."""
    size = sum(map(len, pod.annotations)) + sum(map(len, pod.annotations.values()))
    if size > MAX_ANNOTATION_BYTES:
        fix = (
            f"Kubernetes stores {MAX_ANNOTATION_BYTES} bytes, keys and values together: "
            "shorten them"
        )
        yield Finding("size", "refuse", "metadata.annotations", f"{size} characters", fix)


def judge_list_sizes(pod: Pod) -> Iterator[Finding]:
    """Refuse lists that are longer than any node could use, in a pod with a GPU."""
    spec = pod.spec
    containers = (
        *(spec.init_containers or ()),
        *(spec.containers or ()),
        *(spec.ephemeral_containers or ()),
    )
    each = "spec.containers[*]"
    counts = {
        "spec.volumes": len(spec.volumes or ()),
        "spec.containers": len(containers),
        f"{each}.env": sum(len(one.env or ()) for one in containers),
        f"{each}.volumeMounts": sum(len(one.volume_mounts or ()) for one in containers),
        f"{each}.volumeDevices": sum(len(one.volume_devices or ()) for one in containers),
        f"{each}.securityContext.capabilities.add": sum(map(_capability_count, containers)),
    }
    for field, count in counts.items():
        if count > MAX_ENTRIES:
            fix = f"a pod with a GPU has at most {MAX_ENTRIES} over all its containers: split it"
            yield Finding("size", "refuse", field, f"{count} entries", fix)


def _capability_count(container: Container) -> int:
    context = container.security_context
    capabilities = context.capabilities if context is not None else None
    return len(capabilities.add or ()) if capabilities is not None else 0
