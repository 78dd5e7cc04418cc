"""From a pod to what it asks for: the one reader that webhook, scheduler and CLI share."""

import re
from collections.abc import Mapping

import msgspec

from hami_py.errors import InvalidValue
from hami_py.model.pods.asks import Place, Reading, places, read_container
from hami_py.model.pods.objects import Pod
from hami_py.model.pods.settings import DEFAULT, PodSettings
from hami_py.model.pods.wire import PodName, Request
from hami_py.model.pods.wish import read_wish

MOST_ASKING = 64
"""Containers of a pod that may ask for cards; the allocator takes no more."""

MOST_CARDS = 320
"""Cards of a pod, over all its containers: as many as an assignment has room for."""

_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class PodReading(msgspec.Struct, frozen=True):
    """All that a pod says about GPUs.

    Attributes:
        request: for the allocator; None = it asks for none.
        readings: by container, of those that ask.
        places: every container of the pod, in the order in which they start.
    """

    request: Request | None
    readings: Mapping[str, Reading]
    places: tuple[Place, ...]


def read_request(pod: Pod, settings: PodSettings = DEFAULT) -> Request | None:
    """What a pod asks for, or None if no container of it asks for a GPU.

    Raises:
        InvalidValue: with the path of the field, its value, and how to fix it.
    """
    return read_pod(pod, settings).request


def read_pod(pod: Pod, settings: PodSettings = DEFAULT) -> PodReading:
    """The same, and what each container's numbers came from.

    Raises:
        InvalidValue: with the path of the field, its value, and how to fix it.
    """
    found = places(pod)
    readings: dict[str, Reading] = {}
    cards = 0
    for place in found:
        reading = read_container(place, pod, settings)
        if reading is not None:
            readings[_fresh_name(place, readings)] = reading
            if len(readings) > MOST_ASKING:
                fix = f"more than {MOST_ASKING} containers ask for a GPU: split the pod"
                raise InvalidValue(place.path, place.container.name, fix)
            cards += reading.ask.cards
            if cards > MOST_CARDS:
                fix = f"a pod can be given {MOST_CARDS} cards over all its containers: split it"
                raise InvalidValue(place.path, place.container.name, fix)
    if not readings:
        return PodReading(None, readings, found)
    name = PodName(pod.uid, pod.metadata.namespace or "", pod.metadata.name)
    asks = tuple(reading.ask for reading in readings.values())
    wish = read_wish(pod, settings.profiles[0])
    return PodReading(Request(name, pod.spec.priority or 0, asks, wish), readings, found)


def _fresh_name(place: Place, taken: Mapping[str, Reading]) -> str:
    """The container's name: cards are assigned by it, so it must be one, and one container's."""
    name = place.container.name
    if not _DNS_LABEL.fullmatch(name):
        fix = "write a container's name: 1 to 63 of a-z, 0-9 and - with no - at its ends"
        raise InvalidValue(f"{place.path}.name", name, fix)
    if name in taken:
        raise InvalidValue(f"{place.path}.name", name, "another container has it: choose another")
    return name
