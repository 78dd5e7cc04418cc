"""Containers that start: on which cards, and what is known of them after that."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from hami_py._native import LimitsPage
from hami_py.agent import assigned, preparation
from hami_py.agent.assigned import Assigned
from hami_py.agent.instances import Instances
from hami_py.agent.node import OwnNode
from hami_py.agent.pods import NodePod
from hami_py.agent.preparation import Preparation
from hami_py.agent.release import release_ended
from hami_py.agent.state import NodeState
from hami_py.errors import StateError
from hami_py.kube import Event, EventWriter, Reference
from hami_py.kube import events as events_of_kube
from hami_py.model import gang_of_namespace
from hami_py.model.pods import PodSettings
from hami_py.model.pods.annotations import ASSIGNMENT
from hami_py.node.decision import Wait
from hami_py.node.devices import DeviceRecord
from hami_py.node.ledger import Ledger
from hami_py.plugin.service import NotYet
from support.launcher import until
from unit.agent.build import LIBRARY, pod, record, settings, state
from unit.node.build import on

Start = Callable[[DeviceRecord], None]


@pytest.fixture
def node(tmp_path: Path) -> NodeState:
    return state(settings(tmp_path), "A", "B")


@pytest.fixture
def events() -> list[Event]:
    return []


#: Where events of the node are.
NODE = Reference("Node", "n1", "n1")


def preparation_of(*arguments: Any) -> Preparation:
    """The preparation of a node whose agent makes no instances."""
    of, node, _, write = arguments
    instances = Instances(node, lambda: None, lambda _: None, NODE)
    return Preparation(*arguments, instances, allocator=Assigned(of, node, write, instances))


@pytest.fixture
def prepared(node: NodeState, events: list[Event], tmp_path: Path) -> Preparation:
    return preparation_of(settings(tmp_path), node, Path(LIBRARY), events.append)


@pytest.fixture
def start(prepared: Preparation, monkeypatch: pytest.MonkeyPatch) -> Start:
    """`start(record)`: the kubelet starts the container of this record of its own."""

    def start(of: DeviceRecord) -> None:
        monkeypatch.setattr(preparation, "read_records", lambda *_: [of])
        prepared.pre_start([*of.ids])

    return start


def device(node: NodeState, slot: str, tmp_path: Path) -> dict[str, Any]:
    """What the container runtime adds to a container, by its CDI specification."""
    devices = json.loads((tmp_path / "cdi" / "hami.json").read_text())["devices"]
    (edits,) = (each["containerEdits"] for each in devices if each["name"] == slot)
    return dict(edits)


def test_a_container_gets_its_assigned_card_whatever_the_kubelet_picked(
    node: NodeState, start: Start, tmp_path: Path
) -> None:
    node.pods.changed(pod("p", {"main": on("A", 1000)}))
    start(record("p", "main", "B::0"))
    assert node.ledger.entries["p-main"].cards == (on("A", 1000),)
    edits = device(node, "p-main", tmp_path)
    no_mps = "CUDA_MPS_PIPE_DIRECTORY=/nonexistent"
    assert edits["env"] == ["CARD=A", no_mps, "NVIDIA_VISIBLE_DEVICES=void"]
    slot = tmp_path / "run" / "slices" / "p-main"
    assert [(each["hostPath"], each["containerPath"]) for each in edits["mounts"]] == [
        (str(slot), "/usr/local/hami"),
        *(
            (f"{slot}/{name}", f"/usr/local/hami/{name}")
            for name in ("limits", "grants", "account")
        ),
        (LIBRARY, "/usr/local/hami/libvgpu.so"),
        (str(Path(LIBRARY).with_name("ld.so.preload")), "/etc/ld.so.preload"),
    ]
    writable = [each["containerPath"] for each in edits["mounts"] if "ro" not in each["options"]]
    assert writable == ["/usr/local/hami/account"]


def test_containers_of_one_pod_with_the_same_devices_get_their_own_cards(
    node: NodeState, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet does not say whether the init container starts, or the one after it."""
    first = {"initContainers": [{"name": "init"}], "containers": [{"name": "main"}]}
    node.pods.changed(pod("p", {"init": on("A", 7000), "main": on("B", 8000)}, spec=first))
    records = [record("p", name, "A::0") for name in ("init", "main")]
    prepared = preparation_of(settings(tmp_path), node, None, lambda _: None)
    monkeypatch.setattr(preparation, "read_records", lambda *_: records)
    prepared.pre_start(["A::0"])
    for name, card in (("init", "A"), ("main", "B")):
        assert f"CARD={card}" in device(node, f"p-{name}", tmp_path)["env"]


