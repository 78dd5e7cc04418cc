"""The default slice of a user: the limits of programs that no `hami run` has started."""

import contextlib
import os

import pytest

from hami_py.errors import InvalidValue
from hami_py.model import parse_arguments
from hami_py.slices import SliceRequest, open_new
from hami_py.slices.machine import Machine
from support.launcher import until
from support.machine_users import ANNA, BERT
from support.running import Started, run

GIB = 1 << 30

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the service runs as root")

POLICY = f"""
[user.{ANNA}]
gpumem = "4GiB"
gpucores = 30

[user.{BERT}]
cards = "none"
"""


@pytest.fixture
def total(program):
    """`total(machine, user)` is the memory that a user's program sees, or how it was refused."""

    def seen(machine, user, *before, env=None):
        name = machine.copy(program("memory_info"), machine.place)
        command = [*before, name]
        if user:
            command = machine.users[user].command(*command)
        done = run(command, {**machine.in_all_programs(), **(env or {})})
        found = [line for line in done.lines if line.startswith("cuDeviceTotalMem_v2")]
        return int(found[0].partition("total=")[2]) if found else done.err

    return seen


@pytest.fixture
def holds(program):
    """`holds(machine, user, mib)` is a user's program that holds memory until the test ends."""
    with contextlib.ExitStack() as stack:

        def start(machine, user, mib):
            name = machine.copy(program("hold"), machine.place)
            command = machine.users[user].command(name, str(mib))
            started = stack.enter_context(Started(command, machine.in_all_programs()))
            return started.wait_for("holding")

        yield start


def test_all_programs_of_a_user_have_what_the_policy_grants(users, total, holds):
    machine = users(POLICY)
    whole = total(machine, 0)
    assert whole > 4 * GIB, "root has no limit"
    assert total(machine, ANNA) == 4 * GIB
    # The user of a program in its own user namespace is known to the service only.
    assert total(machine, ANNA, "unshare", "--user", "--map-root-user") == 4 * GIB
    assert total(machine, ANNA, "env", "HOME=/nonexistent") == 4 * GIB
    refused = total(machine, BERT)
    assert f"[user.{BERT}]" in refused, refused
    assert "grants you no card" in refused
    first = holds(machine, ANNA, 2000)
    with pytest.raises(AssertionError):
        holds(machine, ANNA, 2000)
    held = {row["pid"]: row["cards"] for row in machine.gpu.ledger()["processes"]}
    assert held[first.pid][0]["requested"]["now"] == 2000 << 20


def test_a_user_s_slices_are_a_part_of_what_the_policy_grants(users, total, holds):
    machine = users(POLICY)
    assert total(machine, ANNA) == 4 * GIB
    env = machine.slice(ANNA, gpumem="1GiB", gpucores=10)
    assert total(machine, ANNA, env=env) == GIB
    assert total(machine, ANNA) == 3 * GIB
    holds(machine, ANNA, 2000)

    def opens(size):
        request = SliceRequest(["load"], parse_arguments(gpumem=size))
        with contextlib.closing(open_new(machine.settings(ANNA), request)) as opened:
            return total(machine, ANNA, env=opened.environment(machine.env))

    def refused():
        with pytest.raises(InvalidValue, match="leaves you"):
            opens("2GiB")
        return True

    assert machine.users[ANNA].call(refused)
    assert total(machine, ANNA) == 3 * GIB, "as before"


def test_a_slice_without_limits_has_all_and_programs_outside_have_nothing(users, total, holds):
    machine = users(POLICY)
    assert total(machine, ANNA) == 4 * GIB
    env = machine.slice(ANNA)
    assert total(machine, ANNA, env=env) == 4 * GIB
    with pytest.raises(AssertionError):
        holds(machine, ANNA, 1)


def test_a_user_who_loses_all_cards_gets_no_more_memory(users, total):
    machine = users(POLICY)
    assert total(machine, ANNA) == 4 * GIB
    (machine.place / "machine.toml").write_text(f'[user.{ANNA}]\ncards = "none"\n')
    until(lambda: "grants you no card" in str(total(machine, ANNA)), "the policy is followed")


def test_a_policy_that_changes_holds_for_programs_that_run(users, total, holds):
    machine = users(POLICY)
    policy = machine.place / "machine.toml"
    assert total(machine, ANNA) == 4 * GIB
    holds(machine, ANNA, 1000)
    policy.write_text(POLICY.replace("4GiB", "2GiB"))
    until(lambda: total(machine, ANNA) == 2 * GIB, "it is lowered")
    policy.write_text('[default]\ngpumem = "no size"\n')
    assert total(machine, ANNA) == 2 * GIB, "a policy that is refused changes nothing"
    policy.write_text("[default]\n")
    until(lambda: total(machine, ANNA) == total(machine, 0), "nobody has a limit")
    assert total(machine, BERT) == total(machine, 0)


