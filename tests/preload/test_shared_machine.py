"""The service of a machine: users who share its cards, on the stub.

The service and its users are in a mount namespace of their own, so that /run/hami is the test's.
"""

import contextlib
import ctypes
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from hami_py.errors import HamiError, InvalidValue
from hami_py.model import parse_arguments
from hami_py.slices import SliceRequest, open_new
from hami_py.slices.machine import Machine
from support.launcher import until
from support.machine_users import ANNA, BERT, SERVICE, flooding
from support.memory_use import accounted
from support.running import Started, run
from support.tiers import amount

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the service runs as root")

GIB = 1 << 30


class Installed:
    """The service on a stub's cards."""

    def __init__(self, gpu, hami, folder, policy=""):
        self.env, self._folder = hami.env(gpu), folder
        folder.mkdir()
        (folder / "machine.toml").write_text(policy)
        self._stack = contextlib.ExitStack()
        self.start()

    def start(self):
        """Start the service."""
        words = [sys.executable, SERVICE, "/run/hami", self._folder, self._folder / "machine.toml"]
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
        script = 'mount -t tmpfs none /run && exec "$@"'
        self.service = self._stack.enter_context(Started([*enter, script, "sh", *words], self.env))
        socket = Path(f"/proc/{self.service.pid}/root/run/hami/machine.sock")
        until(socket.exists, "the service listens")

    def hami(self, *arguments):
        """Run `hami` on this machine, as root."""
        return self.run("-m", "hami_py", *arguments)

    def run(self, *arguments):
        """Run Python on this machine, as root."""
        enter = ["nsenter", "--mount", "--target", str(self.service.pid), "--", sys.executable]
        return run([*enter, *map(str, arguments)], self.env)

    def stop(self):
        """End the service."""
        self._stack.close()


@pytest.fixture
def machine(gpu, hami, tmp_path):
    started = Installed(
        gpu, hami, tmp_path / "machine", '[user.root]\ngpumem = "4GiB"\ngpucores = 50\n'
    )
    try:
        yield started
    finally:
        started.stop()


def test_a_program_gets_what_the_policy_grants(machine, program):
    done = machine.hami("run", "--", program("initialise"))
    assert (done.code, done.err) == (0, ""), done
    refused = machine.hami("run", "--gpumem", "5GiB", "--", "true")
    assert refused.code == 125
    assert "[user.root]" in refused.err
    kept = machine.hami("run", "--keep", "--name", "kept", "--gpumem", "1GiB", "--", "true")
    assert (kept.code, kept.err) == (0, ""), kept
    listed = machine.hami("ps")
    assert "kept" in listed.out, listed
    assert "slices: 1;" in machine.hami("machine", "status").out
    assert machine.hami("set", "kept", "--gpumem", "2GiB").code == 0
    assert machine.hami("rm", "kept").code == 0
    assert "kept" not in machine.hami("ps").out


def test_a_second_service_names_the_first(machine, tmp_path):
    done = machine.run(SERVICE, "/run/hami", tmp_path / "machine", tmp_path / "none.toml")
    assert (done.code, "the service hami machine has the cards" in done.err) == (1, True), done


def rows(gpu, programs):
    pids = {program.pid for program in programs}
    return [each for each in gpu.ledger()["processes"] if each["pid"] in pids]


def busy_ns(gpu, program):
    return sum(row["cards"][0]["busy_ns"] for row in rows(gpu, [program]))


def part_of(user, machine, programs, seconds):
    """The percentage that a user gets of the time that all get from a second on."""

    def spent():
        return {each: busy_ns(machine.gpu, program) for each, program in programs.items()}

    def passes(total):
        until(lambda: sum(spent().values()) > total, "the card computes")
        return spent()

    before = passes(sum(spent().values()) + 1e9)
    after = passes(sum(before.values()) + seconds * 1e9)
    return 100 * (after[user] - before[user]) / (sum(after.values()) - sum(before.values()))


@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_shares_hold_between_users(users, mode):
    machine = users()
    shares = {ANNA: 30, BERT: 70}
    envs = {user: machine.slice(user, gpucores=share, mode=mode) for user, share in shares.items()}
    programs = {user: machine.computes(user, envs[user], 20) for user in shares}
    until(lambda: all(busy_ns(machine.gpu, each) for each in programs.values()), "both compute")
    part = part_of(ANNA, machine, programs, seconds=6)
    # Within 1.5 on a quiet machine; on a busy one the programs do not always have work.
    assert part == pytest.approx(30, abs=5)


