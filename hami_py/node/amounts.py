"""The parts of cards that a container has, by the objects of the allocator of its node.

| allocator | the amount is in | the card is in | users can change them |
|---|---|---|---|
| a DRA driver | the claim's allocation | the ResourceSlices of the node | no |
| NVIDIA's device plugin | the number of replicas of the card | the kubelet's record | no |
| KAI | annotations of the pod | KAI's reservation pod, by a label of the pod | yes |
| Volcano | an annotation of the pod | the same annotation | yes |

KAI and Volcano rely on annotations and labels of the pod, and so do we. A user who may change a pod
can raise its amounts, up to whole cards of the node. They limit programs, not such users.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from hami_py.errors import InvalidValue
from hami_py.model.pods.claims import Amounts, Part, ResourceClaim, ResourceSlice, references
from hami_py.model.pods.claims import amounts as amounts_of_claims
from hami_py.model.pods.objects import Container, Pod, Quantities
from hami_py.model.pods.owner import KAI_ANNOTATIONS, VOLCANO, kai_container
from hami_py.model.pods.quantities import whole_number
from hami_py.node.devices import card_of

KAI_NAMESPACE = "kai-resource-reservation"
"""The default of KAI. A pod of another namespace with the labels of KAI may be a user's."""

_DEVICE = re.compile(r"nvidia\.com/(gpu|mig-|\S+ (GPU|MIG)-)")
"""A resource and a device ID of a card. Network cards may have resources of nvidia.com, too."""

_KAI_GROUP, _KAI_CARD = "runai-gpu-group", "run.ai/reserve_for_gpu_index"
_VOLCANO = "volcano.sh/vgpu-ids-new"
_VOLCANO_RESOURCES = {VOLCANO, "volcano.sh/vgpu-memory"}
_VOLCANO_PART = re.compile(r"([^,]+),[^,]*,(\d{1,9}),(\d{1,2}|100)", re.ASCII)
"""UUID, type, memory, percent of the card's time. Volcano's default unit of memory is MiB."""


@dataclass(frozen=True)
class Known:
    """The state of the node when a container starts.

    Attributes:
        pod: the container's pod.
        container: its specification in the pod.
        cards: MiB of each card and each MIG device of the node, by UUID.
        devices: the container's device IDs in the kubelet's record, by resource.
        registered: the device IDs that plugins have registered with the kubelet, by resource.
        pods: the pods of the node.
        claims: the claims that the container uses, by name.
        slices: the ResourceSlices of the node.
    """

    pod: Pod
    container: Container
    cards: Mapping[str, int]
    devices: Mapping[str, Sequence[str]]
    registered: Mapping[str, Sequence[str]]
    pods: Sequence[Pod]
    claims: Mapping[str, ResourceClaim]
    slices: Sequence[ResourceSlice]


def amounts_of(known: Known) -> Amounts | None:
    """The parts of cards that a container has; None = it has no card.

    Raises:
        InvalidValue: they are wrong, or not known yet. The container waits.
    """
    found = {name: its for name, source in _SOURCES.items() if (its := source(known)) is not None}
    cards = [part.card for each in found.values() for part in each.parts]
    if len(found) > 1 or len({*cards}) < len(cards):
        field, value = f"container {known.container.name}", f"{', '.join(cards)} of {[*found]}"
        raise InvalidValue(field, value, "request cards of one allocator, and each card once")
    return next(iter(found.values()), None)


def _of_claims(known: Known) -> Amounts | None:
    return amounts_of_claims(references(known.pod, known.container), known.claims, known.slices)


def _of_replicas(known: Known) -> Amounts | None:
    """NVIDIA's plugin shares a card as ``<uuid>::<n>``; ``<uuid>`` alone is the whole card."""
    devices = {(resource, id) for resource, ids in known.devices.items() for id in ids}
    ours = {(resource, id) for resource, id in devices if _DEVICE.match(f"{resource} {id}")}
    # Without the container: an app container inherits the devices of an init container.
    owner = frozenset((known.pod.uid, "", id) for _, id in ours)
    cards = sorted({(resource, card_of(id)) for resource, id in ours})
    return Amounts(owner, tuple(_replicas(known, *each) for each in cards)) if cards else None


