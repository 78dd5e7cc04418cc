"""The owner of a node's cards, who allocates them: the label ``hami.io/owner``.

Nodes and namespaces have it.

| value | who allocates | the container's amounts are in |
|---|---|---|
| ``hami``, the default | our scheduler | the pod's assignment |
| ``others`` | a DRA driver, NVIDIA's device plugin, KAI or Volcano | their objects (amounts.py) |

A node has one owner. On a node of others the agent publishes no cards. It offers the resource
``hami.io/limits`` instead: a container that has one of it starts only with the limits of its
amounts. The webhook gives one to each container that may have a card, in namespaces with the label.
"""

from collections.abc import Collection, Mapping
from typing import Literal, TypeAlias, get_args

from hami_py.errors import InvalidValue
from hami_py.model.pods.objects import Container, Pod, Resources
from hami_py.model.pods.quantities import whole_number

Owner: TypeAlias = Literal["hami", "others"]

LABEL = "hami.io/owner"

LIMITS = "hami.io/limits"
"""The extended resource: 1 for each container that is limited."""

KAI_ANNOTATIONS = ("gpu-fraction", "gpu-memory")
"""KAI's annotations of a pod that has a part of a card."""

KAI_CONTAINER = "gpu-fraction-container-name"
"""KAI's annotation: the container that has it; without it, the first one."""

VOLCANO = "volcano.sh/vgpu-number"
"""Volcano's resource: parts of cards."""

_CARDS = ("nvidia.com/gpu", "nvidia.com/mig-")
"""How the names of NVIDIA's resources for cards begin."""

_MAYBE = ("nvidia.com/", "deviceclass.resource.kubernetes.io/")
"""How the names of other resources begin that may be cards: renamed ones, and DeviceClasses."""


def read_owner(labels: Mapping[str, str]) -> Owner:
    """The owner by the labels of a node or a namespace.

    Raises:
        InvalidValue: the label has another value.
    """
    text = labels.get(LABEL, "hami")
    for owner in get_args(Owner):
        if text == owner:
            return owner  # type: ignore[no-any-return]
    raise InvalidValue(f"metadata.labels[{LABEL}]", text, "write hami or others")


def may_have_cards(pod: Pod, container: Container) -> bool:
    """Whether another allocator may give a container cards: only its objects say which."""
    claims = container.resources is not None and container.resources.claims
    is_named = any(name.startswith(_MAYBE) for name in _requested(container))
    return bool(claims) or is_named or has_cards(pod, container)


def has_cards(pod: Pod, container: Container) -> bool:
    """Whether a container requests cards by their own names."""
    names = _requested(container)
    is_named = any(name == VOLCANO or name.startswith(_CARDS) for name in names)
    return is_named or kai_container(pod) == container.name


def _requested(container: Container) -> Collection[str]:
    resources = container.resources or Resources()
    amounts = {**(resources.requests or {}), **(resources.limits or {})}
    return [name for name, amount in amounts.items() if whole_number(amount) != 0]


def kai_container(pod: Pod) -> str | None:
    """The name of the container that has a part of a card by KAI's annotations, if any has."""
    if not any(name in pod.annotations for name in KAI_ANNOTATIONS):
        return None
    first = next(iter(pod.spec.containers or ()), None)
    return pod.annotations.get(KAI_CONTAINER) or (first.name if first is not None else None)
