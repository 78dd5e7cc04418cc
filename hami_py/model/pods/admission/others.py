"""``admit_others``: the webhook's decision about a new pod where others allocate the cards.

Another allocator chooses the cards and their amounts after admission (owner.py). So nothing about
the cards is judged here, and no scheduler is written. Each container that may have cards gets one
``hami.io/limits``: it starts only on a node whose agent gives it the limits of its amounts. The
same rules as in ``admit`` refuse what could defeat these limits. ``NVIDIA_VISIBLE_DEVICES`` stays,
because KAI gives cards by it.
"""

from collections.abc import Iterator, Sequence

from hami_py.errors import InvalidValue
from hami_py.model.pods.admission.admit import (
    Admission,
    ContainerEdit,
    admit_annotations,
    judge_added,
    judge_limited,
    judge_node_name,
)
from hami_py.model.pods.admission.environment import EnvironmentPlan
from hami_py.model.pods.admission.findings import Finding, first, judge_list_sizes, refused
from hami_py.model.pods.card_request import read_card_request
from hami_py.model.pods.objects import Pod, Resources
from hami_py.model.pods.owner import LIMITS, may_have_cards
from hami_py.model.pods.quantities import CountRule, count
from hami_py.model.pods.request import MAX_POD_CONTAINERS, PodContainer, pod_containers
from hami_py.model.pods.settings import DEFAULT, PodSettings
from hami_py.model.pods.share_mode import read_share_mode

_ONE = CountRule("", 1, 1, 1, fix="a container with limits has one: write 1, or leave it out")

_NONE = CountRule("", 1, 0, 1, fix="no other allocator gives this container cards: leave it out")
"""No number is allowed."""


def admit_others(pod: Pod, settings: PodSettings = DEFAULT) -> Admission:
    """Decide about a new pod whose cards another allocator allocates.

    The decision is idempotent, and has no request. A pod without a container that may have cards
    loses forged annotations and is otherwise unchanged.
    """
    plain = admit_annotations(pod)
    if plain.refusals:
        return plain
    limited = _limited(pod)
    if limited and (too_long := tuple(judge_list_sizes(pod))):
        return Admission(findings=too_long)
    findings = (*plain.findings, *first(_judge(pod, limited, settings)))
    edits = tuple(
        ContainerEdit(each.path, each.name, {LIMITS: "1"}, EnvironmentPlan())
        for each in limited
        if LIMITS not in ((each.spec.resources or Resources()).limits or ())
    )
    return Admission(None, findings, edits, plain.remove_annotations)


def judge_ephemeral_others(pod: Pod, settings: PodSettings = DEFAULT) -> tuple[Finding, ...]:
    """Refuse what would defeat the limits of a pod in its ephemeral containers."""
    return judge_added(pod, settings) if _limited(pod) else ()


def _limited(pod: Pod) -> Sequence[PodContainer]:
    return [each for each in pod_containers(pod) if may_have_cards(pod, each.spec)]


def _judge(pod: Pod, limited: Sequence[PodContainer], settings: PodSettings) -> Iterator[Finding]:
    if len(limited) > MAX_POD_CONTAINERS:
        container = limited[MAX_POD_CONTAINERS]
        fix = f"more than {MAX_POD_CONTAINERS} containers may have cards: split the pod"
        yield Finding("request", "refuse", container.path, container.name, fix)
        return
    names = {each.name for each in limited}
    for container in pod_containers(pod):
        yield from _judge_written(container, container.name in names)
    if limited:
        yield from _judge_annotations(pod, limited, settings)
        yield from judge_node_name(pod)
        yield from judge_limited(pod, limited, settings)


def _judge_annotations(
    pod: Pod, limited: Sequence[PodContainer], settings: PodSettings
) -> Iterator[Finding]:
    """Refuse what the agent reads and could not read: the container would not start."""
    try:
        read_card_request(pod, settings)
        for container in limited:
            read_share_mode(container.spec, pod, settings)
    except InvalidValue as error:
        yield refused(error)


def _judge_written(container: PodContainer, may_have: bool) -> Iterator[Finding]:
    """Refuse any other number of ``hami.io/limits`` than the one that the webhook would write."""
    resources = container.spec.resources or Resources()
    for where, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        if amounts is not None and LIMITS in amounts:
            field = f"{container.path}.resources.{where}[{LIMITS}]"
            try:
                count(amounts[LIMITS], field, _ONE if may_have else _NONE)
            except InvalidValue as error:
                yield refused(error)
