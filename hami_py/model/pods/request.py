"""Reading a pod: from its resources, labels and annotations to its request for cards.

The webhook, the scheduler and the command line all read pods with ``read_pod``, so that they cannot
disagree. ``read_container`` reads the resources of one container: every number goes through one
grammar and one table of rules (quantities.py). A mistake is an error that names field, value and
fix; it never turns a container into one without a GPU. Which cards a pod requests is read from its
annotations (card_request.py).
"""

import re
from collections.abc import Mapping

import msgspec

from hami_py.errors import InvalidValue
from hami_py.model.limits import Mode
from hami_py.model.names import check_name
from hami_py.model.pods.card_request import read_card_request
from hami_py.model.pods.names import NameProfile
from hami_py.model.pods.objects import Container, Pod, Quantity, Resources
from hami_py.model.pods.quantities import MAX_MEMORY_MIB, Resource, ResourceTable, count, number
from hami_py.model.pods.settings import DEFAULT, PodSettings
from hami_py.model.pods.share_mode import read_share_mode
from hami_py.model.pods.wire import ContainerRequest, Kind, Memory, PodName, PodRequest, Size

WHOLE_PERCENT = 100

MAX_POD_CONTAINERS = 64
"""Containers of a pod that may request cards; the allocator accepts no more."""

MAX_POD_CARDS = 320
"""Cards of a pod, over all its containers: an assignment has room for as many."""

_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


# msgspec's structs because they are fast: each container of 100,000 pods becomes one or two.
class PodContainer(msgspec.Struct, frozen=True):
    """A container and its position in the pod.

    Attributes:
        index: its index in ``containers`` or ``initContainers``.
        kind: when it runs.
    """

    spec: Container
    index: int
    kind: Kind

    @property
    def name(self) -> str:
        """The container's name."""
        return self.spec.name

    @property
    def path(self) -> str:
        """Its path in the pod, like ``spec.containers[0]``."""
        return f"spec.{'containers' if self.kind == 'app' else 'initContainers'}[{self.index}]"


class ParsedContainer(msgspec.Struct, frozen=True):
    """The request of a container, and how it was written.

    Attributes:
        profile: the profile whose names the container uses.
        priority: 0 goes before 1 on the same card; None = not set.
        added_limits: resources that the webhook adds to ``limits``, so that every reader of the pod
            finds the same numbers there.
    """

    request: ContainerRequest
    profile: NameProfile
    priority: int | None
    added_limits: Mapping[str, int]
    share_mode: Mode


class ParsedPod(msgspec.Struct, frozen=True):
    """A pod as read.

    Attributes:
        request: for the allocator; None = the pod requests no card.
        requesting: the containers that request cards, by name.
        containers: all containers, in the order in which the kubelet starts them.
    """

    request: PodRequest | None
    requesting: Mapping[str, ParsedContainer]
    containers: tuple[PodContainer, ...]
    gang: str | None = None


def read_request(pod: Pod, settings: PodSettings = DEFAULT) -> PodRequest | None:
    """The request of a pod, or None if no container of it requests a GPU.

    Raises:
        InvalidValue: with the path of the field, its value, and how to fix it.
    """
    return read_pod(pod, settings).request


def read_pod(pod: Pod, settings: PodSettings = DEFAULT) -> ParsedPod:
    """Read a pod: its request, and the requests of its containers as they were written.

    Raises:
        InvalidValue: with the path of the field, its value, and how to fix it.
    """
    containers = pod_containers(pod)
    requesting: dict[str, ParsedContainer] = {}
    cards = 0
    for container in containers:
        parsed = read_container(container, pod, settings)
        if parsed is None:
            continue
        requesting[_unique_name(container, requesting)] = parsed
        if len(requesting) > MAX_POD_CONTAINERS:
            fix = f"more than {MAX_POD_CONTAINERS} containers request a GPU: split the pod"
            raise InvalidValue(container.path, container.name, fix)
        cards += parsed.request.cards
        if cards > MAX_POD_CARDS:
            fix = f"a pod can have {MAX_POD_CARDS} cards over all its containers: split the pod"
            raise InvalidValue(container.path, container.name, fix)
    if not requesting:
        return ParsedPod(None, requesting, containers)
    request = PodRequest(
        PodName(pod.uid, pod.metadata.namespace or "", pod.metadata.name),
        pod.spec.priority or 0,
        tuple(parsed.request for parsed in requesting.values()),
        read_card_request(pod, settings),
    )
    return ParsedPod(request, requesting, containers, _gang(pod, settings.profiles[0]))


