"""``admit``: the webhook's decision about a new pod. ``judge_ephemeral``: about debug containers.

Only what could defeat a limit is judged, for the containers that request a GPU. The environment and
the files of an image cannot be checked here. The limits page on the node enforces; this check only
rejects early.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hami_py.errors import InvalidValue
from hami_py.model.pods.admission import containers, metadata, mounts
from hami_py.model.pods.admission.environment import EnvironmentPlan, plan_environment
from hami_py.model.pods.admission.findings import (
    Finding,
    first,
    judge_annotation_size,
    judge_list_sizes,
    refused,
)
from hami_py.model.pods.annotations import is_written_by_us
from hami_py.model.pods.objects import DEFAULT_SCHEDULER, Pod
from hami_py.model.pods.request import ParsedContainer, ParsedPod, PodContainer, read_pod
from hami_py.model.pods.settings import DEFAULT, PodSettings
from hami_py.model.pods.wire import PodRequest


@dataclass(frozen=True)
class ContainerEdit:
    """The changes to a container."""

    path: str
    container: str
    limits: Mapping[str, str]
    environment: EnvironmentPlan

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        variables = self.environment
        return not (self.limits or variables.add or variables.remove)


@dataclass(frozen=True)
class Admission:
    """The decision about a pod.

    Attributes:
        request: the pod's request; None = it requests no card, or its request is invalid.
        findings: reported to the author; with a refusal among them the pod is not admitted.
        edits: the changes to containers; containers without one stay unchanged.
        remove_annotations: forged annotations to remove.
        annotations: annotations to set.
    """

    request: PodRequest | None = None
    findings: tuple[Finding, ...] = ()
    edits: tuple[ContainerEdit, ...] = ()
    remove_annotations: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """The reasons for refusing the pod; empty = it is admitted."""
        return tuple(each for each in self.findings if each.action == "refuse")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The warnings to the author if the pod is admitted."""
        return tuple(each for each in self.findings if each.action != "refuse")


def admit(pod: Pod, settings: PodSettings = DEFAULT) -> Admission:
    """Decide about a new pod.

    The decision is idempotent: for the changed pod it contains no further changes. A pod that
    requests no GPU loses forged annotations and is otherwise unchanged.
    """
    plain = admit_annotations(pod)
    if plain.refusals:
        return plain
    forged = plain.remove_annotations
    findings = [*plain.findings, *metadata.judge_resources(pod, settings)]
    try:
        parsed = read_pod(pod, settings)
    except InvalidValue as error:
        return Admission(None, (refused(error), *findings), (), forged)
    if parsed.request is None:
        return Admission(None, tuple(findings), (), forged)
    if too_long := tuple(judge_list_sizes(pod)):
        return Admission(None, too_long)
    edits = [
        _edit(container, parsed.requesting.get(container.name), settings)
        for container in parsed.containers
    ]
    of_environments = (each for edit in edits for each in edit.environment.findings)
    findings += first(itertools.chain(judge(pod, parsed, settings), of_environments))
    changes = tuple(edit for edit in edits if not edit.is_empty)
    raised = metadata.raised_isolation(pod, parsed.request, settings)
    findings += raised.values()
    annotations = dict.fromkeys(raised, parsed.request.card_request.isolation)
    return Admission(parsed.request, tuple(findings), changes, forged, annotations)


def admit_annotations(pod: Pod) -> Admission:
    """Decide about the annotations of any pod: the forged ones are removed."""
    forged = tuple(key for key in pod.annotations if is_written_by_us(key))
    too_large = (*judge_annotation_size(pod), *metadata.judge_forgery(forged))
    if too_large:
        return Admission(None, too_large)
    findings = tuple(metadata.forged_annotation(pod, key) for key in forged)
    return Admission(findings=findings, remove_annotations=forged)