def test_a_container_waits_while_its_card_has_no_specification(
    node: NodeState, start: Start, tmp_path: Path, prepared: Preparation, events: list[Event]
) -> None:
    written = tmp_path / "cdi" / "nvidia.json"
    content = written.read_text()
    written.unlink()
    node.pods.changed(pod("p", {"main": on("A", 1000)}))
    with pytest.raises(
        StateError, match=r"no CDI specification in .*; run on this machine: nvidia-ctk"
    ):
        start(record("p", "main", "A::0"))
    ((reason, message),) = [(event.reason, event.message) for event in events]
    assert reason == "WaitingForCard"
    assert message.startswith("container main waits: card A: no CDI specification in ")
    assert prepared.waiting == 1
    written.write_text(content)
    start(record("p", "main", "A::0"))
    assert prepared.waiting == 0
    assert "CARD=A" in device(node, "p-main", tmp_path)["env"]


def test_a_container_that_restarts_follows_a_new_specification(
    node: NodeState, start: Start, tmp_path: Path
) -> None:
    """A new driver has other files, and its specification names them."""
    node.pods.changed(pod("p", {"main": on("A", 1000)}))
    start(record("p", "main", "A::0"))
    written = tmp_path / "cdi" / "nvidia.json"
    written.write_text(written.read_text().replace("CARD=A", "CARD=A, DRIVER=2"))
    start(record("p", "main", "A::0"))
    assert "CARD=A, DRIVER=2" in device(node, "p-main", tmp_path)["env"]


def test_a_container_that_restarts_is_not_limited_by_the_driver_yet(
    node: NodeState, start: Start
) -> None:
    """If no agent answers its hook, it starts without the limit that the one before had."""
    node.no_kernel = None
    node.pods.changed(pod("p", {"main": on("A", 1000)}))
    start(record("p", "main", "A::0"))
    (entry,) = node.ledger.entries.values()
    node.ledger.put(msgspec.structs.replace(entry, cgroup="/sys/fs/cgroup/before"))
    start(record("p", "main", "A::0"))
    (entry,) = node.ledger.entries.values()
    assert node.enforcement_of(entry).level == "preload"


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        (
            {},
            "no card was assigned to it, because it was bound without hami-py's scheduler; "
            "delete the pod, so that its controller creates another one; where the webhook is "
            "turned off, with schedulerName hami-scheduler",
        ),
        (
            {ASSIGNMENT: "{"},
            "its assignment cannot be read; see why in the log of the node agent",
        ),
    ],
)
def test_the_reason_why_a_container_waits_names_one_thing_to_do(
    node: NodeState, events: list[Event], start: Start, annotations: dict[str, str], said: str
) -> None:
    metadata = {"uid": "p", "name": "p", "namespace": "ml", "annotations": annotations}
    written = {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}}
    node.pods.changed(msgspec.convert(written, NodePod))
    with pytest.raises(NotYet) as raised:
        start(record("p", "main", "A::0"))
    assert str(raised.value) == f"ml/p container main: {said}"
    assert [each.message for each in events] == [f"container main waits: {said}"]
    assert [(each.reason, each.about.name) for each in events] == [("WaitingForCard", "p")]