def _gang(pod: Pod, profile: NameProfile) -> str | None:
    """The name of the pod's gang. As with other annotations, an empty one counts as absent."""
    text = pod.annotations.get(profile.gang, "").strip() if profile.gang is not None else ""
    return check_name(text, f"metadata.annotations[{profile.gang}]") if text else None


def pod_containers(pod: Pod) -> tuple[PodContainer, ...]:
    """The containers in the order in which the kubelet starts them: init containers first."""
    found = [
        PodContainer(each, i, "sidecar" if each.is_sidecar else "init")
        for i, each in enumerate(pod.spec.init_containers or ())
    ]
    found += [PodContainer(each, i, "app") for i, each in enumerate(pod.spec.containers or ())]
    return tuple(found)


def _unique_name(container: PodContainer, known: Mapping[str, ParsedContainer]) -> str:
    """The container's name. Cards are assigned by it, so it must be valid and unique."""
    name = container.name
    if not _DNS_LABEL.fullmatch(name):
        fix = "write a container's name: 1 to 63 of a-z, 0-9 and - with no - at its ends"
        raise InvalidValue(f"{container.path}.name", name, fix)
    if name in known:
        fix = "another container has this name: choose another"
        raise InvalidValue(f"{container.path}.name", name, fix)
    return name


