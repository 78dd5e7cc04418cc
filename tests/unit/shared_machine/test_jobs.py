"""The slices of jobs of a batch system, on a directory of this test."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hami_py._native import LimitsPage
from hami_py.errors import InvalidValue, SliceInUse, StateError, UnknownCard, UnknownSlice
from hami_py.machine.policy import Grant
from hami_py.machine.rules import part_of
from hami_py.model import Card, CardLimit, LimitRequest
from support.users import User
from unit.shared_machine.test_register import ALICE, BOB, GIB, Machine, me
from unit.shared_machine.test_requests import Asking

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="the service runs as root")

NO_CARDS = Grant(cards=(), why="[default]")

#: Of a card of 40,000 MiB.
QUARTER = 10_000 << 20


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


@pytest.fixture
def ask(tmp_path: Path) -> Asking:
    return Asking(tmp_path / "machine")


def slot(machine: Machine, job: int) -> Path:
    return machine.paths.slots / f"job-{job}"


def limits(path: Path) -> list[tuple[str, int | None, int | None]]:
    rows = LimitsPage.open(path / "limits").rows()
    return [(row.uuid, row.memory_limit, row.share) for row in rows]


@pytest.mark.parametrize(
    ("count", "total", "memory", "share"),
    [(4, 16, 25, 25), (1, 3, 33, 33), (1, 16, 6, 6), (1, 128, 1, 1), (15, 16, 93, 93)],
)
def test_a_part_is_rounded_down_but_not_to_nothing(
    count: int, total: int, memory: int, share: int
) -> None:
    assert part_of(Card(0, "GPU-a", "A100", 100), count, total) == CardLimit("GPU-a", memory, share)


def test_a_whole_card_has_no_limit_and_no_card_is_none() -> None:
    card = Card(0, "GPU-a", "A100", 100)
    assert part_of(card, 16, 16) == CardLimit("GPU-a")
    for count, total in ((0, 16), (17, 16), (-1, 16), (0, 0)):
        with pytest.raises(InvalidValue, match="n of N"):
            part_of(card, count, total)


def test_a_job_has_its_part_whatever_the_policy_says(machine: Machine) -> None:
    machine.policy = replace(machine.policy, default=NO_CARDS, sum="strict")
    machine.register.set_job(17, ALICE, {"1": (4, 16), "GPU-a": (1, 1)})
    assert limits(slot(machine, 17)) == [("GPU-b", QUARTER, 25), ("GPU-a", None, None)]
    (entry,) = machine.ledger.entries.values()
    assert entry.run is not None
    assert (entry.owner, entry.run.kind, entry.run.keep) == (f"uid:{ALICE}", "job", True)
    with pytest.raises(UnknownCard, match="card 2"):
        machine.register.set_job(17, ALICE, {"2": (1, 1)})
    assert slot(machine, 17).is_dir(), "what is refused changes nothing"
    machine.register.set_job(17, ALICE, {})
    machine.register.set_job(17, ALICE, {})
    assert (slot(machine, 17).exists(), machine.ledger.entries) == (False, {})


def test_a_job_that_runs_again_gets_a_new_slice(machine: Machine) -> None:
    machine.register.set_job(17, ALICE, {"0": (4, 16)})
    (slot(machine, 17) / "old").touch()
    machine.register.set_job(17, BOB, {"1": (8, 16)})
    assert limits(slot(machine, 17)) == [("GPU-b", 2 * QUARTER, 50)]
    assert not (slot(machine, 17) / "old").exists()


def test_only_its_user_enters_the_slice_of_a_job(machine: Machine, tmp_path: Path) -> None:
    machine.register.set_job(17, ALICE, {"0": (4, 16)})
    alice, bob = User(ALICE, tmp_path / "alice"), User(BOB, tmp_path / "bob")
    assert alice.call(lambda: os.access(slot(machine, 17) / "limits", os.R_OK))
    assert not bob.call(lambda: os.access(slot(machine, 17) / "limits", os.R_OK))


def test_only_root_changes_and_ends_the_slice_of_a_job(machine: Machine) -> None:
    register = machine.register
    # Also the start of the other's id.
    for job in (1, 17):
        register.set_job(job, ALICE, {"0": (4, 16)})
    with pytest.raises(StateError, match="scancel 1`"):
        register.remove(me(), "job-1")
    with pytest.raises(StateError, match="scancel 17"):
        register.set_limits(me(), "job-17", LimitRequest(GIB))
    with pytest.raises(UnknownSlice):
        register.remove(me(BOB), "job-1")
    register.set_limits(me(0), "job-1", LimitRequest(GIB))
    assert limits(slot(machine, 1)) == [("GPU-a", GIB, 25)]
    register.hold(me(), "job-1")
    with pytest.raises(SliceInUse):
        register.remove(me(0), "job-1")
    register.release(me(), "job-1")
    register.remove(me(0), "job-1")
    assert not slot(machine, 1).exists()


def test_only_root_says_what_a_job_has(ask: Asking) -> None:
    # The user of the job, and nobody else, could be who asks.
    packet = b'{"do":"job","job":17,"uid":%d,"cards":{"0":[4,16]}}' % ALICE
    error = ask.raw(packet)["error"]
    assert (error["kind"], "root" in error["args"][1]) == ("StateError", True)
    assert ask("list", uid=0)["slices"] == []
    assert ask.raw(packet, uid=0) == {}
    (shown,) = ask("list")["slices"]
    assert (shown["id"], shown["cards"][0]["memory_limit"]) == ("job-17", QUARTER)
    assert ask.raw(b'{"do":"job","job":17,"cards":{"0":[4]}}', uid=0)["error"]["kind"] == (
        "InvalidValue"
    )


def test_jobs_are_in_no_sum_of_their_user_but_in_that_of_the_card(machine: Machine) -> None:
    machine.policy = replace(machine.policy, sum="strict")
    for job in (1, 2, 3):
        machine.register.set_job(job, ALICE, {"0": (4, 16)})
    machine.register.create(me(), LimitRequest(8 * GIB, 20), devices=("0",))
    for job in (4, 5, 6, 7):
        machine.register.set_job(job, BOB, {"0": (1, 32)})
    with pytest.raises(InvalidValue, match="left"):
        machine.register.create(me(BOB), LimitRequest(8 * GIB, 1), devices=("0",))
    machine.register.create(me(BOB), LimitRequest(8 * GIB, 1), devices=("1",))


def test_a_slice_inside_a_job_has_at_most_what_the_job_has(machine: Machine) -> None:
    machine.policy = replace(machine.policy, default=NO_CARDS)
    register = machine.register
    register.set_job(17, ALICE, {"1": (4, 16)})
    around = (str(slot(machine, 17)),)
    inner, _ = register.create(me(), LimitRequest(GIB, 10), around=around)
    assert limits(inner) == [("GPU-b", GIB, 10)]
    assert (inner / "layers").read_text() == f"{around[0]}\n{inner}\n"
    whole, _ = register.create(me(), LimitRequest(), around=around)
    assert limits(whole) == [("GPU-b", QUARTER, 25)]
    register.set_limits(me(), inner.name, LimitRequest(2 * GIB))
    with pytest.raises(InvalidValue, match="job-17 leaves you"):
        register.set_limits(me(), inner.name, LimitRequest(QUARTER + 1))
    with pytest.raises(InvalidValue, match="job-17 leaves you"):
        register.create(me(), LimitRequest(QUARTER + 1), around=around)
    for user, outer in ((BOB, around), (ALICE, ())):
        with pytest.raises(StateError, match="grants none"):
            register.create(me(user), LimitRequest(GIB), around=outer)


def test_jobs_that_are_not_known_any_more_end(machine: Machine) -> None:
    register = machine.register
    kept, _ = register.create(me(), LimitRequest(GIB, 1), name="kept", keep=True)
    for job in (1, 17, 18):
        register.set_job(job, ALICE, {"0": (4, 16)})

    def known() -> set[str]:
        # Its next run begins while Slurm is asked.
        register.set_job(18, ALICE, {"0": (4, 16)})
        return {"1"}

    register.end_lost_jobs(known)
    assert {each.name for each in machine.paths.slots.iterdir()} == {kept.name, "job-1", "job-18"}


def test_where_slurm_does_not_answer_no_job_ends(machine: Machine) -> None:
    asked = []

    def fails() -> set[str]:
        asked.append(1)
        raise StateError("squeue", "it fails", "run it")

    machine.register.end_lost_jobs(fails)
    assert asked == [], "without jobs nobody asks"
    machine.register.set_job(17, ALICE, {"0": (4, 16)})
    with pytest.raises(StateError):
        machine.register.end_lost_jobs(fails)
    machine.register.end_unused()
    assert slot(machine, 17).is_dir()


def test_a_job_outlives_a_service_that_is_killed(machine: Machine) -> None:
    machine.register.set_job(17, ALICE, {"0": (4, 16)})
    inode = (slot(machine, 17) / "account").stat().st_ino
    machine.open()
    assert (slot(machine, 17) / "account").stat().st_ino == inode
    os.system(f"rm -rf {machine.paths.slots}")  # noqa: S605 - as on a tmpfs
    machine.open()
    assert limits(slot(machine, 17)) == [("GPU-a", QUARTER, 25)]