def _edit(
    container: PodContainer, parsed: ParsedContainer | None, settings: PodSettings
) -> ContainerEdit:
    added = parsed.added_limits if parsed is not None else {}
    limits = {name: str(number) for name, number in added.items()}
    environment = plan_environment(container, parsed, settings)
    return ContainerEdit(container.path, container.name, limits, environment)


def judge(pod: Pod, parsed: ParsedPod, settings: PodSettings) -> Iterator[Finding]:
    """Apply the rules to a pod that requests a GPU."""
    yield from _judge_spec(pod, settings)
    yield from metadata.judge_metadata(pod, settings)
    requesting = [each for each in parsed.containers if each.name in parsed.requesting]
    yield from judge_limited(pod, requesting, settings)
    for container in requesting:
        yield from containers.judge_unseen_variables(container)
        yield from containers.judge_sizes(container, parsed.requesting[container.name], pod)


def judge_limited(
    pod: Pod, limited: Iterable[PodContainer], settings: PodSettings
) -> Iterator[Finding]:
    """Apply the rules that protect limits, whoever allocates the cards."""
    if pod.spec.os is not None and pod.spec.os.name == "windows":
        fix = "limits are enforced on Linux only; leave out the GPU"
        yield Finding("windows", "refuse", "spec.os.name", "windows", fix)
    if pod.spec.host_pid:
        fix = "it may kill processes of the node, also those that enforce limits; leave it out"
        yield Finding("host-pid", "remark", "spec.hostPID", "true", fix)
    volumes = mounts.Mounts(pod, settings)
    for container in limited:
        yield from containers.judge_loader_variables(container, settings)
        yield from containers.judge_privileges(container, pod)
        yield from volumes.judge(container)


def judge_node_name(pod: Pod) -> Iterator[Finding]:
    """Refuse a pod that no scheduler places: a kubelet may ignore what its node does not have."""
    if pod.spec.node_name:
        fix = "the scheduler has to choose the cards; select the node with spec.nodeSelector"
        yield Finding("node-name", "refuse", "spec.nodeName", pod.spec.node_name, fix)


def _judge_spec(pod: Pod, settings: PodSettings) -> Iterator[Finding]:
    yield from judge_node_name(pod)
    scheduler = pod.spec.scheduler_name or DEFAULT_SCHEDULER
    if settings.schedulers and scheduler not in (DEFAULT_SCHEDULER, *settings.schedulers):
        fix = f"it would bind the pod without cards; write {' or '.join(settings.schedulers)}"
        yield Finding("scheduler", "refuse", "spec.schedulerName", scheduler, fix)


def judge_ephemeral(pod: Pod, settings: PodSettings = DEFAULT) -> tuple[Finding, ...]:
    """Refuse what would defeat the limits of a pod in its ephemeral containers.

    Ephemeral containers are added to a running pod and may see the processes of its containers.
    They have no resources, so no card and no loader variables that could disable a limit.
    """
    try:
        if read_pod(pod, settings).request is None:
            return ()
    except InvalidValue:
        # An invalid request is a request: judge the pod.
        pass
    return judge_added(pod, settings)


def judge_added(pod: Pod, settings: PodSettings) -> tuple[Finding, ...]:
    """Refuse what would defeat limits in the ephemeral containers of a pod with limits."""
    return tuple(judge_list_sizes(pod)) or tuple(first(_judge_added(pod, settings)))


def _judge_added(pod: Pod, settings: PodSettings) -> Iterator[Finding]:
    volumes = mounts.Mounts(pod, settings)
    for index, spec in enumerate(pod.spec.ephemeral_containers or ()):
        container = _EphemeralContainer(spec, index, "app")
        yield from containers.judge_privileges(container, pod)
        yield from volumes.judge(container)
        # The webhook could remove the variables, but a person who debugs should know of them.
        for each in plan_environment(container, None, settings).findings:
            yield Finding(each.rule, "refuse", each.field, each.value, each.fix)


class _EphemeralContainer(PodContainer, frozen=True):
    @property
    def path(self) -> str:
        return f"spec.ephemeralContainers[{self.index}]"
