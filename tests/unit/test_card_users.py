"""Whose programs use the cards: those of other users too, in a slice or not.

The stub's ledger says what each process holds; `setpriv` decides whose it is.
"""

import json
import os
import pwd
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from hami_py import CardLimit, config
from hami_py.slices import card_users, create, overbooked
from support.artifacts import Artifacts
from support.programs import Programs
from support.requirements import skip_or_fail
from support.running import Run, Started, run
from support.stub import StubServer
from support.users import User
from unit import machine
from unit.machine import CARDS, Hami

HAMI = [sys.executable, "-m", "hami_py"]
NUMBER = 64001

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everyone can enter: pytest's own is root's alone."""
    with tempfile.TemporaryDirectory(prefix="hami-test-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


@only_root
def test_processes_are_shown_with_their_users(
    place: Path, artifacts: Artifacts, program: Programs, runtime: Path
) -> None:
    for path in (program("hold"), artifacts.libcuda):
        shutil.copy(path, place / path.name)
        (place / path.name).chmod(0o755)
    daemon = pwd.getpwnam("daemon")
    with ExitStack() as ends:
        gpu = ends.enter_context(StubServer(artifacts, place / "gpu", "a100,a100"))
        gpu.client_socket.parent.chmod(0o755)
        gpu.client_socket.chmod(0o777)
        theirs = {**gpu.env, "LD_LIBRARY_PATH": str(place)}
        users = [(daemon.pw_uid, "daemon", 300), (NUMBER, str(NUMBER), 200)]
        pids = {}
        for uid, name, size in users:
            user = User(uid, place / name)
            command = user.command(place / "hold", str(size), "1")
            started = ends.enter_context(Started(command, theirs)).wait_for("holding")
            pids[name] = started.pid
        ours = {
            **gpu.env,
            "HAMI_RUNTIME_DIR": str(runtime),
            "HAMI_LIBRARY": str(artifacts.library),
        }
        limited = ("run", "--name", "mine", "--gpumem", "1GiB", "--", str(program("hold")), "100")
        ends.enter_context(Started([*HAMI, *limited], ours)).wait_for("holding")

        def hami(*arguments: str) -> Run:
            done = run([*HAMI, *arguments], ours)
            assert (done.code, done.err) == (0, "")
            return done

        first, second = json.loads(hami("devices", "--json").out)
        me = pwd.getpwuid(os.geteuid()).pw_name
        assert [each["user"] for each in first["processes"]] == [me]
        held = {
            process["pid"]: sum(process["cards"][1][kind]["now"] for kind in ("held", "context"))
            for process in gpu.ledger()["processes"]
        }
        assert [
            (each["user"], each["pid"], each["memory"], each["command"][1:])
            for each in second["processes"]
        ] == [(name, pids[name], held[pids[name]], [str(size), "1"]) for _uid, name, size in users]
        lines = [line.split() for line in hami("devices").out.splitlines()]
        assert [line[2] for line in lines if line[1:2] == [str(pids["daemon"])]] == ["daemon"]
        shown = [line.split() for line in hami("top", "--interval", "0.1").out.splitlines()]
        rows = {line[0]: line for line in shown if line and line[0].isdigit() and len(line) > 5}
        assert rows[str(pids["daemon"])][1:3] == ["1", "daemon"]
        assert rows[str(pids["daemon"])][4] == "-"
        (mine,) = [line for line in rows.values() if line[4] == "mine"]
        assert mine[1:3] == ["0", me]


def test_in_a_pid_namespace_no_owner_is_made_up(
    gpu: StubServer, program: Programs, artifacts: Artifacts
) -> None:
    """There, NVML's numbers name other processes or none."""
    names = ["unshare", "--pid", "--fork", "--mount-proc"]
    if run([*names, "true"], {}).code:
        skip_or_fail("no PID namespace can be made here")
    with Started([program("hold"), "100"], gpu.env) as other:
        other.wait_for("holding")
        environment = {**gpu.env, "HAMI_RUNTIME_DIR": "/nowhere"}
        done = run([*names, "--", *HAMI, "devices", "--json"], environment)
        ((process,),) = [card["processes"] for card in json.loads(done.out)]
        assert (process["pid"], process["user"], process["command"]) == (other.pid, None, [])


def test_without_nvml_there_are_no_processes(
    monkeypatch: pytest.MonkeyPatch, two_cards: None
) -> None:
    assert card_users() == []


def test_shares_of_more_than_the_card_are_reported(
    hami: Hami, running: Callable[..., Started], runtime: Path
) -> None:
    told = (
        "hami: the shares of the slices on card 0 add up to 140%: while all of them use it, each"
        " gets less than its share\n"
    )
    with running("run", "--gpucores", "0=70", "--", *machine.HOLD):
        assert hami("run", "--gpucores", "0=30", "--", "true").stderr == ""
        assert hami("run", "--gpucores", "1=70", "--", "true").stderr == ""
        assert hami("run", "--gpucores", "0=70", "--", "true").stderr == told
        assert hami("run", "--gpumem", "1GiB", "--", "true").stderr == ""
        with running("run", "--name", "b", "--gpucores", "0=20", "--", *machine.HOLD):
            assert hami("set", "b", "--gpumem", "1GiB").stderr == ""
            assert hami("set", "b", "--gpucores", "0=70").stderr == told
            assert told.removeprefix("hami: ") in hami("top", "--interval", "0.1").stdout


def test_a_share_within_a_share_is_not_added(hami: Hami, running: Callable[..., Started]) -> None:
    inner = [sys.executable, str(Path(machine.__file__)), "run", "--gpucores", "70", "--", "true"]
    assert hami("run", "--gpucores", "70", "--", *inner).stderr == ""


@only_root
def test_root_is_told_of_the_shares_of_all_users(place: Path, runtime: Path) -> None:
    indices = {CARDS[0].uuid: 0}
    settings = config.read(machine.environment(runtime))
    common = Path(f"/tmp/hami-{NUMBER}")  # noqa: S108
    user = User(NUMBER, place / "anna")
    with ExitStack() as ends:
        ends.callback(shutil.rmtree, common, ignore_errors=True)
        ends.enter_context(user.holding(_slice(common, 60)))
        assert overbooked(settings, indices, of_all_users=True) == ()
        with _slice(runtime / "hami", 60):
            assert overbooked(settings, indices) == ()
            (told,) = overbooked(settings, indices, of_all_users=True)
            assert "card 0 add up to 120%" in told
            # What another user puts there does no harm.
            (slice_,) = (common / "slices").iterdir()
            (slice_ / "limits").unlink()
            os.mkfifo(slice_ / "limits")
            assert overbooked(settings, indices, of_all_users=True) == ()


def _slice(runtime: Path, share: int) -> AbstractContextManager[Path]:
    library = machine.harmless_library()
    return create(runtime, [CardLimit(CARDS[0].uuid, None, share)], ["train"], library)