@pytest.mark.timeout(1200)
def test_a_service_that_is_killed_loses_no_slice_and_ends_no_program(users):
    """Takes as long as the service's starts, and a few seconds of shares after the last one."""
    machine = users()
    shares = {ANNA: 40, BERT: 60}
    envs = {
        user: machine.slice(user, gpumem="2GiB", gpucores=each) for user, each in shares.items()
    }
    programs = {user: machine.computes(user, envs[user], 600) for user in shares}
    until(lambda: all(busy_ns(machine.gpu, each) for each in programs.values()), "both compute")

    def slices():
        return [(each.id, each.owner, each.state) for each in Machine(machine.runtime).listed()]

    before = slices()
    for _ in range(amount("kills of the machine's service")):
        machine.service.kill()
        at = busy_ns(machine.gpu, programs[ANNA])
        until(lambda at=at: busy_ns(machine.gpu, programs[ANNA]) > at, "it computes on")
        machine.start()
        mounts = Path("/proc/self/mountinfo").read_text()
        assert mounts.count(f" {machine.runtime} ") == 1, mounts
    assert slices() == before
    assert part_of(ANNA, machine, programs, seconds=4) == pytest.approx(40, abs=5)
    ours = {pid: each for user in envs for pid, each in accounted(envs[user]["HAMI_SLICE"]).items()}
    theirs = {
        row["pid"]: row["cards"][0]["context"]["now"]
        for row in rows(machine.gpu, programs.values())
    }
    assert ours == theirs


def test_one_user_can_neither_use_nor_change_the_slice_of_another(users):
    machine = users()
    directory = Path(machine.slice(ANNA, gpumem="2GiB")["HAMI_SLICE"])

    def tries():
        found = []
        for ask in ("hold", "release", "remove", "set"):
            more = {"limits": {"memory": 1 << 30}} if ask == "set" else {}
            try:
                Machine(machine.runtime).ask(ask, slice=directory.name, **more)
            except HamiError as error:
                found.append(type(error).__name__)
        with contextlib.suppress(PermissionError):
            found += directory.iterdir()
        return found, Machine(machine.runtime).ask("list")["slices"]

    def as_root_of_an_own_namespace():
        assert ctypes.CDLL(None).unshare(0x1000_0000) == 0, "CLONE_NEWUSER"
        return tries()

    bert = machine.users[BERT]
    assert bert.call(tries) == (["UnknownSlice"] * 4, [])
    assert bert.call(as_root_of_an_own_namespace) == (["UnknownSlice"] * 4, [])


def test_a_user_who_floods_the_service_keeps_it_from_no_other(users, program):
    machine = users("[default]\ngpumem = '2GiB'\n")
    # The library asks the service, too, for a user without a link.
    name = machine.copy(program("memory_info"), machine.place)
    command = machine.users[ANNA].command("unshare", "--user", "--map-root-user", name)

    def opens():
        request = SliceRequest(["load"], parse_arguments(gpumem="1GiB"))
        with contextlib.closing(open_new(machine.settings(ANNA), request)) as opened:
            return opened.hold.directory.is_dir()

    with machine.users[BERT].holding(flooding(machine.runtime / "machine.sock")):
        for _ in range(10):
            assert machine.users[ANNA].call(opens)
            done = run(command, machine.in_all_programs())
            assert (done.code, done.err) == (0, ""), done
            assert f"total={2 << 30}" in done.out


def test_what_all_users_have_fits_on_the_card_if_the_policy_says_so(users):
    machine = users('sum = "strict"\n')
    machine.slice(ANNA, gpumem="30GiB")

    def refused():
        with pytest.raises(InvalidValue, match="left beside all users"):
            open_new(
                machine.settings(BERT), SliceRequest(["load"], parse_arguments(gpumem="20GiB"))
            )
        return True

    assert machine.users[BERT].call(refused)
    machine.slice(BERT, gpumem="8GiB")


@pytest.mark.parametrize("bypass", ["report", "kill"])
def test_a_program_without_the_library_is_found(users, bypass):
    machine = users(f'bypass = "{bypass}"\n[default]\ngpumem = "2GiB"\n')
    free = machine.computes(ANNA, machine.env, 30)
    limited = machine.computes(BERT, machine.slice(BERT), 30)
    until(lambda: busy_ns(machine.gpu, limited) and busy_ns(machine.gpu, free), "both compute")
    until(lambda: f"process {free.pid} of {ANNA} " in machine.log, "it is reported")
    if bypass == "kill":
        assert free.finish().code == -signal.SIGKILL
    else:
        at = busy_ns(machine.gpu, free)
        until(lambda: busy_ns(machine.gpu, free) > at, "it computes on")
    at = busy_ns(machine.gpu, limited)
    until(lambda: busy_ns(machine.gpu, limited) > at, "the other computes on")


def test_a_service_manager_is_told_when_it_is_ready(users):
    machine = users()
    machine.service.kill()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(60)
        manager.bind(str(machine.place / "manager"))
        machine.start({"NOTIFY_SOCKET": str(machine.place / "manager")})
        assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize(
    "words", [["\udcff"], ["a-picture-of-many.jpg"] * 1000], ids=["bytes", "long"]
)
def test_a_program_starts_with_all_its_arguments(machine, words):
    script = "import os, sys; print(len(sys.argv[1:]), os.fsencode(sys.argv[1]))"
    done = machine.hami("run", "--", sys.executable, "-c", script, *words)
    assert (done.code, done.out) == (0, f"{len(words)} {os.fsencode(words[0])}\n"), done
