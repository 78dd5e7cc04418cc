"""A slice's directory, from its making to its removal, with real processes in it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from hami_py import CardLimit, StateError
from hami_py._native import Account, LimitsPage
from hami_py.slices import create, remove_stale, runtime
from hami_py.slices.processes import environment_of, has_host_pids, start_time
from hami_py.slices.programs import Command
from support.artifacts import ROOT
from support.requirements import skip_or_fail
from support.running import Started, run
from unit import machine
from unit.machine import DEADLINE, Hami, environment

ROWS = [CardLimit("GPU-1", 4 << 30), CardLimit("GPU-2", None)]
Slices = Callable[[], list[Path]]


@pytest.fixture
def ours(runtime: Path) -> Path:
    return runtime / "hami"


def test_the_contents_of_a_slice(ours: Path) -> None:
    with create(ours, ROWS, ["python", "train.py"]) as directory:
        assert directory.parent == ours / "slices"
        assert directory.stat().st_mode & 0o777 == 0o700
        assert sorted(path.name for path in directory.iterdir()) == [
            "account",
            "grants",
            "libvgpu.so",
            "limits",
            "slice.json",
        ]
        page = LimitsPage.open(directory / "limits")
        assert [(row.uuid, row.memory_limit, row.share) for row in page.rows()] == [
            ("GPU-1", 4 << 30, None),
            ("GPU-2", None, None),
        ]
        assert Account.open(directory / "account").snapshot().processes == []
        owner = json.loads((directory / "slice.json").read_text())
        assert owner["pid"] == os.getpid()
        assert owner["command"] == ["python", "train.py"]
        assert "T" in owner["created"]


def test_only_the_host_has_the_process_numbers_that_nvml_uses() -> None:
    """Kernel threads, such as process 2, are only there."""
    second = Path("/proc/2/comm")
    assert has_host_pids() == (second.exists() and second.read_text() == "kthreadd\n")


def test_a_container_does_not_have_them() -> None:
    if os.geteuid():
        skip_or_fail("only root may create a PID namespace")
    program = "from hami_py.slices.processes import has_host_pids; print(has_host_pids())"
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    done = run([*inside, sys.executable, "-c", program], {"PYTHONPATH": str(ROOT)})
    assert (done.out, done.err) == ("False\n", "")


def test_a_command_that_is_not_text_is_recorded(ours: Path) -> None:
    with create(ours, ROWS, ["\udcff\n"]) as directory:
        assert json.loads((directory / "slice.json").read_bytes())["command"] == ["\udcff\n"]


@pytest.mark.parametrize(
    ("command", "written"),
    [
        ([Path("/bin/true"), "-x"], ["/bin/true", "-x"]),
        ("train && evaluate", ["train && evaluate"]),
        (Path("/bin/true"), ["/bin/true"]),
    ],
)
def test_a_command_may_be_all_that_subprocess_takes(
    ours: Path, command: Command, written: list[str]
) -> None:
    with create(ours, ROWS, command) as directory:
        assert json.loads((directory / "slice.json").read_bytes())["command"] == written


def test_it_is_removed_after_an_error(ours: Path) -> None:
    with pytest.raises(ZeroDivisionError), create(ours, ROWS, []) as directory:
        raise ZeroDivisionError
    assert not directory.exists()


def test_it_stays_while_a_program_runs_in_it(ours: Path) -> None:
    """`nohup train.sh &`: it has not called CUDA yet and is in no account."""
    with create(ours, ROWS, []) as directory:
        variables = {"HAMI_SLICE": f"/outer:{directory}"}
        left = Started(["sh", "-c", "echo up; read _"], variables).wait_for("up")
    with left:
        assert directory.exists()
        assert remove_stale(ours) == 0
    assert remove_stale(ours) == 1
    assert not directory.exists()


# Overwrites its environment, as a daemon does to show a title, with our library mapped.
TITLED = """import mmap, os, sys
with open(sys.argv[1], "rb") as library:
    mapping = mmap.mmap(library.fileno(), 0, prot=mmap.PROT_READ)
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(fields[47]), int(fields[48])
with open("/proc/self/mem", "r+b", buffering=0) as memory:
    memory.seek(start)
    memory.write(bytes(end - start))
