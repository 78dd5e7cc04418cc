"""An agent of a node of mode mig with the stub's cards, as far as it makes MIG instances.

    python mig_agent.py FOLDER ROOT

ROOT is where the stub has its device nodes. The agent does what each line of standard input says, a
JSON list, and answers with a line of JSON:

    ["pod", UID, CARD, PROFILE, START, SIZE]    the pod exists, with one container
    ["start", UID]                              the kubelet starts the container
    ["adopt", UID]                              the ledger has lost the container, which runs
    ["ended", UID]                              the pod has ended, and its processes with it
    ["alive", UID…]                             the pods that have processes
    ["follow"]                                  a round
    ["mode", MODE]                              the label of the node
    ["show"]
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from hami_py.agent import preparation
from hami_py.agent.assigned import Assigned
from hami_py.agent.instances import Instances
from hami_py.agent.node import OwnNode
from hami_py.agent.preparation import Preparation
from hami_py.agent.release import release_ended
from hami_py.errors import HamiError
from hami_py.gpu.inventory import inventory
from hami_py.kube import Event, Reference
from hami_py.model.pods.wire import CardAllocation, Instance
from hami_py.node.cards import Cards
from hami_py.node.cdi import NodeCards
from unit.agent import build


def labelled(mode: str) -> OwnNode:
    written = {"metadata": {"name": "n1", "labels": {"hami.io/mode": mode}}}
    return msgspec.json.decode(json.dumps(written), type=OwnNode)


def main() -> None:
    of = build.settings(Path(sys.argv[1]))
    found = inventory(10)
    node = build.state(of, *(card.uuid for card in found.in_mig_mode))
    node.cards = Cards()
    node.cards.add(found)
    node.node.changed(labelled("mig"))
    node.follow_mode()
    node.is_adopted = True
    root = Path(sys.argv[2])
    node.specifications = NodeCards(of.paths.cdi, lambda: node.cards.mig_devices, root)
    events = list[Event]()
    alive = set[str]()
    changed, about = (lambda: None), Reference("Node", "n1", "n1")
    instances = Instances(node, changed, events.append, about, find=alive.copy)
    prepared = Preparation(
        *(of, node, Path(build.LIBRARY), events.append, instances),
        allocator=Assigned(of, node, events.append, instances),
    )
    for line in sys.stdin:
        error = None
        match json.loads(line):
            case ["pod", uid, card, profile, start, size]:
                at = Instance(profile, start, size)
                node.pods.changed(build.pod(uid, {"main": CardAllocation(card, 1, 1, at)}))
            case ["start", uid]:
                ids = [f"{uid}::0"]
                record = build.record(uid, "main", ids[0])
                preparation.read_records = lambda *_, record=record: [record]  # type: ignore
                try:
                    prepared.pre_start(ids)
                except HamiError as failed:
                    error = str(failed)
            case ["adopt", uid]:
                of_pod = build.record(uid, "main", f"{uid}::0")
                preparation.read_records = lambda *_, record=of_pod: [record]  # type: ignore
                prepared.adopt()
            case ["ended", uid]:
                pod = node.pods.get(uid)
                if pod is not None:
                    node.pods.deleted(pod)
            case ["alive", *uids]:
                alive.clear()
                alive |= {*uids}
            case ["follow"]:
                node.follow_mode()
                try:
                    instances.follow()
                except HamiError as failed:
                    error = str(failed)
                release_ended(node, find=alive.copy)
            case ["mode", mode]:
                node.node.changed(labelled(mode))
        print(
            json.dumps({"error": error, **show(node), "events": [each.reason for each in events]}),
            flush=True,
        )


def show(node: Any) -> dict[str, Any]:
    cards = {card.uuid: card for card in node.cards.all}
    return {
        "taken": {uuid: card.mig.taken for uuid, card in cards.items() if card.mig},
        "cards": list(cards),
        "pages": {name: [row.uuid for row in node.slots.rows(name)] for name in node.slots.names()},
        "devices": [*node.cards.mig_devices],
        "ledger": {entry.owner: entry.mig_uuids for entry in node.ledger.entries.values()},
    }


main()
