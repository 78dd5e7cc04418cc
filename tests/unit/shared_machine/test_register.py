"""The slices of the machine's users, on a directory of this test."""

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hami_py._native import FORMAT, LimitsPage
from hami_py.errors import (
    HamiError,
    InvalidValue,
    SliceInUse,
    StateError,
    UnknownCard,
    UnknownSlice,
)
from hami_py.gpu.inventory import Inventory
from hami_py.machine import users
from hami_py.machine.containers import SliceDevices
from hami_py.machine.listener import Peer
from hami_py.machine.policy import Grant, Policy
from hami_py.machine.register import Register
from hami_py.machine.slice_slots import SliceSlots
from hami_py.machine.usage import Usage
from hami_py.model import LimitRequest
from hami_py.model.cards import DriverMemory
from hami_py.model.pods.wire import Card
from hami_py.node.cards import Cards
from hami_py.node.ledger import Ledger
from hami_py.node.paths import Paths
from hami_py.node.slots import Slots
from hami_py.slices.record import read_record
from support.running import Started
from support.users import User

GIB = 1 << 30
ALICE, BOB = 61_001, 61_002
STUDENT = Grant(LimitRequest(8 * GIB, 30), None, 4, "[default]")

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="the service runs as root")


class Machine:
    """A register on disk, which can be opened again as after a restart or a reboot."""

    def __init__(self, folder: Path) -> None:
        cdi = (folder / "cdi", folder / "nvidia")
        self.paths = Paths(folder / "run", folder / "state", cdi=cdi)
        for each in (folder, self.paths.runtime, self.paths.state):
            each.mkdir(exist_ok=True)
        for each in list(self.paths.runtime.parents)[:-2]:
            each.chmod(0o755)
        self.library = self.paths.state / "library" / f"{FORMAT}-x" / "libvgpu.so"
        self.library.parent.mkdir(parents=True)
        self.library.write_bytes(b"library")
        self.cards = Cards()
        found = tuple(Card(uuid, at, "A100", 40_000) for at, uuid in enumerate(("GPU-a", "GPU-b")))
        self.cards.add(Inventory(found, {"GPU-a": DriverMemory(1 << 28, 2 << 20)}, "1", {}))
        self.policy = Policy(default=STUDENT)
        for uid in range(ALICE, ALICE + 10):
            users._found[uid] = users.User(uid, str(uid)), float("inf")
        self.open()

    def open(self, before: Policy | None = None) -> None:
        """As a service does that starts, beside the policy that held when it ended."""
        self.ledger, self.slots = Ledger(self.paths.ledger), Slots(self.paths)
        sizes = {card.uuid: card.memory_mib << 20 for card in self.cards.all}
        self.usage = Usage(self.paths.state / "usage", self.ledger, self.slots, lambda: sizes)
        self.register = Register(
            self.paths.slots,
            cards=self.cards,
            ledger=self.ledger,
            slots=self.slots,
            library=self.library,
            policy=lambda: self.policy,
            before=before,
            count=self.usage.look,
        )
        self.register.restore()
        self.devices = SliceDevices(self.paths.cdi, self.paths.slots, self.ledger)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


def me(uid: int = ALICE) -> Peer:
    """This process, taken for a user's."""
    return Peer(os.getpid(), uid)


def test_a_slice_has_what_was_granted_and_says_so(machine: Machine) -> None:
    wanted = LimitRequest({"GPU-b": 2 * GIB}, mode="hard")
    slot, notes = machine.register.create(
        me(), wanted, command=("train",), devices=("1",), name="t"
    )
    assert notes == ()
    (row,) = LimitsPage.open(slot / "limits").rows()
    assert (row.uuid, row.memory_limit, row.share) == ("GPU-b", 2 * GIB, 30)
    record = read_record(slot)
    assert record is not None
    assert (record.name, record.command, record.devices) == ("t", ("train",), ("GPU-b",))
    assert (slot / "libvgpu.so").resolve() == machine.library
    assert (slot / "chosen-cards").read_text() == "GPU-b\n"


def test_only_root_and_its_user_may_enter_a_slot_and_nobody_adds_to_it(
    machine: Machine, tmp_path: Path
) -> None:
    slot, _ = machine.register.create(me(), LimitRequest())
    alice, bob = User(ALICE, tmp_path / "alice"), User(BOB, tmp_path / "bob")

    def tries(path: Path, flags: int) -> Callable[[], str]:
        def attempt() -> str:
            try:
                os.close(os.open(path, flags))
            except OSError as error:
                return type(error).__name__
            return "may"

        return attempt

    for name, flags, expected in (
        ("limits", os.O_RDONLY, "may"),
        ("limits", os.O_RDWR, "PermissionError"),
        ("grants", os.O_RDWR, "PermissionError"),
        ("account", os.O_RDWR, "may"),
        ("new", os.O_RDWR | os.O_CREAT, "PermissionError"),
    ):
        assert alice.call(tries(slot / name, flags)) == expected, name
        assert bob.call(tries(slot / name, flags)) == "PermissionError", name
    assert stat.S_IMODE((slot / "account").stat().st_mode) == 0o666


