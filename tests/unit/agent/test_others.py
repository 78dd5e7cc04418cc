"""Containers on a node of others: their limits by claims, and what they share."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hami_py.agent import preparation
from hami_py.agent.instances import Instances
from hami_py.agent.node import OwnNode
from hami_py.agent.others import Others
from hami_py.agent.pods import NodePod
from hami_py.agent.preparation import Preparation
from hami_py.agent.release import release_ended
from hami_py.agent.state import NodeState
from hami_py.errors import HamiError, InvalidValue, StateError
from hami_py.gpu.inventory import Inventory
from hami_py.kube import Event, Reference
from hami_py.kube.errors import Unavailable
from hami_py.model.cards import UNKNOWN
from hami_py.model.pods.wire import Card
from hami_py.node.devices import DeviceRecord
from hami_py.node.ledger import Ledger
from hami_py.plugin.service import NotYet
from unit.agent.build import CARD_MIB, LIBRARY, record, settings, state

NVIDIA = "gpu.nvidia.com"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


class Api:
    """The API server: claims by name, and one ResourceSlice with the cards A and B."""

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {}
        self.uuids = ("A", "B")
        self.reads: list[str] = []
        self.is_away = False

    def allocate(self, name: str, requests: Mapping[str, str], driver: str = NVIDIA) -> None:
        """Allocate a part of the card A for each request."""
        results = [
            {
                **{"request": request, "driver": driver, "pool": "n1", "device": "gpu-0"},
                "consumedCapacity": {"memory": memory},
            }
            for request, memory in requests.items()
        ]
        status = {"allocation": {"devices": {"results": results}}}
        self.claims[name] = {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": status}

    def get(self, path: str, query: Mapping[str, str] | None = None, *, deadline_s: float) -> bytes:
        self.reads.append(path)
        if self.is_away:
            raise Unavailable("GET", "no answer", "wait")
        if not path.endswith("/resourceslices"):
            return json.dumps(self.claims[path.removeprefix(f"{CLAIMS}/")]).encode()
        assert query is not None
        assert query["fieldSelector"] == "spec.nodeName=n1"
        devices = [
            {
                **{"name": f"gpu-{index}", "attributes": {"uuid": {"string": uuid}}},
                "capacity": {"memory": {"value": "8000Mi"}},
            }
            for index, uuid in enumerate(self.uuids)
        ]
        spec = {"driver": NVIDIA, "nodeName": "n1", "pool": {"name": "n1"}, "devices": devices}
        items = [{"metadata": {"name": "s"}, "spec": spec}]
        listed = {"kind": "ResourceSliceList", "metadata": {"resourceVersion": "1"}, "items": items}
        return json.dumps(listed).encode()


class Agent:
    """The part of an agent that prepares containers."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api, self.events = Api(), list[Event]()
        self._folder, self._monkeypatch = folder, monkeypatch
        self.restart()

    def restart(self) -> None:
        """Start another agent with what the one before has left."""
        of = settings(self._folder)
        self.node: NodeState = state(of, "A", "B")
        self.node.owner = "others"
        (self._folder / "cdi" / "nvidia.json").unlink()
        about = Reference("Node", "n1", "n1")
        instances = Instances(self.node, lambda: None, lambda _: None, about)
        arguments = (of, self.node, Path(LIBRARY), self.events.append, instances)
        allocator = Others(self.api, of, self.node)  # type: ignore[arg-type]
        self._prepared = Preparation(*arguments, allocator=allocator)

    def start(self, uid: str, container: str, device: str | None = None) -> None:
        """Start the container of a pod; its slot is `UID-CONTAINER`."""
        found = record(uid, container, device or f"limits::{uid}-{container}")
        self.start_one_of(found)

    def start_one_of(self, *records: DeviceRecord) -> None:
        """Start the container of one of these records; they have the same devices."""
        self._monkeypatch.setattr(preparation, "read_records", lambda *_: records)
        self._prepared.pre_start([*records[0].ids])

    def adopt(self, *records: DeviceRecord) -> None:
        self._monkeypatch.setattr(preparation, "read_records", lambda *_: records)
        self._prepared.adopt()

    def edits(self, slot: str) -> dict[str, Any]:
        """The edits of our CDI device for a container."""
        devices = json.loads((self._folder / "cdi" / "hami.json").read_text())["devices"]
        (edits,) = (each["containerEdits"] for each in devices if each["name"] == slot)
        return dict(edits)

    def add_cards(self, *uuids: str) -> None:
        """Let the node have these, too."""
        cards = tuple(Card(uuid, 7, "A100", CARD_MIB) for uuid in uuids)
        self.node.cards.add(Inventory(cards, dict.fromkeys(uuids, UNKNOWN), "1", {}))

    def page(self, slot: str) -> Path:
        """The limits page that a container has, on the node."""
        mounts = {each["containerPath"]: each["hostPath"] for each in self.edits(slot)["mounts"]}
        return Path(mounts["/usr/local/hami/limits"])

    def rows(self, slot: str) -> list[tuple[str, int | None, int | None]]:
        """The card, MiB and percent of each row of the page of a container."""
        rows = self.node.slots.rows(self.page(slot).parent.name)
        return [(row.uuid, row.memory_limit and row.memory_limit >> 20, row.share) for row in rows]

    def pod(self, uid: str, containers: Mapping[str, Any], **spec: Any) -> None:
        """A pod whose containers use claims: the name of a claim, or (claim, request) tuples."""

        limits, init = spec.pop("limits", {}), spec.pop("init", {})
        sidecars, annotations = spec.pop("sidecars", ()), spec.pop("annotations", {})

        def listed(of: Mapping[str, Any]) -> list[dict[str, Any]]:
            resources = {
                name: {"claims": _uses(each), "limits": limits} for name, each in of.items()
            }
            return [
                {
                    **{"name": name, "resources": each},
                    **({"restartPolicy": "Always"} if name in sidecars else {}),
                }
                for name, each in resources.items()
            ]

        written = {
            "metadata": {
                **{"name": uid, "namespace": "default", "uid": uid},
                "annotations": annotations,
            },
            "spec": {
                **{"nodeName": "n1", "restartPolicy": "Always", "containers": listed(containers)},
                "initContainers": listed(init),
                "resourceClaims": [
                    {"name": name, "resourceClaimName": name} for name in self.api.claims
                ],
                **spec,
            },
            "status": {"phase": "Running"},
        }
        self.node.pods.changed(msgspec.json.decode(json.dumps(written), type=NodePod))


