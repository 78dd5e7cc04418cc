"""The annotation ``hami.io/resize``: new limits for the containers of a running pod.

A pod's resources cannot change, so whoever may resize pods writes this annotation, for example with
``hami set --pod``. The node agent of the pod's node judges it, and answers in the assignment and in
an event. The cards stay the same; containers that are not named keep their limits.

``{"version":1,"containers":{"train":[{"card":"GPU-…","memory_mib":6000,"cores":50}]}}``
"""

from hami_py.errors import InvalidValue
from hami_py.model.names import legible
from hami_py.model.pods.annotations import RESIZE, VersionedAnnotation
from hami_py.model.pods.assignment import MAX_BYTES
from hami_py.model.pods.wire import Assignment, CardAllocation, Resize

FIELD = f"metadata.annotations[{RESIZE}]"


def _check(resize: Resize) -> None:
    if not resize.containers:
        raise InvalidValue(f"{FIELD}.containers", "{}", "name a container")
    for container, cards in resize.containers.items():
        for card in cards:
            if card.memory_mib < 1:
                path = f"{FIELD}.containers[{legible(container)}].memory_mib"
                raise InvalidValue(path, str(card.memory_mib), "write MiB, 1 or more")


_annotation = VersionedAnnotation(FIELD, Resize, MAX_BYTES, _check)
encode_resize = _annotation.encode
decode_resize = _annotation.decode


def resized(assignment: Assignment, resize: Resize) -> dict[str, tuple[CardAllocation, ...]]:
    """The new cards of the containers that a resize changes, in the order of the assignment.

    Raises:
        InvalidValue: it names a container or card that the pod does not have, or leaves one out.
    """
    found = {}
    for name, wanted in resize.containers.items():
        path = f"{FIELD}.containers[{legible(name)}]"
        present = assignment.containers.get(name)
        if present is None:
            fix = f"write one of {', '.join(sorted(assignment.containers))}"
            raise InvalidValue(path, name, fix)
        by_card = {(card.card, card.mig): card for card in wanted}
        have = [(card.card, card.mig) for card in present]
        if len(by_card) != len(wanted) or by_card.keys() != {*have}:
            fix = f"write each card of the container once: {', '.join(card for card, _ in have)}"
            raise InvalidValue(path, ", ".join(card.card for card in wanted), fix)
        cards = tuple(by_card[key] for key in have)
        if cards != present:
            found[name] = cards
    return found