def test_a_users_slices_stay_within_the_grant_together(machine: Machine) -> None:
    register = machine.register
    register.create(me(), LimitRequest(5 * GIB, 10))
    with pytest.raises(InvalidValue, match="leaves you 3GiB"):
        register.create(me(), LimitRequest(4 * GIB))
    second, _ = register.create(me(), LimitRequest(3 * GIB, 20), name="second")
    register.create(me(BOB), LimitRequest(8 * GIB))
    with pytest.raises(InvalidValue, match="gpumem"):
        register.set_limits(me(), "second", LimitRequest(4 * GIB))
    register.set_limits(me(), "second", LimitRequest(2 * GIB))
    rows = LimitsPage.open(second / "limits").rows()
    assert [(row.memory_limit, row.share) for row in rows] == [(2 * GIB, 20)] * 2
    with pytest.raises(InvalidValue, match="name"):
        register.create(me(), LimitRequest(1 * GIB, 1), name="second")


def test_limits_are_changed_by_the_names_of_cards(machine: Machine) -> None:
    register = machine.register
    slot, _ = register.create(me(), LimitRequest(2 * GIB, 10), name="one")
    register.set_limits(me(), "one", LimitRequest({"1": 3 * GIB}))
    register.set_limits(me(0), "one", LimitRequest({"GPU-a": 30 * GIB}))
    rows = LimitsPage.open(slot / "limits").rows()
    assert [row.memory_limit for row in rows] == [30 * GIB, 3 * GIB], "root may give more"
    with pytest.raises(UnknownCard, match="7"):
        register.set_limits(me(), "one", LimitRequest({"7": GIB}))
    with pytest.raises(InvalidValue, match="None"):
        register.set_limits(me(), "one", LimitRequest())


def test_limits_that_cannot_be_written_are_as_before(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot, _ = machine.register.create(me(), LimitRequest(2 * GIB, 10), name="one")
    before = machine.ledger.entries

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Slots, "set_limits", fails)
    with pytest.raises(StateError, match="No space left"):
        machine.register.set_limits(me(), "one", LimitRequest(GIB))
    assert machine.ledger.entries == before
    assert LimitsPage.open(slot / "limits").rows()[0].memory_limit == 2 * GIB


def test_slices_inside_a_slice_have_a_part_of_it_and_are_counted(machine: Machine) -> None:
    outer, _ = machine.register.create(me(), LimitRequest(8 * GIB, 30), name="outer")
    around = [str(outer)]
    for number in range(3):
        machine.register.create(me(), LimitRequest(6 * GIB), name=f"{number}", around=around)
    machine.register.set_limits(me(), "1", LimitRequest(7 * GIB))
    with pytest.raises(InvalidValue, match="leaves you 8GiB"):
        machine.register.set_limits(me(), "1", LimitRequest(9 * GIB))
    with pytest.raises(StateError, match="allows 4"):
        machine.register.create(me(), LimitRequest(GIB), around=around)


def test_a_slice_of_another_user_is_unknown(machine: Machine) -> None:
    slot, _ = machine.register.create(me(), LimitRequest(), name="mine")
    for call in (
        lambda: machine.register.hold(me(BOB), "mine"),
        lambda: machine.register.release(me(BOB), slot.name),
        lambda: machine.register.remove(me(BOB), slot.name),
        lambda: machine.register.set_limits(me(BOB), slot.name[:8], LimitRequest(GIB)),
        lambda: machine.register.hold(me(), ""),
    ):
        with pytest.raises(UnknownSlice):
            call()
    assert [each.name for each in machine.register.visible(me())] == ["mine"]
    assert machine.register.visible(me(BOB)) == []
    assert len(machine.register.visible(me(0))) == 1