def _uses(used: Any) -> list[dict[str, str]]:
    if isinstance(used, str):
        return [{"name": used}]
    return [{"name": claim, "request": request} for claim, request in used]


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    return Agent(tmp_path, monkeypatch)


def test_a_container_has_the_limits_of_its_claim_and_no_device_of_ours(agent: Agent) -> None:
    agent.api.allocate("c", {"gpu": "4Gi"})
    agent.pod("p", {"main": "c"})
    agent.start("p", "main")
    assert agent.rows("p-main") == [("A", 4096, None)]
    edits = agent.edits("p-main")
    assert edits.keys() == {"mounts", "hooks"}, "the card is that of the claim"
    (event,) = agent.events
    assert event.reason == "LimitsEnforced"


def test_a_container_without_a_card_gets_a_device_that_changes_nothing(agent: Agent) -> None:
    agent.api.allocate("net", {"nic": "1Gi"}, driver="net.example.com")
    agent.pod("p", {"main": "net"})
    agent.start("p", "main")
    edits = agent.edits("p-main")
    assert edits.keys() == {"hooks"}, "CDI refuses a device without edits"
    assert edits["hooks"][0]["args"] == ["hami-hook"]
    assert agent.node.slots.names() == set()
    assert agent.events == []
    agent.api.is_away = True
    agent.restart()
    agent.start("p", "main")