def test_a_static_pod_is_told_that_it_gets_no_card(
    node: NodeState, events: list[Event], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mirror on the API server has another UID than the kubelet's record."""
    static = "7e6c2b8a0f5d4e1ab9c3d2e1f0a9b8c7"
    mirror = pod("mirror", {}, annotations={"kubernetes.io/config.mirror": static})
    soon = replace(settings(tmp_path), assignment_s=0.0)
    prepared = preparation_of(soon, node, Path(LIBRARY), events.append)
    monkeypatch.setattr(preparation, "read_records", lambda *_: [record(static, "main", "A::0")])
    with pytest.raises(NotYet, match="the API server has not reported it"):
        prepared.pre_start(["A::0"])
    assert events == []
    node.pods.changed(mirror)
    with pytest.raises(NotYet, match="it is in a static pod"):
        prepared.pre_start(["A::0"])
    assert [(each.reason, each.about.uid) for each in events] == [("WaitingForCard", "mirror")]


def test_a_container_waits_until_its_card_is_free(
    node: NodeState, prepared: Preparation, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.pods.changed(pod("p", {"main": on("B", 6000)}))
    node.pods.changed(pod("q", {"main": on("B", 6000)}))
    start(record("q", "main", "B::0"))
    with pytest.raises(NotYet):
        start(record("p", "main", "B::1"))
    assert prepared.waiting == 1
    node.pods.changed(pod("q", {}, status={"phase": "Succeeded"}))
    node.ledger.remove(["q"])

    def fails(*_: object, **__: object) -> None:
        raise StateError("the slot", "No space left on device", "free some space")

    with monkeypatch.context() as full:
        full.setattr(node.slots, "ensure", fails)
        with pytest.raises(StateError, match="No space"):
            start(record("p", "main", "B::1"))
    start(record("p", "main", "B::1"))
    assert prepared.waiting == 0


def test_a_container_of_a_pod_that_has_ended_does_not_wait(
    node: NodeState, prepared: Preparation, start: Start
) -> None:
    for uid in "pq":
        node.pods.changed(pod(uid, {"main": on("X")}))
        with pytest.raises(NotYet):
            start(record(uid, "main", "A::0"))
    assert prepared.waiting == 2
    node.pods.changed(pod("p", {"main": on("X")}, status={"phase": "Failed"}))
    node.pods.deleted(pod("q", {}))
    assert prepared.waiting == 0


def test_a_pod_that_waits_is_told_once_in_ten_minutes_although_the_free_memory_changes(
    node: NodeState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.pods.changed(pod("p", {"main": on("A")}))
    posted: list[str] = []
    api: Any = SimpleNamespace(post=lambda _, body, **__: posted.append(body["message"]))
    writer = EventWriter(api, "hami-node", "n1")
    prepared = preparation_of(settings(tmp_path), node, None, writer.write)
    monkeypatch.setattr(preparation, "read_records", lambda *_: [record("p", "main", "A::0")])

    def ask(decision: Wait) -> None:
        monkeypatch.setattr(assigned, "decide", lambda *_: decision)
        with pytest.raises(NotYet):
            prepared.pre_start(["A::0"])

    with monkeypatch.context() as patched:
        for second in range(0, 650, 13):
            patched.setattr(events_of_kube.time, "monotonic", lambda now=second: float(now))
            ask(Wait(f"card A has {second} MiB free, and 5000 are needed"))
        ask(Wait("card A is not on this node any more", "delete the pod"))
    writer.start()
    until(lambda: len(posted) == 3, "three events are written")
    writer.stop()
    assert posted == [
        "container main waits: card A has 0 MiB free, and 5000 are needed; "
        "do nothing: the kubelet tries again",
        "container main waits: card A has 611 MiB free, and 5000 are needed; "
        "do nothing: the kubelet tries again",
        "container main waits: card A is not on this node any more; delete the pod",
    ]


SIDECAR = {"initContainers": [{"name": "side", "restartPolicy": "Always"}]}


def sidecar(**ended: int) -> dict[str, Any]:
    """The status of a sidecar."""
    return {"initContainerStatuses": [{"name": "side", "state": {"terminated": ended or None}}]}


def test_a_sidecar_that_restarts_keeps_its_card(node: NodeState, start: Start) -> None:
    mine = {"side": on("B", 7000)}
    node.pods.changed(pod("p", mine, spec=SIDECAR, status=sidecar()))
    node.pods.changed(pod("q", {"main": on("B", 7000)}))
    start(record("p", "side", "B::0"))
    # Between its end and its restart the kubelet reports that it has ended.
    node.pods.changed(pod("p", mine, spec=SIDECAR, status=sidecar(exitCode=0)))
    with pytest.raises(NotYet):
        start(record("q", "main", "B::1"))
    start(record("p", "side", "B::0"))
    assert {slot: entry.cards for slot, entry in node.ledger.entries.items()} == {
        "p-side": (on("B", 7000),)
    }


def test_the_card_of_an_init_container_is_free_when_it_cannot_run_again(
    node: NodeState, start: Start
) -> None:
    mine = {"init": on("B", 7000), "main": on("B", 1000)}
    first = {"initContainers": [{"name": "init"}], "containers": [{"name": "main"}]}
    done = {
        "initContainerStatuses": [{"name": "init", "state": {"terminated": {"exitCode": 0}}}],
        "conditions": [{"type": "Initialized", "status": "True"}],
    }
    node.pods.changed(pod("p", mine, spec=first))
    start(record("p", "init", "B::0"))
    node.pods.changed(pod("q", {"main": on("B", 7000)}))
    with pytest.raises(NotYet):
        start(record("q", "main", "B::1"))
    node.pods.changed(pod("p", mine, spec={**first, "restartPolicy": "Never"}, status=done))
    start(record("p", "main", "B::0"))
    start(record("q", "main", "B::1"))
    assert node.ledger.entries["q-main"].cards == (on("B", 7000),)


GPU = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ({"hami.io/gang": "job"}, "job"),
        ({"hami.io/gang": ""}, None),
        ({}, None),
    ],
    ids=str,
)
def test_the_gang_of_a_pod_is_on_its_container_s_limits_page(
    node: NodeState,
    start: Start,
    tmp_path: Path,
    written: dict[str, str],
    name: str | None,
) -> None:
    node.pods.changed(pod("p", {"main": on("A", 1000)}, spec=GPU, annotations=written))
    start(record("p", "main", "A::0"))
    gang = gang_of_namespace("default", name) if name else None
    page = settings(tmp_path).paths.slots / "p-main" / "limits"
    assert node.ledger.entries["p-main"].gang == name
    assert LimitsPage.open(page).gang() == gang
    # After a reboot the slot is made again, from the ledger alone.
    node.slots.remove("p-main")
    node.pods.changed(pod("p", {"main": on("A", 1000)}, spec=GPU))
    start(record("p", "main", "A::0"))
    assert LimitsPage.open(page).gang() == gang


SHARED = {
    "containers": [
        {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 30}}}
    ]
}


