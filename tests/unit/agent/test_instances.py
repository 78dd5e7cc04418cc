"""MIG instances that an agent makes and removes, on the stub, whose own state is the oracle."""

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.mig import TABLES, MigCard, MigDevice
from support.running import Started
from support.stub import StubServer

TABLE = TABLES["a100"]

Place = tuple[str, int, int]
"""Profile, first memory slice, memory slices."""

PLACES: list[Place] = [
    (name, start, row["size"])
    for name, row in TABLE.items()
    for start in row["starts"]
    if "+me" not in name
]


class Node:
    """A node of mode mig with one A100, and its agent, which may be killed at any time."""

    def __init__(self, server: StubServer, folder: Path, root: Path) -> None:
        self.server, self._folder, self._root = server, folder, root
        self.card, (self.uuid,) = MigCard(server).mode(), server.uuids()
        (root / "dev" / "nvidia0").touch()
        self._agent: Started | None = None
        self._ends = ExitStack()

    def send(self, *order: Any) -> None:
        """Tell the agent something, without waiting for what it does."""
        if self._agent is None:
            command = [sys.executable, Path(__file__).with_name("mig_agent.py")]
            path = {"PYTHONPATH": str(Path(__file__).parents[2])}
            started = Started([*command, self._folder, self._root], {**self.server.env, **path})
            self._agent = self._ends.enter_context(started)
        self._agent.tell(json.dumps(order))

    def answer(self) -> dict[str, Any]:
        assert self._agent is not None
        found: dict[str, Any] = json.loads(self._agent.next_line())
        return found

    def ask(self, *order: Any) -> dict[str, Any]:
        self.send(*order)
        return self.answer()

    def kill(self) -> None:
        """Kill the agent. The next order starts another one."""
        if self._agent is not None:
            self._agent.kill()
            self._agent = None

    def lose_ledger(self) -> None:
        (ledger,) = self._folder.rglob("ledger.json")
        ledger.unlink()

    def close(self) -> None:
        self.kill()
        self._ends.close()

    def pod(self, uid: str, place: Place) -> None:
        self.ask("pod", uid, self.uuid, *place)

    def places(self) -> dict[Place, int]:
        """The instances by the stub: how many compute instances each has."""
        return {
            (row["profile"], row["start"], TABLE[row["profile"]]["size"]): len(row["computes"])
            for row in self.card.instances()
        }


@pytest.fixture
def node(stub_server: Callable[..., StubServer], tmp_path: Path) -> Iterator[Node]:
    root = tmp_path / "root"
    root.mkdir()
    found = Node(stub_server("a100", root=root), tmp_path / "node", root)
    (tmp_path / "node").mkdir()
    yield found
    found.close()


SMALL: Place = ("1g.5gb", 2, 1)
LARGE: Place = ("3g.20gb", 4, 4)


def test_an_instance_is_made_for_a_container_and_removed_after_it(node: Node) -> None:
    node.pod("p", SMALL)
    assert node.places() == {}
    said = node.ask("start", "p")
    assert said["error"] is None
    assert node.places() == {SMALL: 1}
    (device,) = node.card.devices()
    assert said["pages"] == {"p-main": [device.uuid]}
    assert said["ledger"] == {"p": [device.uuid]}
    assert said["cards"] == [node.uuid], "the GPU is the card, and the instance is none"
    # It starts again, also under another agent.
    node.kill()
    node.pod("p", SMALL)
    said = node.ask("start", "p")
    assert (said["error"], said["ledger"]) == (None, {"p": [device.uuid]})
    node.ask("ended", "p")
    said = node.ask("follow")
    assert (said["ledger"], said["devices"]) == ({}, [])
    assert node.places() == {}


def test_an_instance_is_known_without_a_ledger(node: Node) -> None:
    node.pod("p", SMALL)
    before = node.ask("start", "p")["ledger"]
    node.kill()
    node.lose_ledger()
    node.pod("p", SMALL)
    assert node.ask("adopt", "p")["ledger"] == before
    node.ask("ended", "p")
    assert node.ask("follow")["ledger"] == {}
    assert node.places() == {}


def test_an_instance_whose_compute_instance_failed_is_completed_or_removed(node: Node) -> None:
    for uid in ("p", "q"):
        node.card.fail()
        node.pod(uid, SMALL)
        assert "1g.5gb at 2" in node.ask("start", uid)["error"]
        assert node.places() == {SMALL: 0}
        if uid == "p":
            assert node.ask("start", uid)["error"] is None
            assert node.places() == {SMALL: 1}
        node.ask("ended", uid)
        node.ask("follow")
        assert node.places() == {}