print("up", flush=True)
input()"""


def test_a_program_that_just_started_is_found_by_its_environment() -> None:
    """The kernel says that it is executed a little before its new environment can be read."""
    for _ in range(200):
        with subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"]}) as process:
            seen = environment_of(process.pid)
            process.kill()
        assert seen[0].startswith(b"PATH=")


@pytest.mark.parametrize(("name", "stays"), [("libvgpu.so", True), ("libother.so", False)])
def test_it_stays_while_a_daemon_may_be_in_it_that_overwrote_its_environment(
    ours: Path, tmp_path: Path, name: str, stays: bool
) -> None:
    library = tmp_path / name
    library.write_bytes(b"library")
    with create(ours, ROWS, []) as directory:
        variables = {"HAMI_SLICE": str(directory)}
        daemon = Started([sys.executable, "-c", TITLED, library], variables).wait_for("up")
    with daemon:
        assert directory.exists() is stays
        # Made after the daemon was started, a slice cannot be its own; a tick is 10 ms.
        started = start_time(daemon.pid) / os.sysconf("SC_CLK_TCK")
        while time.clock_gettime(time.CLOCK_BOOTTIME) < started + 0.02:
            time.sleep(0.01)
        with create(ours, ROWS, []) as later:
            pass
        assert not later.exists()
        assert directory.exists() is stays
    assert remove_stale(ours) == int(stays)


def test_a_containers_library_does_not_keep_a_slice(ours: Path, tmp_path: Path) -> None:
    """Its limits lie beside it: such a process is in no slice of ours."""
    library = tmp_path / "libvgpu.so"
    library.write_bytes(b"library")
    (tmp_path / "limits").touch()
    with create(ours, ROWS, []) as directory:
        daemon = Started([sys.executable, "-c", TITLED, library], {}).wait_for("up")
    with daemon:
        assert not directory.exists()


def test_it_stays_while_its_owner_lives(ours: Path) -> None:
    with create(ours, ROWS, []) as directory:
        assert remove_stale(ours) == 0
        with create(ours, ROWS, []) as other:
            assert directory.exists()
        assert directory.exists()
        assert not other.exists()


def test_the_slice_of_a_killed_owner_is_removed_by_the_next(ours: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from hami_py.slices import create\n"
        "with create(Path(sys.argv[1]), [], []): print('up', flush=True); input()"
    )
    with Started([sys.executable, "-c", script, ours], environment(ours)) as owner:
        owner.wait_for("up")
        (directory,) = (ours / "slices").iterdir()
    assert directory.exists()
    with create(ours, ROWS, []) as other:
        assert list((ours / "slices").iterdir()) == [other]


@pytest.mark.parametrize("kept", [[], ["slice.json"], ["limits"], ["slice.json", "limits"]])
def test_an_incomplete_slice_is_removed(ours: Path, kept: list[str]) -> None:
    ours.mkdir(mode=0o700)
    directory = ours / "slices" / "half"
    directory.mkdir(parents=True)
    for name in kept:
        (directory / name).write_bytes(b"\0")
    assert remove_stale(ours) == 1
    assert not directory.exists()


def test_a_link_in_it_is_removed_and_not_followed(ours: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    directory = ours / "slices" / "odd"
    with create(ours, ROWS, []):
        pass
    directory.mkdir()
    (directory / "link").symlink_to(precious)
    assert remove_stale(ours) == 1
    assert (precious / "file").exists()


def test_nothing_to_remove_is_no_error(ours: Path) -> None:
    assert remove_stale(ours) == 0


def test_a_file_in_its_place_is_reported_in_one_line(ours: Path, hami: Hami) -> None:
    ours.mkdir(mode=0o700)
    (ours / "slices").touch()
    with pytest.raises(StateError, match="File exists"), create(ours, ROWS, []):
        pass
    with pytest.raises(StateError, match="Not a directory"):
        remove_stale(ours)
    done = hami("run", "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1)
    done = hami("doctor")
    assert (done.returncode, done.stderr) == (1, "")
    assert "Not a directory" in done.stdout


def test_a_runtime_directory_removed_meanwhile_is_no_error(ours: Path, hami: Hami) -> None:
    """At the end of a session; the exit code is the program's all the same."""
    done = hami("run", "--", "sh", "-c", f"rm -r {ours}; exit 7")
    assert (done.returncode, done.stderr) == (7, "")


def test_a_failed_removal_is_left_to_the_next(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "LOCK_DEADLINE", 0.0)
    with ExitStack() as another:
        with pytest.raises(StateError, match="another process"), create(ours, ROWS, []) as left:
            another.enter_context(runtime.locked(ours / "slices"))
        assert left.exists()
    assert remove_stale(ours) == 1


def test_concurrent_owners_never_remove_each_others_slices(hami: Hami, slices_of: Slices) -> None:
    """Each start cleans up; none may remove what another has just made."""
    script = 'for part in limits account slice.json; do test -f "$HAMI_SLICE/$part" || exit 9; done'
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: hami("run", "--", "sh", "-c", script), range(24)))
    assert [(run.returncode, run.stderr) for run in done] == [(0, "")] * 24
    assert slices_of() == []


def test_the_owners_lock_is_not_inherited_by_the_program(hami: Hami, slices_of: Slices) -> None:
    done = hami("run", "--", "sh", "-c", "ls -l /proc/self/fd")
    assert "slice.json" not in done.stdout


def test_hami_run_leaves_the_slice_to_a_process_that_continues(
    runtime: Path, hami: Hami, slices_of: Slices, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = f"(read _ < {fifo}) </dev/null >/dev/null 2>&1 & echo $!"
    done = hami("run", "--", "sh", "-c", script)
    background = int(done.stdout)
    assert done.returncode == 0
    assert len(slices_of()) == 1
    os.kill(background, signal.SIGKILL)
    until = time.monotonic() + DEADLINE
    while slices_of():
        assert time.monotonic() < until
        assert hami("run", "--", "true").returncode == 0


def test_a_killed_hami_run_leaves_the_program_its_slice(
    runtime: Path, slices_of: Slices, tmp_path: Path
) -> None:
    script = f"echo $$ > {tmp_path}/pid; echo up; read _"
    command = machine.command("run", "--", "sh", "-c", script)
    with Started(command, environment(runtime)) as running:
        running.wait_for("up")
        os.kill(running.pid, signal.SIGKILL)
        # Dead, and left for its parent to collect.
        os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
        assert remove_stale(runtime / "hami") == 0
        assert len(slices_of()) == 1
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        until = time.monotonic() + DEADLINE
        while remove_stale(runtime / "hami") == 0:
            assert time.monotonic() < until
            time.sleep(0.01)
    assert slices_of() == []