def test_the_share_mode_of_a_pod_is_on_its_container_s_limits_page(
    node: NodeState, start: Start, tmp_path: Path
) -> None:
    soft = {"hami.io/share-mode": "soft"}
    node.pods.changed(pod("p", {"main": on("A", 1000, 30)}, spec=SHARED, annotations=soft))
    node.pods.changed(pod("q", {"main": on("A", 1000, 30)}, spec=SHARED))
    pages = {name: settings(tmp_path).paths.slots / f"{name}-main" / "limits" for name in "pq"}
    for name in pages:
        start(record(name, "main", f"A::{name}"))

    def modes() -> dict[str, str]:
        return {name: LimitsPage.open(page).rows()[0].mode for name, page in pages.items()}

    assert modes() == {"p": "soft", "q": "hard"}
    # After a reboot and a restart of the agent, the slots are made again from the ledger alone.
    node.ledger = Ledger(settings(tmp_path).paths.ledger)
    for name in pages:
        node.slots.remove(f"{name}-main")
        node.pods.changed(pod(name, {"main": on("A", 1000, 30)}, spec=SHARED))
        start(record(name, "main", f"A::{name}"))
    assert modes() == {"p": "soft", "q": "hard"}
    # New limits keep the mode.
    entry = node.ledger.entries["p-main"]
    node.set_limits(msgspec.structs.replace(entry, cards=(on("A", 1000, 50),)))
    assert LimitsPage.open(pages["p"]).rows()[0].share == 50
    assert modes() == {"p": "soft", "q": "hard"}


def test_a_request_that_was_made_invalid_after_admission_is_reported(
    node: NodeState, start: Start, events: list[Event]
) -> None:
    node.pods.changed(pod("p", {"main": on("A")}, spec=GPU, annotations={"hami.io/gang": "a b"}))
    start(record("p", "main", "A::0"))
    assert node.ledger.entries["p-main"].gang is None
    assert [(each.about.name, each.reason) for each in events] == [
        ("p", "RequestUnreadable"),
        ("p", "LimitsEnforced"),
    ]
    assert 'metadata.annotations[hami.io/gang]: "a b" is refused' in events[0].message


