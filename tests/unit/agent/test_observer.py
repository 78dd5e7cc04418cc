"""Processes on the cards that are reported with the name of their pod."""

import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from msgspec.structs import replace

from hami_py._native import FORMAT
from hami_py.agent import reports
from hami_py.agent.state import NodeState
from hami_py.errors import DriverError
from hami_py.gpu.inventory import Inventory
from hami_py.gpu.processes import CardProcess
from hami_py.kube import Event
from hami_py.model.pods.wire import Card
from hami_py.node import observer
from hami_py.node.drift import Kind
from support.running import Started
from unit.agent.build import LIBRARY, Reporting, entry, pod, settings, state
from unit.node.build import on

ENTRY = entry("p", on("A"))


@pytest.fixture
def node(tmp_path: Path) -> NodeState:
    """A node with a card."""
    return state(settings(tmp_path), "A")


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """The containers that are killed."""
    found: list[tuple[int, str]] = []
    monkeypatch.setattr(reports, "kill_container", lambda *key: found.append(key))
    return found


@pytest.fixture
def slot(node: NodeState, tmp_path: Path) -> Path:
    """That of the pod p, which runs on the card."""
    node.pods.changed(pod("p", {"main": on("A")}))
    node.ledger.put(ENTRY)
    node.prepare(ENTRY)
    return settings(tmp_path).paths.slots / "p"


def test_a_damaged_account_hides_no_program(node: NodeState, slot: Path) -> None:
    """A tenant can truncate it, and then start a program without the library."""
    os.truncate(slot / "account", 0)
    written: list[Event] = []
    seen = Reporting(node, written.append)
    for _ in range(2):
        seen.look([CardProcess("A", os.getpid(), 1 << 20)])
    assert [(event.about.name, event.reason) for event in written] == [("p", "BypassesLimits")]


@pytest.mark.parametrize("library", [LIBRARY, LIBRARY.replace(f"/{FORMAT}-", "/99-")])
def test_a_container_is_not_killed_because_the_agent_cannot_read_its_account(
    node: NodeState, slot: Path, ended: list[tuple[int, str]], library: str
) -> None:
    """For lack of descriptors, for example, or in an older agent than that of its start."""
    account = slot / "account"
    node.ledger.put(replace(ENTRY, library=library))
    if library == LIBRARY:
        account.unlink()
        # The error of the system is ELOOP, for every user.
        account.symlink_to(account)
    else:
        account.write_bytes(b"of a later format".ljust(account.stat().st_size, b"\0"))
    seen = Reporting(node, killed=("bypass",))
    for _ in range(2):
        seen.look([CardProcess("A", os.getpid(), 1 << 20)])
    assert (ended, seen.found) == ([], [])


EXECUTES = """
import os, sys
print("before", flush=True)
sys.stdin.readline()
os.execv(sys.executable, [sys.executable, "-c", "print('after', flush=True); input()"])
"""


def test_what_a_process_has_mapped_is_read_again_after_it_has_executed_a_program(
    node: NodeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its PID and its start time, and the new program may avoid the library."""
    read: list[int] = []

    def mapped(pid: int, _: int) -> frozenset[int]:
        read.append(pid)
        return frozenset()

    monkeypatch.setattr(observer, "mapped_files", mapped)
    node.ledger.put(entry("p", on("A"), library=""))
    seen = Reporting(node)
    with Started([sys.executable, "-c", EXECUTES], {}) as process:
        process.wait_for("before")
        looks = [CardProcess("A", process.pid, 1 << 20)]
        for _ in range(3):
            seen.look(looks)
        assert read == [process.pid]
        process.tell("go on")
        process.wait_for("after")
        for _ in range(3):
            seen.look(looks)
        assert read == [process.pid] * 2


RUNS = "print('runs', flush=True); input()"


def test_a_process_that_ends_is_not_reported_again(node: NodeState) -> None:
    """Until its parent waits for it, it is there, without a command. Its memory counts."""
    node.pods.changed(pod("p", {}))
    written: list[Event] = []
    seen = Reporting(node, written.append)
    with Started([sys.executable, "-c", RUNS], {}) as process:
        process.wait_for("runs")
        looks = [CardProcess("A", process.pid, 1 << 20)]
        for _ in range(2):
            seen.look(looks)
        os.kill(process.pid, signal.SIGKILL)
        # As waitid(2): it has ended, and stays there.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        for _ in range(2):
            seen.look(looks)
        assert seen.beyond == {("p", "A"): 1 << 20}
    assert [event.reason for event in written] == ["UsesUnallocatedCard"]
    assert f"process {process.pid} ({sys.executable} -c {RUNS})" in written[0].message


@pytest.mark.usefixtures("slot")
@pytest.mark.parametrize("killed", [(), ("covered",), ("bypass",)])
def test_a_container_is_killed_only_for_a_finding_that_was_named(
    node: NodeState, ended: list[tuple[int, str]], killed: tuple[Kind, ...]
) -> None:
    written: list[Event] = []
    seen = Reporting(node, written.append, killed=killed)
    seen.look([CardProcess("A", os.getpid(), 1 << 20)])
    assert ended == [], "one look is not enough"
    seen.look([CardProcess("A", os.getpid(), 1 << 20)])
    assert ["were killed" in each.message for each in written] == [killed == ("bypass",)]
    assert ended == ([(os.getpid(), "p")] if killed == ("bypass",) else [])


def test_a_pod_that_holds_more_than_its_limits_is_reported(node: NodeState) -> None:
    """Whatever the way: dlmopen loads a second driver, past the library."""
    node.pods.changed(pod("p", {"main": on("A", 1000)}))
    node.ledger.put(entry("p", on("A", 1000), library=""))
    written: list[Event] = []
    seen = Reporting(node, written.append)
    for mib, reported in ((1050, 0), (1050, 0), (3000, 0), (1000, 0), (3000, 0), (3000, 1)):
        seen.look([CardProcess("A", os.getpid(), mib << 20)])
        over = [event.about.name for event in written if event.reason == "ExceedsLimits"]
        assert over == ["p"] * reported, mib
    assert seen.beyond == {("p", "A"): 2000 << 20}


def test_a_card_that_answers_late_is_published(
    node: NodeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = tuple(Card(uuid, index, "A100", 8000) for index, uuid in enumerate("AB"))
    node.cards.add(Inventory(both[:1], {}, "1", {1: "GPU is lost"}))
    monkeypatch.setattr(observer, "_READ_AGAIN_S", 0.0)
    monkeypatch.setattr(observer, "session", nullcontext)
    monkeypatch.setattr(observer, "memory_used", dict)
    monkeypatch.setattr(observer, "card_processes", list)
    monkeypatch.setattr(observer, "inventory", lambda _: Inventory(both, {}, "1", {}))
    changes: list[None] = []
    seen = Reporting(node, changed=lambda: changes.append(None))
    seen.observe()
    assert len(changes) == 1
    assert [card.uuid for card in node.cards.all] == ["A", "B"]
    assert node.cards.are_complete


def test_a_card_is_not_taken_to_answer_while_nvml_fails(
    node: NodeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "session", nullcontext)
    monkeypatch.setattr(observer, "memory_used", lambda: {"A": 1 << 30})
    monkeypatch.setattr(observer, "card_processes", list)
    seen = Reporting(node)
    seen.observe()
    assert seen.used == {"A": 1 << 30}

    def fails() -> None:
        raise DriverError("NVML", "GPU is lost", "check `nvidia-smi`")

    monkeypatch.setattr(observer, "memory_used", fails)
    with pytest.raises(DriverError):
        seen.observe()
    assert seen.used == {}