def test_a_card_that_is_withdrawn_and_granted_again_is_not_held_twice(users, total, holds):
    machine = users(POLICY, cards="a100,a100")
    policy = machine.place / "machine.toml"
    assert total(machine, ANNA) == 4 * GIB
    holds(machine, ANNA, 3000)
    chosen = machine.runtime / "users" / str(ANNA) / "chosen-cards"
    for card, uuid in ((1, machine.gpu.uuids()[1]), (0, machine.gpu.uuids()[0])):
        policy.write_text(f'[user.{ANNA}]\ncards = [{card}]\ngpumem = "4GiB"\n')
        text = f"{uuid}\n"
        until(lambda text=text: chosen.exists() and chosen.read_text() == text, "it is followed")
    with pytest.raises(AssertionError):
        holds(machine, ANNA, 3000)
    assert machine.gpu.ledger()["cards"][0]["used"] < 4 * GIB


def test_without_the_service_the_limits_hold_and_others_get_no_card(users, total):
    """Takes two seconds for the library, which waits for a service that is being restarted."""
    machine = users(POLICY.replace(f"[user.{BERT}]", "[user.64003]"))
    assert total(machine, ANNA) == 4 * GIB
    machine.service.kill()
    assert total(machine, ANNA) == 4 * GIB
    assert "hami machine does not say" in total(machine, BERT)
    machine.start()
    assert total(machine, BERT) == total(machine, 0)
    assert total(machine, ANNA) == 4 * GIB


def test_a_damaged_ledger_is_kept_aside_and_limits_hold(users, total):
    machine = users(POLICY)
    assert total(machine, ANNA) == 4 * GIB
    machine.service.kill()
    (machine.place / "state" / "ledger.json").write_text("")
    (machine.place / "machine.toml").write_text("[default\n")
    machine.start()
    assert total(machine, ANNA) == 4 * GIB
    assert "ledger.json.damaged-" in machine.log
    assert "the policy before it holds" in machine.log


def test_the_service_itself_has_all_cards(users, total):
    """It is a program of a machine whose loader has the library; root has no default slice."""
    machine = users(f'[user.root]\ngpumem = "1GiB"\n{POLICY}')
    machine.service.kill()
    machine.start(env={"LD_PRELOAD": machine.in_all_programs()["LD_PRELOAD"]})
    assert total(machine, ANNA) == 4 * GIB
    assert total(machine, 0) > 4 * GIB
    assert "does not say" not in machine.log


def test_before_the_service_has_run_nobody_is_limited(users, total):
    machine = users(POLICY)
    real, machine.runtime = machine.runtime, machine.place / "not-yet"
    assert total(machine, ANNA) == total(machine, BERT) == total(machine, 0)
    machine.runtime = real
    assert total(machine, ANNA) == 4 * GIB


def test_with_few_descriptors_programs_start_and_none_is_unlimited(users, total):
    machine = users(POLICY)
    few = ("sh", "-c", 'ulimit -n "$0" && exec "$@"')
    seen = set()
    for count in range(3, 16):
        bare = run([*few, str(count), "true"], {})
        assert run([*few, str(count), "true"], machine.in_all_programs()).code == bare.code
        found = total(machine, ANNA, *few, str(count))
        assert found == 4 * GIB or isinstance(found, str), (count, found)
        seen.add(found)
    assert 4 * GIB in seen
    assert len(seen) > 1


def test_a_full_file_system_gives_nobody_more(users, total):
    machine = users(POLICY.replace('cards = "none"', 'gpumem = "2GiB"'))
    assert total(machine, ANNA) == 4 * GIB
    full = machine.runtime / "full"
    with full.open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * (1 << 20))
    assert total(machine, ANNA) == 4 * GIB
    assert "No space left" in total(machine, BERT)
    full.unlink()
    assert total(machine, BERT) == 2 * GIB


def test_a_default_slice_cannot_be_changed_by_its_user(users, total):
    machine = users(POLICY)
    assert total(machine, ANNA) == 4 * GIB

    def tries():
        service, found = Machine(machine.runtime), []
        for ask in ("hold", "release", "remove", "set"):
            more = {"limits": {"memory": 8 * GIB}} if ask == "set" else {}
            with pytest.raises(Exception, match="it has what the policy leaves") as refused:
                service.ask(ask, slice="default", **more)
            found.append(type(refused.value).__name__)
        return found

    assert machine.users[ANNA].call(tries) == ["StateError"] * 4
    assert total(machine, ANNA) == 4 * GIB
