"""Device IDs, and the kubelet's record of the devices of a container.

A device ID is ``<UUID of a card>::<number>``. The number only makes it unique, because a device has
one owner for the kubelet, and a card has many. The scheduler assigns cards, never device IDs.

The kubelet tells a plugin device IDs and never a pod. Its record names the pod and the container,
and contains the plugin's answer, in which every container has a slot of its own. The record is
written before the first container of a pod starts. Several records can have the same IDs. The
containers of a pod inherit the devices of its init containers. And records of a pod that has ended
stay until the kubelet looks again.
"""

from collections.abc import Callable, Iterable, Sequence
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
        slot: the name of the slot in the plugin's answer.
        library: the installed library in the plugin's answer, as a path on the node.
    """

    pod_uid: str
    container: str
    ids: frozenset[str]
    slot: str
    library: str


def owners(
    records: Iterable[DeviceRecord], ids: Iterable[str], is_over: Callable[[str], bool]
) -> Sequence[DeviceRecord]:
    """The containers that may be the one that starts with these devices; empty = unknown.

    There are several if an init container and others of its pod have the same devices. Then the
    kubelet does not say which of them starts, and each of them has to be prepared.

    Args:
        records: the kubelet's records of our resource.
        ids: the devices of the container that starts.
        is_over: whether the pod with this UID has ended for good.
    """
    wanted = frozenset(ids)
    found = [record for record in records if record.ids == wanted]
    running = [record for record in found if not is_over(record.pod_uid)]
    return sorted(running, key=lambda record: (record.pod_uid, record.container))
