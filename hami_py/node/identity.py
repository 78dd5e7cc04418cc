"""Which container a set of device IDs belongs to, by the kubelet's own record.

The kubelet tells a plugin device IDs and never a pod. Its record of devices names the pod and the
container, and contains the plugin's answer, in which every container has a slot of its own. The
record is written before the first container of a pod starts.

Several records can have the same IDs. The containers of a pod inherit the devices of its init
containers. And records of a pod that has ended stay until the kubelet looks again.
"""

from collections.abc import Callable, Iterable, Sequence

from hami_py.node.devices import DeviceRecord


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