def test_others_instances_are_masked_and_never_touched(node: Node) -> None:
    theirs = node.card.create(TABLE["2g.10gb"]["id"], 2)
    assert node.ask("follow")["taken"] == {node.uuid: [2, 3]}
    node.pod("p", SMALL)
    said = node.ask("start", "p")
    assert "an instance of another program in place of 1g.5gb at 2" in said["error"]
    assert said["ledger"] == {}
    node.ask("ended", "p")
    node.ask("follow")
    assert [each.uuid for each in node.card.devices()] == [theirs.uuid]
    node.card.destroy(theirs)
    assert node.ask("follow")["taken"] == {node.uuid: []}
    node.pod("q", SMALL)
    assert node.ask("start", "q")["error"] is None
    # After a reset, another program makes one at the same place.
    node.card.reset()
    node.card.create(TABLE["1g.5gb"]["id"], 2)
    (theirs,) = node.card.devices()
    assert "an instance of another program in place of" in node.ask("start", "q")["error"]
    node.ask("ended", "q")
    assert node.ask("follow")["ledger"] == {}
    assert node.card.devices() == [theirs]


def test_an_instance_that_others_made_since_the_last_round_is_not_taken(node: Node) -> None:
    node.ask("follow")
    theirs = node.card.create(TABLE["1g.5gb"]["id"], 2)
    node.pod("p", SMALL)
    assert "an instance of another program" in node.ask("start", "p")["error"]
    node.ask("ended", "p")
    assert node.ask("follow")["ledger"] == {}
    assert node.card.devices() == [theirs]
    # A GPU instance without a compute instance at the place of one that a reset has removed.
    node.pod("q", LARGE)
    assert node.ask("start", "q")["error"] is None
    node.card.reset()
    node.card.create_bare(TABLE["3g.20gb"]["id"], 4)
    node.ask("ended", "q")
    assert node.ask("follow")["ledger"] == {}
    assert node.places() == {LARGE: 0}


def test_an_instance_of_a_dead_pod_with_processes_blocks_its_place(node: Node) -> None:
    node.pod("p", SMALL)
    node.ask("start", "p")
    node.ask("alive", "p")
    node.ask("ended", "p")
    assert node.ask("follow")["taken"] == {node.uuid: [2]}
    assert node.places() == {SMALL: 1}
    node.ask("alive")
    said = node.ask("follow")
    assert (said["taken"], said["ledger"]) == ({node.uuid: []}, {})


def test_an_instance_in_use_stays_and_blocks_its_place(node: Node) -> None:
    node.pod("p", SMALL)
    node.ask("start", "p")
    (device,) = node.card.devices()
    node.card.hold(device.instance)
    node.ask("ended", "p")
    assert node.ask("follow")["taken"] == {node.uuid: [2]}
    assert node.ask("follow")["events"] == ["LimitsEnforced", "InstanceStays"]
    node.pod("q", SMALL)
    said = node.ask("start", "q")
    assert "1g.5gb at 2 of default/p still" in said["error"]
    node.card.hold(device.instance, False)
    assert node.ask("follow")["taken"] == {node.uuid: []}
    assert node.ask("start", "q")["error"] is None
    assert [*node.places()] == [SMALL]


def test_an_instance_that_a_reset_has_removed_is_made_again(node: Node) -> None:
    node.pod("p", SMALL)
    node.ask("start", "p")
    before = node.card.devices()
    node.card.reset()
    assert node.places() == {}
    said = node.ask("start", "p")
    (after,) = node.card.devices()
    assert after not in before
    assert (said["pages"], said["ledger"]) == ({"p-main": [after.uuid]}, {"p": [after.uuid]})


def test_a_gpu_with_instances_keeps_its_mode(node: Node) -> None:
    theirs = node.card.create(TABLE["3g.20gb"]["id"], 4)
    node.pod("p", SMALL)
    node.ask("start", "p")
    # The next agent finds the instance like others.
    node.kill()
    node.pod("p", SMALL)
    node.ask("mode", "full")
    assert node.ask("follow")["cards"] == [node.uuid]
    node.ask("ended", "p")
    node.ask("follow")
    assert node.ask("follow")["cards"] == [theirs.uuid]