def test_a_slice_ends_with_its_last_holder_unless_it_is_kept(machine: Machine) -> None:
    register = machine.register
    with Started(["sleep", "60"], {}) as other:
        slot, _ = register.create(Peer(other.pid, ALICE), LimitRequest(GIB, 1), name="one")
        # Twice, as by two objects of the Python API.
        register.hold(me(), "one")
        kept, _ = register.create(me(), LimitRequest(GIB, 1), name="kept", keep=True)
        register.hold(me(), "one")
        with pytest.raises(SliceInUse, match=str(other.pid)):
            register.remove(me(), "one")
    register.end_unused()
    register.release(me(), slot.name)
    assert slot.is_dir(), "this process holds it"
    register.release(me(), slot.name)
    register.release(me(), kept.name)
    assert (slot.exists(), kept.exists()) == (False, True)
    register.remove(me(), "kept")
    assert (kept.exists(), machine.ledger.entries) == (False, {})


def test_a_program_in_a_slice_keeps_it(machine: Machine) -> None:
    slot, _ = machine.register.create(me(), LimitRequest())
    with Started(["sleep", "60"], {"HAMI_SLICE": str(slot)}):
        machine.register.release(me(), slot.name)
        assert slot.is_dir()
    machine.register.end_unused()
    assert not slot.exists()


def test_kept_slices_return_after_a_reboot_with_their_paths(machine: Machine) -> None:
    with Started(["sleep", "60"], {}) as other:
        gone, _ = machine.register.create(Peer(other.pid, ALICE), LimitRequest(GIB, 1))
    kept, _ = machine.register.create(me(), LimitRequest(2 * GIB, 1), name="kept", keep=True)
    before = [row.memory_limit for row in LimitsPage.open(kept / "limits").rows()]
    os.system(f"rm -rf {machine.paths.slots}")  # noqa: S605 - as on a tmpfs
    machine.open()
    assert [row.memory_limit for row in LimitsPage.open(kept / "limits").rows()] == before
    assert not gone.exists()
    inode = (kept / "account").stat().st_ino
    machine.open()
    assert (kept / "account").stat().st_ino == inode, "one that works is kept"


def test_a_process_that_the_service_does_not_see_holds_nothing(machine: Machine) -> None:
    with pytest.raises(StateError, match="not seen"):
        machine.register.create(Peer(0, ALICE), LimitRequest())
    assert machine.ledger.entries == {}


def test_what_cannot_be_created_leaves_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "account")

    monkeypatch.setattr(os, "setxattr", full)
    with pytest.raises(HamiError, match="No space left"):
        machine.register.create(me(), LimitRequest())
    assert (machine.ledger.entries, list(machine.paths.slots.iterdir())) == ({}, [])


