"""The requests of users, as they come through the socket."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hami_py.machine import overview
from hami_py.machine.listener import LARGEST, Peer
from hami_py.machine.policy import Grant, Policy
from hami_py.machine.requests import PAGE, Answers
from hami_py.model import LimitRequest, SliceProcess
from hami_py.slices.processes import uid_of
from support.launcher import until
from support.running import Started
from support.users import User
from unit.shared_machine.test_register import ALICE, BOB, GIB, Machine

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="the service runs as root")


class Asking:
    """Asks as a user."""

    def __init__(self, folder: Path) -> None:
        self.machine = Machine(folder)
        views = overview.Overview(self.machine.paths.slots, self.machine.library)
        self._answers = Answers(
            self.machine.register, views, self.machine.usage, self.machine.devices
        )

    def __call__(self, do: str, uid: int = ALICE, **fields: object) -> dict[str, Any]:
        request = json.dumps({"do": do, **fields}).encode()
        found = json.loads(self._answers.answer(Peer(os.getpid(), uid), request))
        assert isinstance(found, dict)
        return found

    def raw(self, packet: bytes, uid: int = ALICE) -> dict[str, Any]:
        found = json.loads(self._answers.answer(Peer(os.getpid(), uid), packet))
        assert isinstance(found, dict)
        return found


@pytest.fixture
def ask(tmp_path: Path) -> Asking:
    return Asking(tmp_path / "machine")


def test_a_slice_from_its_creation_to_its_end(ask: Asking) -> None:
    made = ask("create", limits={"memory": GIB, "share": 10}, name="train", keep=True)
    directory = Path(made["directory"])
    assert (directory.is_dir(), made["notes"]) == (True, [])
    assert ask("hold", slice="train") == {"directory": str(directory)}
    assert ask("set", slice="train", limits={"memory": 2 * GIB}) == {"notes": []}
    (shown,) = ask("list")["slices"]
    assert (shown["id"], shown["name"], shown["cards"][0]["memory_limit"]) == (
        directory.name,
        "train",
        2 * GIB,
    )
    # It was held twice.
    assert ask("release", slice=directory.name) == {}
    assert ask("release", slice=directory.name) == {}
    assert ask("remove", slice="train") == {}
    assert not directory.exists()


@pytest.mark.parametrize(
    ("packet", "says"),
    [
        (b"", "request"),
        (b"{}", "do"),
        (b"[1]", "Expected"),
        (b'{"do":"reboot"}', "reboot"),
        (b'{"do":"hold"}', "slice"),
        (b'{"do":"hold","slice":1}', "Expected `str`"),
        (b'{"do":"create","root":true}', "root"),
        (b'{"do":"create","limits":{"memory":"4GiB"}}', "memory"),
        (b'{"do":"create","name":"a/b"}', "name"),
        (b"\xff\xfe", "request"),
        (b" " * (LARGEST + 1), "16385 bytes"),
    ],
)
def test_a_bad_request_is_refused_with_its_reason(ask: Asking, packet: bytes, says: str) -> None:
    error = ask.raw(packet)["error"]
    assert error["kind"] == "InvalidValue"
    assert says in " ".join(error["args"]), error


def test_a_refusal_has_the_parts_of_its_error(ask: Asking) -> None:
    assert ask("hold", slice="x")["error"]["kind"] == "UnknownSlice"
    made = ask("create", name="held")
    error = ask("remove", slice="held")["error"]
    assert error == {"kind": "SliceInUse", "args": ["slice held", [os.getpid()]]}, made


def test_kept_slices_are_devices_as_soon_as_they_are_made(ask: Asking) -> None:
    (ask.machine.paths.cdi[1]).mkdir()
    devices = [{"name": uuid, "containerEdits": {}} for uuid in ("GPU-a", "GPU-b")]
    driver = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    (ask.machine.paths.cdi[1] / "nvidia.json").write_text(json.dumps(driver))
    written = ask.machine.paths.cdi[0] / "hami-slices.json"
    made = ask("create", limits={"memory": GIB, "share": 10}, name="train", keep=True)
    assert f'"{ALICE}.train"' in written.read_text()
    (device,) = ask("devices")["devices"]
    assert device == {
        **{"name": f"hami.io/slice={ALICE}.train", "slice": "train", "problem": None},
        **{"slot": Path(made["directory"]).name, "cards": ["GPU-a", "GPU-b"]},
        "library": str(ask.machine.library),
    }
    ask("release", slice="train")
    ask("remove", slice="train")
    assert (written.exists(), ask("devices")["devices"]) == (False, [])


def test_a_long_list_comes_in_several_answers(ask: Asking) -> None:
    made = []
    for at in range(24):
        fields = {"command": ["x" * 4000], "name": f"s{at}", "keep": True, "devices": ["0"]}
        uid = ALICE + at % 8
        made.append(
            Path(ask("create", uid, limits={"memory": GIB, "share": 1}, **fields)["directory"])
        )
    found: list[dict[str, Any]] = []
    after, answers = None, 0
    while answers == 0 or after is not None:
        answer = ask("list", 0, everyone=True, after=after)
        assert len(json.dumps(answer)) < 2 * PAGE
        found, after, answers = [*found, *answer["slices"]], answer["after"], answers + 1
    assert sorted(each["id"] for each in found) == sorted(each.name for each in made)
    assert answers > 1
    assert len(ask("list", 0)["slices"]) == 0, "root has none of its own"
    assert len(ask("list", ALICE, everyone=True)["slices"]) == 3


def test_a_slice_with_many_processes_does_not_stop_the_list(
    ask: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask("create", limits={"memory": GIB, "share": 1}, name="many")
    crowd = tuple(SliceProcess(pid, ("x" * 300,), ()) for pid in range(2000))
    info = overview.describe
    monkeypatch.setattr(overview, "describe", lambda *a: replace(info(*a), processes=crowd))
    (shown,) = ask("list")["slices"]
    assert 100 < len(shown["processes"]) < 2000


def test_an_environment_puts_a_process_only_into_a_slice_of_its_user(
    ask: Asking, tmp_path: Path
) -> None:
    directory = ask("create", limits={"memory": GIB, "share": 1}, name="one")["directory"]
    bob = User(BOB, tmp_path / "bob")
    with Started(bob.command("sleep", "60"), {"HAMI_SLICE": directory}) as claims:
        until(lambda: uid_of(claims.pid) == BOB, "it is Bob's")
        (shown,) = ask("list")["slices"]
        assert claims.pid not in [each["pid"] for each in shown["processes"]]
        ask("release", slice="one")
    assert not Path(directory).exists()


def test_a_default_slice_is_shown_with_the_cards_that_its_user_may_use(ask: Asking) -> None:
    ask.machine.policy = Policy(default=Grant(LimitRequest(2 * GIB), ("1",)))
    ask.machine.register.default(ALICE)
    (shown,) = ask("list")["slices"]
    assert [card["index"] for card in shown["cards"]] == [1]


@pytest.mark.parametrize("number", [-(24 << 30), 0, 1 << 64, 1 << 80])
def test_numbers_that_no_option_has_are_refused(ask: Asking, number: int) -> None:
    ask("create", limits={"memory": GIB, "share": 10}, name="one")
    before = ask.machine.paths.ledger.read_bytes()
    for limits in (
        {"memory": number},
        {"memory": {"0": number}},
        {"share": number},
        {"share": 101},
        {"share": {"GPU-a": number}},
    ):
        for do, more in (("set", {"slice": "one"}), ("create", {})):
            assert ask(do, limits=limits, **more)["error"]["kind"] == "InvalidValue"
    assert ask.machine.paths.ledger.read_bytes() == before
    if number:
        assert "error" in ask("account", since="2026-11", after=["x", number])