def test_containers_and_pods_with_one_claim_have_its_amount_together(agent: Agent) -> None:
    agent.api.allocate("c", {"gpu": "4Gi"})
    for uid in ("p", "q"):
        agent.pod(uid, {"one": "c", "two": [("c", "gpu")]})
        for name in ("one", "two"):
            agent.start(uid, name)
    assert len({agent.page(f"{uid}-{name}") for uid in "pq" for name in ("one", "two")}) == 1
    assert len(agent.node.slots.names()) == 1
    assert [*agent.node.view().allocated.values()] == [agent.node.ledger.entries["p-one"].cards]


def test_a_shared_slot_is_kept_until_its_last_pod_has_ended(agent: Agent) -> None:
    agent.api.allocate("c", {"gpu": "4Gi"})
    agent.node.is_adopted = True
    for uid in ("p", "q"):
        agent.pod(uid, {"main": "c"})
        agent.start(uid, "main")
    for uid, left in (("p", 1), ("q", 0)):
        agent.node.pods.deleted(agent.node.pods.get(uid))  # type: ignore[arg-type]
        release_ended(agent.node, set)
        assert len(agent.node.slots.names()) == left
        assert len(agent.node.ledger.entries) == left


def test_the_requests_of_a_claim_are_apart(agent: Agent) -> None:
    agent.api.allocate("c", {"a": "1Gi", "b": "2Gi"})
    agent.pod("p", {"one": [("c", "a")], "two": [("c", "b")]})
    agent.start("p", "one")
    agent.start("p", "two")
    assert agent.rows("p-one") == [("A", 1024, None)]
    assert agent.rows("p-two") == [("A", 2048, None)]


def test_a_container_waits_that_shares_a_part_of_the_amounts_of_another(agent: Agent) -> None:
    agent.api.allocate("c", {"a": "1Gi", "b": "2Gi"})
    agent.pod("p", {"one": [("c", "a")], "all": "c"})
    agent.start("p", "one")
    with pytest.raises(NotYet, match="container one of default/p uses only a part of the same"):
        agent.start("p", "all")
    assert agent.events[-1].reason == "WaitingForCard"
    assert agent.node.ledger.entries.keys() == {"p-one"}


def test_an_init_container_may_use_all_requests_before_the_others_do(agent: Agent) -> None:
    """The others have its devices, so the kubelet does not say which one starts."""
    agent.api.allocate("c", {"a": "1Gi", "b": "2Gi"})
    agent.pod("p", {"one": [("c", "a")]}, init={"first": "c"})
    agent.start_one_of(*(record("p", name, "limits::0") for name in ("first", "one")))
    assert agent.rows("p-first") == [("A", 3072, None)]
    assert agent.rows("p-one") == [("A", 1024, None)]
    assert {event.reason for event in agent.events} == {"LimitsEnforced"}


@pytest.mark.parametrize("names", [("first", "side"), ("z", "a")])
def test_an_init_container_before_a_sidecar_has_ended_when_it_starts(
    agent: Agent, names: tuple[str, str]
) -> None:
    agent.api.allocate("c", {"a": "1Gi", "b": "2Gi"})
    first, side = names
    agent.pod("p", {"main": []}, init={first: "c", side: [("c", "a")]}, sidecars={side})
    agent.start_one_of(*(record("p", name, "limits::0") for name in sorted(names)))
    assert agent.rows(f"p-{first}") == [("A", 3072, None)]
    assert agent.rows(f"p-{side}") == [("A", 1024, None)]


def test_a_sidecar_runs_beside_the_init_containers_after_it(agent: Agent) -> None:
    agent.api.allocate("c", {"a": "1Gi", "b": "2Gi"})
    agent.pod("p", {"main": []}, init={"side": [("c", "a")], "later": "c"}, sidecars={"side"})
    agent.start("p", "side")
    with pytest.raises(NotYet, match="container side of default/p uses only a part"):
        agent.start("p", "later")