def test_a_new_policy_reaches_all_users_also_after_a_failure(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uid in (ALICE, BOB):
        machine.register.default(uid)
    machine.policy = Policy(default=Grant(LimitRequest(2 * GIB, 30)))
    works = Slots.set_limits

    def fails(*_: object) -> None:
        raise StateError("page", "damaged", "retry")

    monkeypatch.setattr(Slots, "set_limits", fails)
    with pytest.raises(StateError):
        machine.register.follow_policy()
    monkeypatch.setattr(Slots, "set_limits", works)
    machine.register.follow_policy()
    for uid in (ALICE, BOB):
        page = LimitsPage.open(Path(machine.register.default(uid)) / "limits")
        assert page.rows()[0].memory_limit == 2 * GIB


def rows_of(machine: Machine, slot: Path) -> list[tuple[int | None, int | None]]:
    return [(row.memory_limit, row.share) for row in LimitsPage.open(slot / "limits").rows()]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_lower_policy_lowers_the_slices_of_its_users(machine: Machine, restarts: bool) -> None:
    """The oldest keep the most, and what a card has that is not granted any more is nothing."""
    register, other = machine.register, Grant(LimitRequest(40 * GIB), why="[user.61002]")
    machine.policy = before = Policy(default=STUDENT, users={str(BOB): other})
    slots = [
        register.create(me(), LimitRequest(memory * GIB, 10), name=name, keep=True)[0]
        for memory, name in ((4, "old"), (4, "new"))
    ]
    bob, _ = register.create(me(BOB), LimitRequest(2 * GIB), keep=True)
    machine.policy = replace(before, default=Grant(LimitRequest(6 * GIB, 30), ("1",), 4, "x"))
    if restarts:
        machine.open(before)
    machine.register.follow_policy()
    assert rows_of(machine, slots[0]) == [(1, 1), (4 * GIB, 10)]
    assert rows_of(machine, slots[1]) == [(1, 1), (2 * GIB, 10)]
    assert rows_of(machine, bob) == [(2 * GIB, None)] * 2
    with pytest.raises(InvalidValue, match="leaves you 0 bytes of card 0"):
        machine.register.set_limits(me(), "old", LimitRequest({"0": 2 * GIB}))
    # Root's own limits stay until the user's grant changes again.
    machine.register.set_limits(me(0), slots[0].name, LimitRequest({"0": 9 * GIB}))
    machine.policy = replace(machine.policy, users={})
    machine.register.follow_policy()
    assert rows_of(machine, slots[0])[0] == (9 * GIB, 1)


def test_a_default_slice_keeps_its_account_whatever_the_policy_grants(machine: Machine) -> None:
    slot = Path(machine.register.default(ALICE))
    account = (slot / "account").stat().st_ino
    for cards, chosen in ((("1",), "GPU-b\n"), (("0",), "GPU-a\n"), ((), "GPU-a\n")):
        machine.policy = Policy(default=Grant(LimitRequest(2 * GIB, 30), cards))
        machine.register.follow_policy()
        assert (slot / "account").stat().st_ino == account
        granted = {"0": [(2 * GIB, 30), (1, 1)], "1": [(1, 1), (2 * GIB, 30)]}
        assert rows_of(machine, slot) == granted.get("".join(cards), [(1, 1)] * 2)
        if cards:
            assert (slot / "chosen-cards").read_text() == chosen
    assert "grants you no card" in machine.register.default(ALICE)
    machine.policy = Policy(default=STUDENT)
    machine.register.follow_policy()
    assert not (slot / "chosen-cards").exists()


def test_no_slice_takes_the_name_of_default_slices(machine: Machine) -> None:
    with pytest.raises(InvalidValue, match="programs in no slice"):
        machine.register.create(me(), LimitRequest(), name="default")


def test_what_a_lowered_slice_holds_is_not_granted_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = machine.register
    slot, _ = register.create(me(), LimitRequest(8 * GIB, 10), name="a")
    monkeypatch.setattr(
        SliceSlots,
        "held",
        lambda _, entry: {"GPU-a": 6 * GIB} if entry.slot == slot.name else {},
    )
    register.set_limits(me(), "a", LimitRequest(GIB))
    with pytest.raises(InvalidValue, match="leaves you 2GiB of card 0"):
        register.create(me(), LimitRequest(3 * GIB, 10))
    default = Path(register.default(ALICE))
    assert rows_of(machine, default)[0] == (2 * GIB, 20)


def test_root_does_not_change_a_slice_that_is_named_after_the_id_of_another(
    machine: Machine,
) -> None:
    register = machine.register
    bobs, _ = register.create(me(BOB), LimitRequest(GIB, 1), keep=True)
    shown = bobs.name[:12]
    register.create(me(), LimitRequest(GIB, 1), name=shown, keep=True)
    with pytest.raises(UnknownSlice, match="several slices"):
        register.set_limits(me(0), shown, LimitRequest(20 * GIB))
    register.set_limits(me(), shown, LimitRequest(2 * GIB))
    register.set_limits(me(0), bobs.name, LimitRequest(3 * GIB))
    assert rows_of(machine, bobs)[0] == (3 * GIB, 1)


def test_a_process_holds_a_slice_so_many_times(machine: Machine) -> None:
    machine.register.create(me(), LimitRequest(GIB, 1), name="one")
    with pytest.raises(StateError, match="holds it 64 times"):
        for _ in range(100):
            machine.register.hold(me(), "one")


def test_numbers_that_are_no_users_have_no_default_slice(machine: Machine) -> None:
    for uid, is_known, why in (
        (200_000, False, "numbers without a user"),
        (70_001, None, "does not answer"),
    ):
        users._found[uid] = users.User(uid, str(uid), is_known=is_known), float("inf")
        assert why in machine.register.default(uid)
        with pytest.raises(StateError, match=why):
            machine.register.create(me(uid), LimitRequest())
    assert (machine.ledger.entries, list((machine.paths.runtime / "users").iterdir())) == ({}, [])


def test_a_default_slice_that_cannot_be_made_leaves_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "account")

    with monkeypatch.context() as context:
        context.setattr(os, "setxattr", full)
        with pytest.raises(HamiError, match="No space left"):
            machine.register.default(ALICE)
    assert machine.ledger.entries == {}
    machine.register.create(me(), LimitRequest())


def test_a_user_who_fills_an_account_gets_no_other_slice_for_a_minute(machine: Machine) -> None:
    slot = Path(machine.register.default(ALICE))
    os.truncate(slot / "account", 64 << 20)
    machine.register.end_grown()
    assert not slot.exists()
    with pytest.raises(StateError, match="wait for 60 s"):
        machine.register.default(ALICE)
    with pytest.raises(StateError, match="wait for 60 s"):
        machine.register.create(me(), LimitRequest())
    machine.register.default(BOB)
