"""The coordinator's lifetime: its start, its uniqueness, its end, and its messages.

Other tests cover its decisions about turns; here it is a process like any other.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

import hami_py
from hami_py._native import VERSION
from hami_py.cli.doctor.checks import checks
from hami_py.config import Settings
from hami_py.coordinator import LOCK, LOG
from hami_py.coordinator import __main__ as process
from hami_py.slices import CoordinatorSupervisor, Running, coordinator, create, running
from hami_py.slices.registry import processes_in
from support.artifacts import ROOT
from support.coordinator import end, found, wait_for
from support.running import Run, Started, run
from support.stub import StubServer
from unit import machine
from unit.machine import HOLD, Hami, listed

SHARE = [hami_py.CardLimit("GPU-1", share=30)]


@pytest.fixture
def ours(runtime: Path) -> Path:
    return runtime / "hami"


@contextmanager
def shared_slice(settings: Settings) -> Iterator[Path]:
    """A slice with a share, made without asking for a coordinator."""
    with create(settings.runtime_directory, SHARE, []) as directory:
        yield directory


def ensure(settings: Settings, directory: Path) -> Running:
    """The one that runs afterwards."""
    assert coordinator.ensure(settings, directory) == ()
    seen = running(settings)
    assert seen is not None
    return seen


# Its start.


def test_a_slice_with_a_share_starts_one(stub: StubServer, ours: Path) -> None:
    with hami_py.slice(gpumem="1GiB"):
        assert found(ours) is None
    with hami_py.slice(gpucores={"1": 30}):
        seen = found(ours)
        assert seen is not None
        assert (seen.pid > 0, seen.version) == (True, VERSION)


def test_a_share_of_the_whole_card_needs_none(stub: StubServer, ours: Path) -> None:
    with hami_py.slice(gpucores=100, mode="soft", priority="high"):
        assert found(ours) is None


def test_a_share_that_is_set_later_starts_one(hami: Hami, ours: Path) -> None:
    hami("run", "--name", "train", "--keep", "--", "true")
    assert found(ours) is None
    assert hami("set", "train", "--mode", "soft").returncode == 0
    assert found(ours) is None
    assert hami("set", "train", "--gpucores", "30").returncode == 0
    assert found(ours) is not None


def test_opening_or_joining_a_slice_with_a_share_starts_one(stub: StubServer, ours: Path) -> None:
    with hami_py.slice(gpucores=30, name="train"):
        end(ours)
        with hami_py.open_slice("train"):
            assert found(ours) is not None


def test_a_limit_on_this_process_starts_one(stub: StubServer, ours: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import hami_py as hami\n"
        "held = hami.limit_this_process(gpucores=30, mode='soft', devices=['0'])\n"
        "print([(card.share, card.mode) for card in held.cards])\n"
    )
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert run([sys.executable, script], variables) == Run(0, "[(30, 'soft')]\n", "")
    assert found(ours) is not None


# Its uniqueness, and that it is no child of a program.


def open_files(pid: int) -> set[str]:
    """What a process has open; it may open and close files meanwhile."""
    files = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            files.add(str(link.readlink()))
    return files


def test_it_is_a_separate_process(settings: Settings, tmp_path: Path) -> None:
    """No child, group, terminal, open file or variable of who started it; no place in the slice."""
    with shared_slice(settings) as directory:
        inside = {**settings.environment, "LD_PRELOAD": "", "HAMI_SLICE": str(directory)}
        seen = ensure(hami_py.config.read(inside), directory)
        status = dict(
            line.split(":\t", 1)
            for line in Path(f"/proc/{seen.pid}/status").read_text().splitlines()
            if ":\t" in line
        )
        assert int(status["PPid"]) != os.getpid()
        assert int(status["SigBlk"], 16) == 0
        assert os.getsid(seen.pid) != os.getsid(0)
        assert os.getpgid(seen.pid) != os.getpgid(0)
        assert Path(f"/proc/{seen.pid}/cwd").readlink() == Path("/")
        environment = Path(f"/proc/{seen.pid}/environ").read_bytes()
        assert b"HAMI_SLICE" not in environment
        assert b"LD_PRELOAD" not in environment
        files = open_files(seen.pid)
        runtime = settings.runtime_directory
        assert files >= {"/dev/null", str(runtime / LOCK), str(runtime / LOG)}
        assert not any(name.startswith("pipe:") for name in files)
        with pytest.raises(ChildProcessError):
            os.waitpid(seen.pid, os.WNOHANG)
        assert seen.pid not in {
            process.pid for process in processes_in(directory, settings.library)
        }


def test_its_log_has_a_size_limit(settings: Settings) -> None:
    with shared_slice(settings) as directory:
        seen = ensure(settings, directory)
    (line,) = [
        line
        for line in Path(f"/proc/{seen.pid}/limits").read_text().splitlines()
        if line.startswith("Max file size")
    ]
    assert line.split()[3:5] == [str(process.LOG_BYTES)] * 2


def test_concurrent_starts_start_one(settings: Settings) -> None:
    with shared_slice(settings) as directory, ThreadPoolExecutor(6) as pool:
        told = list(pool.map(lambda _: coordinator.ensure(settings, directory), range(12)))
        assert told == [()] * 12
        seen = running(settings)
        assert seen is not None
        assert ensure(settings, directory) == seen


def test_a_second_one_ends_at_once(settings: Settings) -> None:
    with shared_slice(settings) as directory:
        seen = ensure(settings, directory)
        command = [sys.executable, "-m", "hami_py.coordinator", str(settings.runtime_directory)]
        assert run(command, settings.environment) == Run(0, "", "")
        assert running(settings) == seen


def test_a_reader_does_not_make_taking_the_lock_fail(tmp_path: Path) -> None:
    path = tmp_path / LOCK
    looking = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(looking, fcntl.LOCK_SH)
    taken: list[int | None] = []
    taker = threading.Thread(target=lambda: taken.append(process.take_lock(str(path))))
    taker.start()
    os.close(looking)
    taker.join(machine.DEADLINE)
    (lock,) = taken
    assert lock is not None
    assert process.take_lock(str(path)) is None
    os.close(lock)


def test_it_uses_little_memory() -> None:
    """It may be there for days: neither the package nor what that imports."""
    script = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('process', {str(coordinator.PROGRAM)!r})\n"
        "process = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(process)\n"
        "process._bypass_init()\n"
        "before = set(sys.modules)\n"
        "import hami_py._native, hami_py.coordinator\n"
        "print(sorted(set(sys.modules) - before))\n"
        "print(sorted({'re', 'subprocess', 'dataclasses', 'typing', 'click'} & set(sys.modules)))"
    )
    done = run([sys.executable, "-I", "-S", "-c", script], {})
    names = ["hami_py._native", "hami_py.coordinator"]
    assert (done.err, done.lines) == ("", [str(names), "[]"])


@pytest.mark.parametrize("arguments", [[], ["relative"], ["--detach"], ["--frob", "/"]])
def test_an_invalid_command_line_is_refused(arguments: list[str]) -> None:
    done = run([sys.executable, "-I", "-S", coordinator.PROGRAM, *arguments], {})
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("usage: ")


# How it ends.


def test_it_exits_after_the_last_slice(settings: Settings, ours: Path) -> None:
    """In the foreground, and as soon as it may."""
    with shared_slice(settings) as directory:
        script = (
            "import sys; from hami_py.coordinator import __main__ as process; process.LINGER = 0.0;"
            f"sys.exit(process.main([{str(ours)!r}]))"
        )
        command = [sys.executable, "-c", script]
        with Started(command, settings.environment) as started:
            assert wait_for(ours) == Running(started.pid, VERSION)
            for path in directory.iterdir():
                path.unlink()
            directory.rmdir()
            assert started.finish() == Run(0, "", "")
    assert found(ours) is None
    assert sorted(path.name for path in ours.iterdir()) == [LOCK, "slices"]


def test_a_killed_one_is_replaced_at_the_next_need(settings: Settings) -> None:
    with shared_slice(settings) as directory:
        first = ensure(settings, directory)
        end(settings.runtime_directory)
        assert running(settings) is None
        second = ensure(settings, directory)
        assert second.pid != first.pid
        assert coordinator.last_error(settings) is None


def test_hami_run_restarts_it(hami: Hami, running: Callable[..., Started], ours: Path) -> None:
    with running("run", "--gpucores", "30", "--", *HOLD) as program:
        first = wait_for(ours)
        os.kill(first.pid, signal.SIGKILL)
        wait_for(ours, other_than=first.pid)
        done = program.finish()
        assert done.err == ""
    assert listed(hami) == []


def test_hami_run_starts_one_when_its_slice_gets_a_share(
    hami: Hami, running: Callable[..., Started], ours: Path
) -> None:
    with running("run", "--name", "train", "--", *HOLD) as program:
        assert hami("set", "train", "--gpucores", "30").returncode == 0
        end(ours)
        wait_for(ours)
        program.finish()


# Where it cannot be.


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """``broken(text)`` is run in place of the coordinator."""

    def replace(text: str) -> None:
        script = tmp_path / "broken.py"
        script.write_text(text)
        monkeypatch.setattr(coordinator, "PROGRAM", script)

    return replace


def test_a_failed_start_is_reported_and_the_slice_is_created(
    stub: StubServer, broken: Callable[[str], None]
) -> None:
    broken("import sys; sys.exit('out of order')")
    said = "coordinator: it could not be started: out of order; shares are less exact without it"
    s = hami_py.slice(gpucores=30)
    with pytest.warns(UserWarning, match=said), s:
        assert s.run(["true"]).returncode == 0
        with pytest.warns(UserWarning, match=said):
            s.resize(gpucores=40)


def test_a_start_that_hangs_is_not_waited_for(
    settings: Settings, broken: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken("import signal; signal.pause()")
    monkeypatch.setattr(coordinator, "START_DEADLINE", 0.2)
    # Other tests of this process may keep children: a control plane, for one.
    before = children()
    with shared_slice(settings) as directory:
        (told,) = coordinator.ensure(settings, directory)
    assert "it did not start within 0.2 s" in told
    assert children() <= before


def children() -> set[int]:
    """The children of this process, dead ones that were not waited for included."""
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


def test_a_python_that_is_part_of_another_program_starts_none(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/sh")
    with shared_slice(settings) as directory:
        (told,) = coordinator.ensure(settings, directory)
    assert "this Python is embedded in another program" in told


def test_repeated_failures_increase_the_restart_delay(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    started: list[float] = []

    def start(settings: Settings) -> "subprocess.Popen[str]":
        started.append(now)
        # It fails, or ends as soon as it has begun.
        failing = subprocess.Popen(["false"], stderr=subprocess.PIPE, text=True)
        failing.wait(machine.DEADLINE)
        return failing

    monkeypatch.setattr(coordinator, "start", start)
    monkeypatch.setattr(coordinator, "time", SimpleNamespace(monotonic=lambda: now))
    with shared_slice(settings) as directory:
        supervisor = CoordinatorSupervisor(settings, directory)
        for _second in range(300):
            supervisor.check()
            now += 1.0
        supervisor.close()
    assert [after - before for before, after in pairwise(started)] == [
        *(1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
        *(64.0, 64.0, 64.0),
    ]


def test_a_coordinator_that_does_not_start_does_not_keep_us(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(HOLD, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as starter:
        monkeypatch.setattr(coordinator, "start", lambda _settings: starter)
        monkeypatch.setattr(coordinator, "END_DEADLINE", 0.01)
        with shared_slice(settings) as directory:
            supervisor = CoordinatorSupervisor(settings, directory)
            supervisor.check()
            supervisor.close()


def test_the_supervisor_of_a_removed_slice_does_nothing(settings: Settings) -> None:
    with shared_slice(settings) as directory:
        supervisor = CoordinatorSupervisor(settings, directory)
    supervisor.check()
    supervisor.close()
    assert running(settings) is None


# Versions, and other people's processes.


STAND_IN = """import fcntl, os, sys
lock = os.open(sys.argv[-1] + "/coordinator.lock", os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(lock, fcntl.LOCK_EX)
os.write(lock, f"{sys.argv[1] if sys.argv[1] != 'me' else os.getpid()} {sys.argv[2]}\\n".encode())
print("up", flush=True)
sys.stdin.read()
"""


@contextmanager
def stand_in(settings: Settings, version: str, pid: str = "me") -> Iterator[Started]:
    """A coordinator of another version, or a process that says a pid that is not its own."""
    arguments = [pid, version, "hami_py.coordinator", str(settings.runtime_directory)]
    command = [sys.executable, "-c", STAND_IN, *arguments]
    with Started(command, settings.environment) as started:
        yield started.wait_for("up")


def test_one_of_an_older_version_is_replaced(settings: Settings) -> None:
    with shared_slice(settings) as directory, stand_in(settings, "0.0.9") as older:
        assert running(settings) == Running(older.pid, "0.0.9")
        seen = ensure(settings, directory)
        assert seen.version == VERSION
        assert older.finish().code == -signal.SIGTERM


@pytest.mark.parametrize("version", [VERSION, "99.0.0", "unknown"])
def test_one_of_any_other_version_is_kept(settings: Settings, version: str) -> None:
    """Two installations must not end each other's for ever."""
    with shared_slice(settings) as directory, stand_in(settings, version) as other:
        assert ensure(settings, directory) == Running(other.pid, version)
        assert other.finish() == Run(0, "up\n", "")


def test_a_reused_pid_is_not_signalled(settings: Settings) -> None:
    with Started(["cat"], {}) as bystander, shared_slice(settings) as directory:
        with stand_in(settings, "0.0.9", str(bystander.pid)):
            ensure(settings, directory)
        assert bystander.finish() == Run(0, "", "")


@pytest.mark.parametrize("content", [b"", b"x\n", b"\xff" * 200, b"7 \n"])
def test_an_odd_lock_file_is_no_error(settings: Settings, content: bytes) -> None:
    with shared_slice(settings) as directory:
        path = settings.runtime_directory / LOCK
        path.write_bytes(content)
        with path.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert running(settings) == Running(0, "")
            assert coordinator.ensure(settings, directory) == ()
        assert ensure(settings, directory).version == VERSION


# Its messages.


def told(settings: Settings) -> tuple[bool, str, str]:
    """The doctor's line about it."""
    (check,) = [check for check in checks(settings) if check.name == "coordinator"]
    return check.ok, check.detail, check.fix


def test_the_doctor_reports_whether_one_runs(settings: Settings, hami: Hami) -> None:
    assert told(settings) == (True, "not running; the first slice with a share starts it", "")
    with shared_slice(settings) as directory:
        seen = ensure(settings, directory)
        assert told(settings) == (True, f"process {seen.pid}, version {VERSION}", "")
        named = {check["name"]: check for check in json.loads(hami("doctor", "--json").stdout)}
        assert named["coordinator"]["detail"] == f"process {seen.pid}, version {VERSION}"


def test_the_doctor_reports_why_the_last_one_failed(settings: Settings) -> None:
    with shared_slice(settings):
        log = settings.runtime_directory / LOG
        log.write_bytes(b"Traceback\n  there\nOSError: out of order\xff\n\n")
        ok, detail, fix = told(settings)
    assert (ok, detail) == (True, "not running; the last one failed: OSError: out of order�")
    assert str(log) in fix