def read_container(
    container: PodContainer, pod: Pod, settings: PodSettings
) -> ParsedContainer | None:
    """The request of a container, or None if it requests no GPU.

    Raises:
        InvalidValue: a number is malformed or out of range, two of them contradict each other, or
            the pod's share mode is unknown.
    """
    resources = container.spec.resources
    if resources is None or not (resources.limits or resources.requests):
        return None
    table = _table(container, resources, settings)
    if table is None:
        return None
    cards = _get(container, resources, table.gpu)
    memory = _get(container, resources, table.memory)
    percentage = _get(container, resources, table.percentage)
    cores = _get(container, resources, table.cores)
    priority = _get(container, resources, table.priority)
    profile = table.profile
    if not (cards or memory or percentage or cores):
        if priority is not None:
            fix = f"the container requests no GPU: add {profile.gpu}, or remove this"
            raise InvalidValue(_field(container, table.priority), str(priority), fix)
        return None
    if memory is not None and percentage:
        fix = f"{profile.memory} sets the memory already: keep one of them"
        raise InvalidValue(_field(container, table.percentage), str(percentage), fix)

    card_count = _card_count(container, pod, table, settings, cards)
    if memory is not None:
        memory = _memory_per_card(container, table, memory, card_count)
    added: dict[str, int] = {}
    if cards is None:
        added[profile.gpu] = card_count
    if memory is None and not percentage and settings.default_memory_mib:
        units = -(-settings.default_memory_mib // profile.memory_unit_mib)
        memory = units * profile.memory_unit_mib
        added[profile.memory] = units * (card_count if profile.memory_is_total else 1)
    size: Memory = "whole"
    if memory is not None:
        size = Size(mib=memory)
    elif percentage and percentage != WHOLE_PERCENT:
        size = Size(percent=percentage)
    if cores is None:
        # No other container could use the time without memory. HAMi's webhook does the same.
        cores = WHOLE_PERCENT if size == "whole" else settings.default_cores
        if cores:
            added[profile.cores] = cores
    request = ContainerRequest(container.name, container.kind, card_count, size, cores)
    share_mode = read_share_mode(container.spec, pod, settings)
    return ParsedContainer(request, profile, priority, added, share_mode)


def _table(
    container: PodContainer, resources: Resources, settings: PodSettings
) -> ResourceTable | None:
    """The table of the profile whose names a container uses.

    Several profiles may share the name of the cards; then another resource decides.
    """
    written = {*(resources.limits or ()), *(resources.requests or ())}
    found = [table for table in settings.tables if not table.names.isdisjoint(written)]
    if len(found) > 1:
        particular = [table for table in found if not table.particular.isdisjoint(written)]
        if len(particular) > 1:
            one, other = (min(table.particular & written) for table in particular[:2])
            fix = f"the container also has {one}: keep the names of one kind"
            path, quantity = _written(container, other) or (container.path, "")
            raise InvalidValue(path, str(quantity), fix)
        found = particular or found
    return found[0] if found else None


def _written(container: PodContainer, name: str) -> tuple[str, Quantity] | None:
    """The path and the quantity of a resource: of the limit if there is one, else the request."""
    resources = container.spec.resources or Resources()
    for where, quantities in (("limits", resources.limits), ("requests", resources.requests)):
        if quantities and name in quantities:
            return f"{container.path}.resources.{where}[{name}]", quantities[name]
    return None


def _field(container: PodContainer, resource: Resource | None) -> str:
    """The path of a resource, or of the container where the resource is not written."""
    found = resource and _written(container, resource.name)
    return found[0] if found else container.path


def _get(container: PodContainer, resources: Resources, resource: Resource | None) -> int | None:
    """The number of a resource, or None if it is not written. Limit and request must be equal."""
    if resource is None:
        return None
    limit = resources.limits.get(resource.name) if resources.limits else None
    request = resources.requests.get(resource.name) if resources.requests else None
    quantity = request if limit is None else limit
    if quantity is None:
        return None
    found = number(quantity, resource.rule)
    if found is None:
        return count(quantity, _field(container, resource), resource.rule)
    if request is not None and limit is not None and request != limit:
        field = f"{container.path}.resources.requests[{resource.name}]"
        if count(request, field, resource.rule) != found:
            fix = f"the limit is {found}: write the same number, or remove the request"
            raise InvalidValue(field, str(request), fix)
    return found


def _card_count(
    container: PodContainer,
    pod: Pod,
    table: ResourceTable,
    settings: PodSettings,
    written: int | None,
) -> int:
    """The number of cards: from the resource, the label or the default."""
    label, labelled = table.profile.cards_label, None
    # The label is about shared cards. Every card is shared where memory has a default.
    is_shared = settings.default_memory_mib or _written(container, table.memory.name)
    if label is not None and label in pod.labels and is_shared:
        labelled = count(pod.labels[label], f"metadata.labels[{label}]", table.label)
    if written == 0:
        fix = (
            f"the container requests memory or cores: write {max(settings.default_cards, 1)}, "
            "or remove those"
        )
        raise InvalidValue(_field(container, table.gpu), "0", fix)
    if written and labelled and written != labelled:
        fix = f"the label {label} is {labelled}: write the same number, or remove one of them"
        raise InvalidValue(_field(container, table.gpu), str(written), fix)
    cards = written or labelled or settings.default_cards
    if not cards:
        fix = "it is required for memory and cores: add it"
        raise InvalidValue(f"{container.path}.resources.limits[{table.gpu.name}]", "", fix)
    return cards


def _memory_per_card(container: PodContainer, table: ResourceTable, memory: int, cards: int) -> int:
    """MiB on each card, from the number in the pod."""
    profile = table.profile
    if not profile.memory_is_total:
        return memory * profile.memory_unit_mib
    if memory % cards:
        fix = f"it is divided among {cards} cards: write a multiple of {cards}"
        raise InvalidValue(_field(container, table.memory), str(memory), fix)
    each = memory // cards * profile.memory_unit_mib
    if each > MAX_MEMORY_MIB:
        most = MAX_MEMORY_MIB // profile.memory_unit_mib * cards
        fix = f"that is {each} MiB on each of {cards} cards: write at most {most}"
        raise InvalidValue(_field(container, table.memory), str(memory), fix)
    return each
