"""A node's state on a temporary directory, and its pods as the API server would report them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hami_py._native import FORMAT
from hami_py.agent.node import NodeStore
from hami_py.agent.pods import NodePod, PodStore
from hami_py.agent.reports import Reports
from hami_py.agent.settings import AgentSettings
from hami_py.agent.state import NodeState
from hami_py.gpu.inventory import Inventory
from hami_py.gpu.processes import CardProcess
from hami_py.kube import Event, Reference
from hami_py.model.cards import UNKNOWN
from hami_py.model.pods.wire import Card, CardAllocation
from hami_py.node.cards import Cards
from hami_py.node.devices import DeviceRecord
from hami_py.node.ledger import Entry, Ledger
from hami_py.node.observer import Observer
from hami_py.node.paths import Paths
from hami_py.node.slots import Slots

LIBRARY = f"/var/lib/hami/library/{FORMAT}-abc/libvgpu.so"

HOOK = Path("/var/lib/hami/library/hook/hami-hook")

#: The memory of each card.
CARD_MIB = 8000


def settings(folder: Path) -> AgentSettings:
    """The settings of an agent whose directories are all in this folder."""
    paths = Paths(folder / "run", folder / "state", folder / "kubelet", (folder / "cdi",))
    for path in (paths.runtime, paths.state, paths.device_plugins, *paths.cdi):
        path.mkdir(parents=True, exist_ok=True)
    return AgentSettings("n1", Path("/library"), paths)


def state(of: AgentSettings, *cards: str) -> NodeState:
    """A node with these cards, their CDI specification, and no pod."""
    devices = [{"name": card, "containerEdits": {"env": [f"CARD={card}"]}} for card in cards]
    written = {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices}
    (of.paths.cdi[0] / "nvidia.json").write_text(json.dumps(written))
    known = Cards()
    found = [Card(uuid, index, "A100", CARD_MIB) for index, uuid in enumerate(cards)]
    known.add(Inventory(tuple(found), dict.fromkeys(cards, UNKNOWN), "1", {}))
    pods = PodStore(lambda: None)
    pods.replace([])
    return NodeState(
        of.pods,
        cards=known,
        pods=pods,
        node=NodeStore(lambda: None),
        ledger=Ledger(of.paths.ledger),
        slots=Slots(of.paths),
        paths=of.paths,
        hook=HOOK,
    )


def pod(
    uid: str,
    containers: Mapping[str, CardAllocation],
    *,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> NodePod:
    """A pod of a controller, whose containers have these cards; ``spec`` is merged over its own."""
    assignment = {
        "version": 1,
        "pod": uid,
        "node": "n1",
        "containers": {name: [msgspec.to_builtins(card)] for name, card in containers.items()},
    }
    written = {
        "metadata": {
            "name": uid,
            "namespace": "default",
            "uid": uid,
            "annotations": {"hami.io/assignment": json.dumps(assignment), **(annotations or {})},
        },
        "spec": {
            "nodeName": "n1",
            "restartPolicy": "Always",
            "containers": [{"name": name} for name in containers],
            **(spec or {}),
        },
        "status": {"phase": "Running", **(status or {})},
    }
    return msgspec.json.decode(json.dumps(written), type=NodePod)


def entry(uid: str, *cards: CardAllocation, library: str = LIBRARY, **more: Any) -> Entry:
    """What the ledger has of a pod's container ``main``."""
    ids = tuple(f"{card.card}::0" for card in cards)
    usual = {"mode": "full", "priority": "normal"}
    own = (uid, uid, "default", uid, "main")
    return Entry(*own, ids, cards, cards, library, **{**usual, **more})


class Reporting(Observer):
    """Takes all processes for those of the pod p, and reports after each look."""

    def __init__(
        self,
        node: NodeState,
        write: Callable[[Event], None] = lambda _: None,
        changed: Callable[[], None] = lambda: None,
        **more: Any,
    ) -> None:
        seen = (node.cards, node.ledger, node.slots, lambda _: "p")
        super().__init__(*seen, changed=changed, containers=10)
        self._reports = Reports(node, self, write, Reference("Node", "n1", "n1"), **more)

    def look(self, processes: list[CardProcess]) -> None:
        super().look(processes)
        self._reports.report()


def record(uid: str, container: str, device: str) -> DeviceRecord:
    """The kubelet's record of a container with one device. The slot is named `UID-CONTAINER`."""
    return DeviceRecord(uid, container, frozenset([device]), f"{uid}-{container}", LIBRARY)