def _replicas(known: Known, resource: str, card: str) -> Part:
    prefix, mib = f"{card}::", known.cards.get(card, 0)
    if card in known.devices[resource]:
        return _checked(known, Part(card, mib), resource, card)
    ours = {id for id in known.devices[resource] if id.startswith(prefix)}
    registered = {id for id in known.registered.get(resource, ()) if id.startswith(prefix)}
    if not registered:
        raise InvalidValue(resource, card, "the kubelet has no replica: wait for NVIDIA's plugin")
    # The kubelet registers only healthy replicas. The highest number counts the others, too.
    numbers = [whole_number(id.removeprefix(prefix)) or 0 for id in registered | ours]
    count = max(len(numbers), max(numbers) + 1)
    return _checked(known, Part(card, mib * len(ours) // count), resource, f"1/{count}")


def _of_kai(known: Known) -> Amounts | None:
    """KAI assigns a group for each card, with a reservation pod that names the card."""
    pod, wanted = known.pod, known.pod.annotations.get("gpu-fraction-num-devices", "1")
    if kai_container(pod) != known.container.name:
        return None
    groups = sorted({its for label, its in pod.labels.items() if label.split("/")[0] == _KAI_GROUP})
    reserved = {
        (each.labels[_KAI_GROUP], each.annotations[_KAI_CARD])
        for each in known.pods
        if each.metadata.namespace == KAI_NAMESPACE and not each.is_over
        if each.labels.get(_KAI_GROUP) in groups and _KAI_CARD in each.annotations
    }
    found = sorted(group for group, _ in reserved)
    if not groups or groups != found or len(groups) != whole_number(wanted):
        fix = f"wait for KAI: it assigns {wanted}, each with a reservation pod in {KAI_NAMESPACE}"
        raise InvalidValue(f"metadata.labels[{_KAI_GROUP}]", ", ".join(groups), fix)
    return _amounts(known, [_kai_part(known, card) for _, card in sorted(reserved)])


def _kai_part(known: Known, card: str) -> Part:
    name = next(each for each in KAI_ANNOTATIONS if each in known.pod.annotations)
    text, mib = known.pod.annotations[name], 0
    with suppress(ValueError):
        if name == "gpu-memory":
            mib = whole_number(text) or 0
        elif 0 < (fraction := float(text)) < 1:
            # Rounded as in KAI's own sum of a card.
            mib = int(fraction * known.cards.get(card, 0))
    return _checked(known, Part(card, mib), f"metadata.annotations[{name}]", text)


def _of_volcano(known: Known) -> Amounts | None:
    """Volcano writes the parts of each app container that requests any, in their order."""
    wanted, field = _limits(known.container).get(VOLCANO, 0), f"metadata.annotations[{_VOLCANO}]"
    if whole_number(wanted) == 0:
        return None
    containers = known.pod.spec.containers or ()
    names = [each.name for each in containers if _limits(each).keys() & _VOLCANO_RESOURCES]
    written = known.pod.annotations.get(_VOLCANO, "").split(";")
    text = dict(zip(names, written, strict=False)).get(known.container.name, "")
    found = [_VOLCANO_PART.fullmatch(each) for each in text.split(":") if each]
    parts = [Part(each[1], int(each[2]), int(each[3]) % 100) for each in found if each]
    if not len(found) == len(parts) == whole_number(wanted):
        raise InvalidValue(field, text, f"wait for uuid,type,MiB,cores of {wanted} cards")
    return _amounts(known, [_checked(known, each, field, text) for each in parts])


def _limits(container: Container) -> Quantities:
    return (container.resources and container.resources.limits) or {}


def _checked(known: Known, part: Part, field: str, text: str) -> Part:
    """The part; one of all memory has no limit."""
    mib, most = part.memory_mib or 0, known.cards.get(part.card)
    if most is None:
        raise InvalidValue(field, part.card, "no card of this node has this UUID: wait for it")
    if not 1 <= mib <= most:
        raise InvalidValue(field, text, f"a part of {part.card} must be 1 to {most} MiB")
    return part if mib < most else replace(part, memory_mib=None)


def _amounts(known: Known, parts: Sequence[Part]) -> Amounts:
    owner = {(known.pod.uid, known.container.name, part.card) for part in parts}
    return Amounts(frozenset(owner), tuple(parts))


_SOURCES = {"DRA": _of_claims, "NVIDIA": _of_replicas, "KAI": _of_kai, "Volcano": _of_volcano}