@pytest.mark.parametrize("seed", range(1))
def test_random_rounds_leave_no_instance_and_touch_none_of_others(node: Node, seed: int) -> None:
    Rounds(node, seed).run(30)


@pytest.mark.tier("torture")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(10, 15))
def test_many_random_rounds(node: Node, seed: int) -> None:
    Rounds(node, seed).run(200)


class Rounds:
    """Pods come and go, and so do others' instances; the agent and the machine die.

    A pod is assigned a place that no other pod has, by what the agent publishes, as the scheduler
    does.
    """

    def __init__(self, node: Node, seed: int) -> None:
        self.node, self.chance = node, random.Random(seed)  # noqa: S311
        self.pods: dict[str, Place] = {}
        self.theirs: dict[Place, MigDevice] = {}
        self.held: list[int] = []

    def run(self, rounds: int) -> None:
        actions = [self.create] * 4 + [self.end] * 3
        actions += [self.change_theirs, self.node.kill, self.hold, self.boot]
        for _ in range(rounds):
            self.chance.choice(actions)()
            self.compare()
        for instance in self.held:
            self.node.card.hold(instance, False)
        for uid in [*self.pods]:
            del self.pods[uid]
            self.node.ask("ended", uid)
        self.follow()
        assert self.node.ask("follow")["ledger"] == {}
        assert {*self.node.places()} == {*self.theirs}

    def follow(self) -> dict[str, Any]:
        """A round of the agent, which has learned of the pods from the API server."""
        for uid, place in self.pods.items():
            self.node.pod(uid, place)
        return self.node.ask("follow")

    def free(self) -> list[Place]:
        taken = {each for slices in self.follow()["taken"].values() for each in slices}
        taken |= {each for place in self.pods.values() for each in slices_of(place)}
        return [place for place in PLACES if not slices_of(place) & taken]

    def create(self) -> None:
        free, fails = self.free(), self.chance.random() < 0.2
        if free:
            uid = f"pod-{self.chance.random()}"
            self.pods[uid] = self.chance.choice(free)
            self.node.pod(uid, self.pods[uid])
            if fails:
                self.node.card.fail()
            self.node.send("start", uid)
            if fails:
                assert "Unknown Error" in self.node.answer()["error"]
            else:
                self.answer_or_die()

    def end(self) -> None:
        if self.pods:
            uid = self.chance.choice([*self.pods])
            del self.pods[uid]
            self.node.ask("ended", uid)
            self.node.send("follow")
            self.answer_or_die()

    def answer_or_die(self) -> None:
        if self.chance.random() < 0.3:
            time.sleep(self.chance.random() * 0.02)
            self.node.kill()
        else:
            self.node.answer()

    def change_theirs(self) -> None:
        if self.theirs and self.chance.random() < 0.5:
            self.node.card.destroy(self.theirs.pop(self.chance.choice([*self.theirs])))
        elif free := self.free():
            place = self.chance.choice(free)
            self.theirs[place] = self.node.card.create(TABLE[place[0]]["id"], place[1])

    def hold(self) -> None:
        """A process that no list shows has an instance of ours open, or not any more."""
        theirs = {device.instance for device in self.theirs.values()}
        ours = [device.instance for device in self.node.card.devices()]
        ours = [instance for instance in ours if instance not in theirs]
        if self.held:
            self.node.card.hold(self.held.pop(), False)
        elif ours:
            self.held.append(self.chance.choice(ours))
            self.node.card.hold(self.held[0])

    def boot(self) -> None:
        self.node.kill()
        if not self.held:
            self.node.card.reset()
            self.theirs.clear()

    def compare(self) -> None:
        """The containers start (again), and then the stub has their instances and others'."""
        self.follow()
        for uid in self.pods:
            said = self.node.ask("start", uid)
            assert said["error"] is None, said
        said, there = self.follow(), self.node.places()
        owned = {place for place in there if place not in self.theirs}
        stuck = owned - {*self.pods.values()}
        assert {*self.pods.values()} <= owned
        assert len(stuck) <= len(self.held)
        assert {*self.theirs} <= {*there}
        assert all(there.values())
        masked = {each for place in (*self.theirs, *stuck) for each in slices_of(place)}
        assert said["taken"] == {self.node.uuid: sorted(masked)}


def slices_of(place: Place) -> set[int]:
    return {*range(place[1], place[1] + place[2])}