def test_the_page_of_a_shared_slot_stays_when_another_pod_starts(agent: Agent) -> None:
    agent.api.allocate("c", {"gpu": "4Gi"})
    agent.pod("p", {"main": "c"})
    agent.start("p", "main")
    agent.pod("q", {"main": "c"}, annotations={"hami.io/share-mode": "soft"})
    labels = {"name": "n1", "labels": {"hami.io/mode": "share"}}
    agent.node.node.node = msgspec.convert({"metadata": labels}, OwnNode)
    agent.start("q", "main")
    assert agent.rows("q-main") == [("A", 4096, None)]
    assert agent.node.ledger.entries["q-main"].share_mode == "hard"
    (agent.page("p-main").parent / "account").write_bytes(b"")
    with pytest.raises(StateError, match="it is damaged, and another container has it"):
        agent.start("q", "main")


def test_a_part_of_a_mig_device_is_refused(agent: Agent) -> None:
    """A MIG device has no row of its own: it is the limit itself."""
    agent.api.uuids = ("MIG-1", "B")
    agent.add_cards("MIG-1")
    agent.api.allocate("c", {"gpu": "4Gi"})
    agent.pod("p", {"main": "c"})
    with pytest.raises(InvalidValue, match="a part of a MIG device is not limited"):
        agent.start("p", "main")


def test_a_container_without_cards_needs_no_level(agent: Agent) -> None:
    agent.api.allocate("net", {"nic": "1Gi"}, driver="net.example.com")
    agent.pod("p", {"main": "net"}, annotations={"hami.io/isolation": "kernel"})
    agent.start("p", "main")


def test_a_restart_reads_nothing_from_the_api_server(agent: Agent) -> None:
    agent.api.allocate("c", {"gpu": "4Gi"})
    agent.pod("p", {"main": "c"})
    agent.start("p", "main")
    before, agent.api.is_away = len(agent.api.reads), True
    agent.restart()
    agent.start("p", "main")
    assert agent.rows("p-main") == [("A", 4096, None)]
    assert len(agent.api.reads) == before


def test_a_container_waits_while_its_claim_cannot_be_read(agent: Agent) -> None:
    agent.api.allocate("c", {"gpu": "4Gi"})
    agent.pod("p", {"main": "c"})
    agent.api.is_away = True
    with pytest.raises(HamiError, match="no answer"):
        agent.start("p", "main")
    assert agent.events[-1].message.startswith("container main waits: GET: no answer")
    agent.api.is_away = False
    agent.start("p", "main")


def test_a_container_waits_for_a_card_that_the_node_does_not_have(agent: Agent) -> None:
    agent.api.allocate("c", {"gpu": "4Gi"})
    agent.pod("p", {"main": "c"})
    agent.node.cards._cards = {}
    with pytest.raises(
        InvalidValue, match=r'card: "A" is refused: the agent of this node does not see it'
    ):
        agent.start("p", "main")


def test_a_card_without_a_known_amount_is_no_container_without_cards(agent: Agent) -> None:
    agent.pod("p", {"main": []}, limits={"nvidia.com/gpu": "1"})
    with pytest.raises(InvalidValue, match="cards without an amount"):
        agent.start("p", "main")


def test_running_containers_are_adopted_into_a_ledger_that_has_lost_them(agent: Agent) -> None:
    agent.api.allocate("c", {"gpu": "4Gi"})
    agent.pod("p", {"main": "c"})
    agent.start("p", "main")
    before = agent.node.ledger.entries
    lost = record("p", "main", "limits::p-main")
    path = agent.node.ledger._path
    path.unlink()
    agent.node.ledger = Ledger(path)
    agent.api.is_away = True
    agent.adopt(lost)
    assert not agent.node.is_adopted, "its slot is not unused"
    agent.api.is_away = False
    agent.adopt(lost)
    assert agent.node.is_adopted
    assert agent.node.ledger.entries == before
