"""The annotation ``hami.io/assignment``: which cards a pod's containers have.

The binding writes it once. The scheduler reads it after a restart, and the node agent and people
read it too. It is keyed by the container's name, because another webhook that adds a container
changes the indexes. The same assignment is always the same bytes.

``{"version":1,"pod":"<uid>","node":"n1","containers":{"train":[{"card":"GPU-…","memory_mib":3000,"cores":30}]}}``

The i-th card of a container is row i of its limits page, and ``_<i>`` in its variables.
"""

from hami_py.errors import InvalidValue
from hami_py.model.names import legible
from hami_py.model.pods.annotations import ASSIGNMENT, VersionedAnnotation, memory_key, memory_value
from hami_py.model.pods.objects import Pod
from hami_py.model.pods.request import pod_containers
from hami_py.model.pods.wire import (
    Assignment,
    CardAllocation,
    CardRequest,
    ContainerRequest,
    Instance,
    PodName,
    PodRequest,
    Size,
)

MAX_BYTES = 64 * 1024
"""``MAX_POD_CARDS`` (request.py) need 31 KiB, and 49 KiB if they are MIG instances."""

_MAX_SHOWN = 80
"""Characters of a container's name that a message shows."""

_LONGEST_NODE = "n" * 253
"""Node names are DNS subdomains."""

_UUID_LETTERS = 40
"""The driver writes ``GPU-`` and 36 more characters."""

_MAX_MIB = 9_999_999

_LONGEST_INSTANCE = Instance("1g.100gb+me.all", 99, 99)

FIELD = f"metadata.annotations[{ASSIGNMENT}]"


def _check(assignment: Assignment) -> None:
    """Check what the types do not express."""
    for name, value in (("pod", assignment.pod), ("node", assignment.node)):
        if not value:
            raise InvalidValue(f"{FIELD}.{name}", "", "it is required: add it")
    if not assignment.containers:
        raise InvalidValue(
            f"{FIELD}.containers", "{}", "name a container, or remove the annotation"
        )
    for container, cards in assignment.containers.items():
        path = f"{FIELD}.containers[{legible(container[:_MAX_SHOWN])}]"
        if not cards:
            raise InvalidValue(path, "[]", "name a card, or remove the container")
        parts = [(allocated.card, allocated.mig) for allocated in cards]
        for card, instance in parts:
            if not card:
                raise InvalidValue(f"{path}.card", "", "write the card's UUID")
            if parts.count((card, instance)) > 1 or (instance and (card, None) in parts):
                fix = "a container cannot have a card twice: name another card"
                raise InvalidValue(path, card, fix)


_annotation = VersionedAnnotation(FIELD, Assignment, MAX_BYTES, _check)
encode_assignment = _annotation.encode
decode_assignment = _annotation.decode


def assignment_of(pod: Pod) -> Assignment | None:
    """The assignment of a bound pod; None if the pod is not bound, or has no cards.

    Raises:
        InvalidValue: the annotation is damaged, or belongs to another pod or node.
        UnknownVersion: another version wrote it.
    """
    text = pod.annotations.get(ASSIGNMENT)
    if text is None or not pod.spec.node_name:
        # Before the binding it can only be forged.
        return None
    assignment = decode_assignment(text)
    for field, written, actual in (
        ("pod", assignment.pod, pod.uid),
        ("node", assignment.node, pod.spec.node_name),
    ):
        if written != actual:
            fix = f"it is the assignment of another {field}, not of {actual}: delete the pod"
            raise InvalidValue(f"{FIELD}.{field}", written, fix)
    return assignment


def bind_annotations(request: PodRequest, assignment: Assignment) -> dict[str, str]:
    """The annotations that a binding writes: the assignment, and limits that were percentages.

    Raises:
        InvalidValue: the assignment does not fit the request.
    """
    written = {ASSIGNMENT: encode_assignment(assignment)}
    for requested in request.containers:
        name, count = requested.container, requested.cards
        cards = assignment.containers.get(name, ())
        if len(cards) != count:
            fix = f"container {name} requests {count} cards: reserve as many"
            raise InvalidValue(f"{FIELD}.containers", str(len(cards)), fix)
        if isinstance(requested.memory, Size) and requested.memory.percent is not None:
            for index, card in enumerate(cards):
                key = memory_key(name, None if count == 1 else index)
                written[key] = memory_value(card.memory_mib)
    return written


def longest_annotations(request: PodRequest) -> dict[str, str]:
    """The longest annotations that a binding can write, whichever cards the pod will have.

    Raises:
        InvalidValue: the assignment would be too long.
    """
    containers = {}
    for requested in request.containers:
        cards = (f"{card:0{_UUID_LETTERS}}" for card in range(requested.cards))
        containers[requested.container] = tuple(
            CardAllocation(card, _MAX_MIB, 100, _LONGEST_INSTANCE) for card in cards
        )
    return bind_annotations(request, Assignment(1, request.pod.uid, _LONGEST_NODE, containers))


def as_assigned(pod: Pod, assignment: Assignment) -> PodRequest:
    """A request for exactly the assigned cards, for a bound pod whose own request is invalid."""
    requests = tuple(
        ContainerRequest(
            container=container.name,
            kind=container.kind,
            cards=len(cards),
            memory=Size(mib=max(card.memory_mib for card in cards)),
            cores=max(card.cores for card in cards),
        )
        for container in pod_containers(pod)
        if (cards := assignment.containers.get(container.name))
    )
    name = PodName(uid=pod.uid, namespace=pod.metadata.namespace or "", name=pod.metadata.name)
    return PodRequest(name, pod.spec.priority or 0, requests, CardRequest())