def test_slots_stay_until_the_containers_that_run_are_in_a_new_ledger(
    node: NodeState, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.pods.changed(pod("p", {"main": on("A", 7000)}))
    start(record("p", "main", "A::0"))
    node.ledger.remove(["p"])
    prepared = preparation_of(settings(tmp_path), node, None, lambda _: None)

    def fails(*_: object) -> None:
        raise StateError("the kubelet's record", "unexpected end", "check it")

    monkeypatch.setattr(preparation, "read_records", fails)
    with pytest.raises(StateError):
        prepared.adopt()
    release_ended(node, set)
    assert node.slots.names() == {"p-main"}
    monkeypatch.setattr(preparation, "read_records", lambda *_: [record("p", "main", "A::0")])
    prepared.adopt()
    release_ended(node, set)
    assert node.ledger.entries["p-main"].cards == (on("A", 7000),)
    assert node.slots.names() == {"p-main"}


def test_a_whole_card_stays_taken_without_a_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No assignment says which card it was, and the kubelet's devices say another one."""
    of = replace(settings(tmp_path), pods=PodSettings(unassigned="whole-card"))
    node = state(of, "A", "B")
    prepared = preparation_of(of, node, Path(LIBRARY), lambda _: None)
    # The kubelet has picked the same device for each.
    records = [record(uid, "main", "A::0") for uid in "pqr"]
    for uid in "pqr":
        written = {
            "metadata": {"uid": uid, "name": uid},
            "spec": {"containers": [{"name": "main"}]},
        }
        node.pods.changed(msgspec.convert(written, NodePod))

    def start(*of: DeviceRecord) -> None:
        monkeypatch.setattr(preparation, "read_records", lambda *_: of)
        prepared.pre_start(["A::0"])

    start(records[0])
    start(records[1])
    before = {slot: [card.card for card in e.cards] for slot, e in node.ledger.entries.items()}
    assert before == {"p-main": ["A"], "q-main": ["B"]}
    node.ledger.remove(["p", "q"])
    monkeypatch.setattr(preparation, "read_records", lambda *_: records)
    prepared.adopt()
    release_ended(node, set)
    with pytest.raises(NotYet, match="it needs 1 whole cards; 0 are free"):
        start(records[2])
    after = {slot: [card.card for card in e.cards] for slot, e in node.ledger.entries.items()}
    assert after == before


def test_an_event_says_what_enforces_the_limits_of_a_container_once(
    node: NodeState, start: Start, events: list[Event]
) -> None:
    node.pods.changed(pod("p", {"main": on("A", 1000)}))
    start(record("p", "main", "A::0"))
    start(record("p", "main", "A::0"))
    ((reason, is_warning, message),) = [
        (each.reason, each.is_warning, each.message) for each in events
    ]
    assert (reason, is_warning) == ("LimitsEnforced", False)
    assert message == (
        "container main: memory is enforced by preload and time by lease, "
        "because the node offers nothing stronger"
    )


def test_a_container_that_accepts_no_less_than_the_node_offers_waits(
    node: NodeState, start: Start, events: list[Event]
) -> None:
    """The label of the node was changed after the pod was bound, or no scheduler was asked."""
    for name, least in (("p", "kernel"), ("q", "preload")):
        annotations = {"hami.io/isolation": least}
        node.pods.changed(pod(name, {"main": on("A", 1000)}, spec=GPU, annotations=annotations))
    with pytest.raises(NotYet, match=r"pod accepts no less than kernel \(hami.io/isolation\)"):
        start(record("p", "main", "A::0"))
    assert [each.reason for each in events] == ["WaitingForCard"]
    start(record("q", "main", "A::1"))
    assert [*node.ledger.entries] == ["q-main"]


def test_the_cards_are_published_with_the_level_of_the_node_s_mode(node: NodeState) -> None:
    for mode, level in (("share", "none"), ("memory", "preload")):
        # The label counts before the first publication, too.
        labels = {"metadata": {"name": "n1", "labels": {"hami.io/mode": mode}}}
        node.node.changed(msgspec.convert(labels, OwnNode))
        assert {card.level for card in node.published_cards()} == {level}


def test_a_container_on_a_mig_instance_has_its_limit_from_that(
    tmp_path: Path, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = state(settings(tmp_path), "A", "MIG-a")
    levels = {card.uuid: card.level for card in node.published_cards()}
    assert levels == {"A": "preload", "MIG-a": "mig"}
    for name, card in (("p", "MIG-a"), ("q", "A")):
        needs_mig = {"hami.io/isolation": "mig"}
        of = pod(name, {"main": on(card, 8000, 14)}, spec=GPU, annotations=needs_mig)
        node.pods.changed(of)
    kubelet = [record("p", "main", "MIG-a::0"), record("q", "main", "A::0")]
    agent = preparation_of(settings(tmp_path), node, Path(LIBRARY), events.append)
    monkeypatch.setattr(preparation, "read_records", lambda *_: kubelet)
    agent.pre_start(["MIG-a::0"])
    with pytest.raises(NotYet, match="pod accepts no less than mig"):
        agent.pre_start(["A::0"])
    assert events[0].message == (
        "container main: memory is enforced by mig and time by mig, "
        "because its cards are MIG instances"
    )
    (row,) = node.slots.rows("p-main")
    assert (row.uuid, row.memory_limit, row.share) == ("MIG-a", None, None)
