"""How large a pod may be that is still looked into.

A webhook has its review before the API server has judged the pod, so the bounds that hold later do
not hold yet; and whoever reads for seconds keeps all other pods waiting. What nobody could store,
or no node run, is refused by its size alone.
"""

from collections.abc import Iterable, Iterator

from hami_py.model.pods.findings import Finding
from hami_py.model.pods.objects import Container, Pod

MOST_REFUSALS = 32
"""Reasons that are looked for: who has fixed so many may ask again."""

MOST_ENTRIES = 10_000
"""Of one kind in a whole pod, far beyond what a node runs: a kubelet takes 110 pods."""

MOST_ANNOTATIONS = 256 << 10
"""Bytes of keys and values, by the API server's own validation (TotalAnnotationSizeLimitB)."""


def judge_annotations(pod: Pod) -> Iterator[Finding]:
    """More of them than the API server stores, in characters, of which each is a byte or more."""
    size = sum(map(len, pod.annotations)) + sum(map(len, pod.annotations.values()))
    if size > MOST_ANNOTATIONS:
        fix = f"Kubernetes stores {MOST_ANNOTATIONS} bytes, keys and values together: shorten them"
        yield Finding("size", "refuse", "metadata.annotations", f"{size} characters", fix)


def judge_lists(pod: Pod) -> Iterator[Finding]:
    """Lists of a pod with a GPU that are longer than any node could make use of."""
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
        f"{each}.securityContext.capabilities.add": sum(map(_capabilities, containers)),
    }
    for field, count in counts.items():
        if count > MOST_ENTRIES:
            fix = f"a pod with a GPU has {MOST_ENTRIES} at most, in all its containers: split it"
            yield Finding("size", "refuse", field, f"{count} entries", fix)


def first(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings, until there are reasons enough."""
    left = MOST_REFUSALS
    for each in findings:
        yield each
        left -= each.action == "refuse"
        if not left:
            return


def _capabilities(container: Container) -> int:
    context = container.security_context
    listed = context.capabilities if context is not None else None
    return len(listed.add or ()) if listed is not None else 0
