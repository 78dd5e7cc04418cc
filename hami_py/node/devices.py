"""Device IDs, and the kubelet's record of the devices of a container.

A device ID is ``<UUID of a card>::<number>``. The number only makes it unique, because a device has
one owner for the kubelet, and a card has many. The scheduler assigns cards, never device IDs.
"""

from collections.abc import Iterable
from dataclasses import dataclass

_SEPARATOR = "::"


def device_ids(card: str, count: int) -> list[str]:
    """The device IDs of a card that ``count`` containers may share."""
    return [f"{card}{_SEPARATOR}{number}" for number in range(count)]


def card_of(device_id: str) -> str:
    """The UUID of a device's card."""
    return device_id.partition(_SEPARATOR)[0]


def cards_of(ids: Iterable[str]) -> list[str]:
    """The UUIDs of the devices' cards, sorted. A card occurs as often as it has a device there."""
    return sorted(map(card_of, ids))


@dataclass(frozen=True)
class DeviceRecord:
    """The kubelet's record of the devices of one container.

    Attributes:
        pod_uid: the pod.
        container: the container's name.
        ids: its device IDs.
        slot: the name of the slot that the plugin's answer mounts.
        library: the installed library that the answer mounts, as a path on the node.
    """

    pod_uid: str
    container: str
    ids: frozenset[str]
    slot: str
    library: str
