"""The annotation ``hami.io/assignment``: which cards a pod's containers have.

It is written once, by the binding, and read by the scheduler after a restart, by the node agent
and by people. It is keyed by the container's name, because positions change when another webhook
adds a container. The same assignment is always the same bytes.

``{"version":1,"pod":"<uid>","node":"n1","containers":{"train":[{"card":"GPU-…","memory_mib":3000,"cores":30}]}}``

The i-th card of a container is the i-th row of its limits page, and the ``_<i>`` of its variables.
"""

import msgspec

from hami_py.errors import HamiError, InvalidValue
from hami_py.model.names import legible
from hami_py.model.pods.annotations import ASSIGNMENT, memory_key, memory_value
from hami_py.model.pods.decoding import Decoder
from hami_py.model.pods.objects import Pod
from hami_py.model.pods.wire import Assignment, Request, Size, encode

VERSION = 1

MAX_BYTES = 32 * 1024
"""Kubernetes allows 256 KiB for all annotations of an object together. 20 containers with 16 cards
each need 31 KiB."""

_SHOWN = 80
"""Characters of a name that somebody else made, in a message."""

FIELD = f"metadata.annotations[{ASSIGNMENT}]"


class UnknownVersion(HamiError):
    """It was written by another version of us: wait for that one, do not guess.

    Attributes:
        version: the one it says.
    """

    def __init__(self, field: str, version: int) -> None:
        why = f"version {version} is not known here, only {VERSION}"
        super().__init__(field, why, "leave it alone until all parts have the same version")
        self.args = (field, version)
        self.version = version


class _Version(msgspec.Struct, frozen=True):
    version: int


_decode_version = Decoder(_Version, FIELD, f"{FIELD}.")
_decode = Decoder(Assignment, FIELD, f"{FIELD}.")


def encode_assignment(assignment: Assignment) -> str:
    """The annotation's value.

    Raises:
        InvalidValue: it is no assignment that could be read back.
    """
    _check(assignment)
    text = encode(assignment)
    _check_size(len(text))
    return text.decode()


def decode_assignment(text: str | bytes) -> Assignment:
    """The assignment that an annotation says.

    Raises:
        InvalidValue: it is none.
        UnknownVersion: it is one of another version.
    """
    _check_size(len(text.encode(errors="replace") if isinstance(text, str) else text))
    version = _decode_version(text).version
    if version != VERSION:
        raise UnknownVersion(FIELD, version)
    assignment = _decode(text)
    _check(assignment)
    return assignment


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
            mend = f"it is the assignment of another {field}, not of {true}: delete the pod"
            raise InvalidValue(f"{FIELD}.{field}", said, mend)
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
            mend = f"container {ask.container} asks for {ask.cards} cards: reserve as many"
            raise InvalidValue(f"{FIELD}.containers", str(len(grants)), mend)
        if isinstance(ask.memory, Size) and ask.memory.percent is not None:
            for card, grant in enumerate(grants):
                key = memory_key(ask.container, None if ask.cards == 1 else card)
                written[key] = memory_value(grant.memory_mib)
    return written


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise InvalidValue(FIELD, f"{size} bytes", f"it must have at most {MAX_BYTES}")


def _check(assignment: Assignment) -> None:
    """What the types cannot say."""
    if assignment.version != VERSION:
        raise UnknownVersion(FIELD, assignment.version)
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
