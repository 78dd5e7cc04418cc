"""The annotation ``hami.io/assignment``: which cards a pod's containers have.

It is written once, by the binding, and read by the scheduler after a restart, by the node agent
and by people. It is keyed by the container's name, because positions change when another webhook
adds a container. The same assignment is always the same bytes.

``{"version":1,"pod":"<uid>","node":"n1","containers":{"train":[{"card":"GPU-…","memory_mib":3000,"cores":30}]}}``

The i-th card of a container is the i-th row of its limits page, and the ``_<i>`` of its variables.
"""

from hami_py.errors import InvalidValue
from hami_py.model.names import legible
from hami_py.model.pods.annotations import ASSIGNMENT, memory_key, memory_value
from hami_py.model.pods.asks import places
from hami_py.model.pods.objects import Pod
from hami_py.model.pods.versioned import VersionedAnnotation
from hami_py.model.pods.wire import (
    Ask,
    Assignment,
    Grant,
    Instance,
    PodName,
    Request,
    Size,
    Wish,
)

MAX_BYTES = 64 * 1024
"""``MOST_CARDS`` (request.py) need 31 KiB, and 49 KiB where they are cut into MIG instances."""

_SHOWN = 80
"""Characters of a name that somebody else made, in a message."""

_LONGEST_NODE = "n" * 253
"""A DNS subdomain."""

_UUID_LETTERS = 40
"""As the driver writes it: ``GPU-`` and 36 more."""

_MOST_MIB = 9_999_999

_LONGEST_INSTANCE = Instance("1g.100gb+me.all", 99, 99)

FIELD = f"metadata.annotations[{ASSIGNMENT}]"


def _check(assignment: Assignment) -> None:
    """What the types cannot say."""
    for name, value in (("pod", assignment.pod), ("node", assignment.node)):
        if not value:
            raise InvalidValue(f"{FIELD}.{name}", "", "it is required: add it")
    if not assignment.containers:
        raise InvalidValue(f"{FIELD}.containers", "{}", "name a container, or leave all of it out")
    for container, grants in assignment.containers.items():
        place = f"{FIELD}.containers[{legible(container[:_SHOWN])}]"
        if not grants:
            raise InvalidValue(place, "[]", "name a card, or leave the container out")
        had = [(grant.card, grant.mig) for grant in grants]
        for card, instance in had:
            if not card:
                raise InvalidValue(f"{place}.card", "", "write the card's UUID")
            if had.count((card, instance)) > 1 or (instance and (card, None) in had):
                raise InvalidValue(place, card, "a container has a card once: name another card")


_annotation = VersionedAnnotation(FIELD, Assignment, MAX_BYTES, _check)
encode_assignment = _annotation.encode
decode_assignment = _annotation.decode


def assignment_of(pod: Pod) -> Assignment | None:
    """The cards that a bound pod has; None if it is not bound, or without any.

    Raises:
        InvalidValue: the annotation is damaged, or another pod's or node's.
        UnknownVersion: it is one of another version.
    """
    text = pod.annotations.get(ASSIGNMENT)
    if text is None or not pod.spec.node_name:
        # Before a binding it can only be forged.
        return None
    assignment = decode_assignment(text)
    for field, said, true in (
        ("pod", assignment.pod, pod.uid),
        ("node", assignment.node, pod.spec.node_name),
    ):
        if said != true:
            fix = f"it is the assignment of another {field}, not of {true}: delete the pod"
            raise InvalidValue(f"{FIELD}.{field}", said, fix)
    return assignment


def bind_annotations(request: Request, assignment: Assignment) -> dict[str, str]:
    """What a binding writes onto the pod: the assignment, and the limits that were percentages.

    Raises:
        InvalidValue: the assignment is not one of this request.
    """
    written = {ASSIGNMENT: encode_assignment(assignment)}
    for ask in request.asks:
        grants = assignment.containers.get(ask.container, ())
        if len(grants) != ask.cards:
            fix = f"container {ask.container} asks for {ask.cards} cards: reserve as many"
            raise InvalidValue(f"{FIELD}.containers", str(len(grants)), fix)
        if isinstance(ask.memory, Size) and ask.memory.percent is not None:
            for card, grant in enumerate(grants):
                key = memory_key(ask.container, None if ask.cards == 1 else card)
                written[key] = memory_value(grant.memory_mib)
    return written


def longest_annotations(request: Request) -> dict[str, str]:
    """As long as what a binding writes onto the pod can become, whichever cards it will be given.

    Raises:
        InvalidValue: it would be longer than an assignment may be.
    """
    containers = {}
    for ask in request.asks:
        cards = (f"{card:0{_UUID_LETTERS}}" for card in range(ask.cards))
        containers[ask.container] = tuple(
            Grant(card, _MOST_MIB, 100, _LONGEST_INSTANCE) for card in cards
        )
    return bind_annotations(request, Assignment(1, request.pod.uid, _LONGEST_NODE, containers))


def as_assigned(pod: Pod, assignment: Assignment) -> Request:
    """The request of a bound pod whose own cannot be read: what it was given, it holds."""
    asks = tuple(
        Ask(
            container=place.container.name,
            kind=place.kind,
            cards=len(grants),
            memory=Size(mib=max(grant.memory_mib for grant in grants)),
            cores=max(grant.cores for grant in grants),
        )
        for place in places(pod)
        if (grants := assignment.containers.get(place.container.name))
    )
    name = PodName(uid=pod.uid, namespace=pod.metadata.namespace or "", name=pod.metadata.name)
    return Request(name, pod.spec.priority or 0, asks, Wish())
