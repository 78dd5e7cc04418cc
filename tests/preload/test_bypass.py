"""Programs of a slice that the dynamic loader started without the library are found and named.

They used the GPU without limits, and only the loader printed a line about it.
"""

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import sys
import time
from pathlib import Path

import pytest

from hami_py.slices.processes import user_name
from support.commands import HamiCommand
from support.running import DEADLINE, Started

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it mounts file systems")

#: In a new mount namespace, before the program is executed. {library} and {folder} are paths.
HIDDEN = {
    "masked": "mount -t tmpfs none {folder}",
    "noexec": "mount --bind {folder} {folder}; mount -o remount,bind,noexec {folder}",
    "empty": "mount --bind {empty} {library}",
    "no library": "mount --bind {text} {library}",
}
WORDS = {
    "masked": "No such file|the file does not exist",
    "noexec": "its file system is mounted noexec",
    "empty": "the file is empty",
    "no library": "it is not a library",
}


def wait_for_checks():
    """Wait while ``hami run`` examines the processes at least twice more; it does each second.

    Nothing shows that it has found nothing.
    """
    time.sleep(2.2)


class HamiRun:
    """``hami run`` with a kept library that a test can hide, and its standard error."""

    def __init__(self, hami, gpu, folder):
        self.hami, self.gpu, self.folder = hami, gpu, folder
        self.env = hami.env(gpu)
        digest = hashlib.sha256(Path(self.env["HAMI_LIBRARY"]).read_bytes()).hexdigest()[:16]
        kept = Path(self.env["XDG_DATA_HOME"]) / "hami" / "library" / digest
        self.library = kept / "libvgpu.so"
        self._programs = contextlib.ExitStack()
        self._count = 0

    def __call__(self, *command, options=()):
        self._count += 1
        errors = self.folder / f"errors{self._count}"
        line = ["sh", "-c", f'exec "$@" 2>{errors}', "sh", sys.executable, "-m", "hami_py", "run"]
        words = [*line, "--gpumem", "1GiB", *options, "--", *map(str, command)]
        return Running(self._programs.enter_context(Started(words, self.env)), errors)

    def hidden(self, how, *command):
        """A command that runs in a mount namespace in which the library is hidden."""
        (self.folder / "empty").touch()
        (self.folder / "text").write_text("no library")
        names = {"folder": self.library.parent, "library": self.library}
        names |= {name: self.folder / name for name in ("empty", "text")}
        line = HIDDEN[how].format_map(names) + '; exec "$@"'
        return ["unshare", "--mount", "sh", "-ec", line, "sh", *map(str, command)]

    def ps(self, *options):
        done = run_hami(self, "ps", *options)
        assert (done.code, done.err) == (0, "")
        return done.out

    def end(self):
        self._programs.close()


def run_hami(hami_run, *arguments):
    with Started([sys.executable, "-m", "hami_py", *arguments], hami_run.env) as started:
        return started.finish()


class Running:
    """A running ``hami run``."""

    def __init__(self, started, errors):
        self.started = started
        self._errors = errors

    def ours(self):
        """The lines of hami on standard error; the loader prints its own."""
        lines = self._errors.read_text().splitlines() if self._errors.exists() else []
        return [line for line in lines if line.startswith("hami: ")]

    def wait_for_line(self):
        """Wait until hami has reported something."""
        until = time.monotonic() + DEADLINE
        while not self.ours():
            assert time.monotonic() < until, f"nothing was reported: {self._errors.read_text()}"
            time.sleep(0.02)
        return self.ours()[0]

    def end(self):
        """End the program's input and wait for its end; gives the exit code."""
        return self.started.finish().code


@pytest.fixture
def hami_run(artifacts, gpu, tmp_path):
    hami = HamiCommand(artifacts, tmp_path / "runtime")
    runner = HamiRun(hami, gpu, tmp_path)
    try:
        yield runner
    finally:
        runner.end()
    assert hami.slices() == [], "slices were left behind"


def held(gpu):
    return int(gpu.ledger()["cards"][0]["held"]["now"])


@needs_root
@pytest.mark.parametrize("how", HIDDEN)
def test_a_hidden_library_is_reported_once_with_cause_and_fix(hami_run, program, how):
    running = hami_run(*hami_run.hidden(how, program("hold"), "2000"))
    running.started.wait_for("holding")
    line = running.wait_for_line()
    assert f"{program('hold')} 2000" in line
    assert "it uses the GPU without limits" in line
    assert str(hami_run.library) in line
    assert any(words in line for words in WORDS[how].split("|")), line
    # The program goes on, and is not reported again in the next two checks.
    wait_for_checks()
    assert held(hami_run.gpu) > 0
    assert running.end() == 0
    assert running.ours() == [line]


@needs_root
@pytest.mark.parametrize("how", HIDDEN)
def test_strict_ends_a_program_whose_library_is_hidden(hami_run, program, how):
    running = hami_run(*hami_run.hidden(how, program("hold"), "2000"), options=("--strict",))
    line = running.wait_for_line()
    # Its input is still open, so the program has not ended by itself.
    assert wait_for_end(running) == 125
    assert running.ours() == [line]
    assert "the program was ended (--strict)" in line
    assert not processes_with(hami_run.library)
    assert held(hami_run.gpu) == 0


@needs_root
@pytest.mark.parametrize("options", [(), ("--strict",)])
def test_a_program_in_nested_namespaces_is_found(hami_run, program, options):
    """By its number here, not by the one that it has there."""
    inner = hami_run.hidden("masked", program("hold"), "100")
    outer = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    running = hami_run(*outer, *inner, options=options)
    line = running.wait_for_line()
    pid = int(line.split()[2])
    assert pid != 1
    if options:
        assert wait_for_end(running) == 125
        assert not processes_with(hami_run.library)
    else:
        assert Path(f"/proc/{pid}/cmdline").read_bytes().startswith(os.fsencode(program("hold")))
        assert running.end() == 0


@needs_root
def test_strict_ran_a_program_that_gets_other_rights(hami_run, program):
    """As `sudo` does: the loader ignores the library, and only root could examine the process."""
    other = hami_run.folder / "other"
    shutil.copy(program("hold"), other)
    os.chown(other, 64001, -1)
    other.chmod(0o4755)
    running = hami_run(other, "2000", options=("--strict",))
    assert running.end() == 125
    assert "the loader ignores the library (--strict)" in running.ours()[0]
    assert held(hami_run.gpu) == 0


@pytest.mark.parametrize("options", [(), ("--strict",)])
def test_a_program_without_ld_preload_is_found_after_exec(hami_run, program, options):
    """The same process was limited before."""
    line = f"sleep 0.4; exec env -u LD_PRELOAD {program('hold')} 100"
    running = hami_run("sh", "-c", line, options=options)
    told = running.wait_for_line()
    assert "LD_PRELOAD does not name the library" in told
    if options:
        assert wait_for_end(running) == 125
    else:
        assert running.end() == 0
        assert running.ours() == [told]


@pytest.mark.parametrize("options", [(), ("--strict",)])
@pytest.mark.parametrize("kind", ["worker", "daemon"])
def test_a_worker_and_a_daemon_are_found(hami_run, program, options, kind):
    """The program itself is limited. A worker is a descendant, a daemon has the slice's name."""
    hold = f"{program('hold')} 100 <&3"
    keep = "LD_LIBRARY_PATH=$LD_LIBRARY_PATH STUB_GPU_SOCKET=$STUB_GPU_SOCKET"
    start = {
        "worker": f"env -i {keep} {hold} &",
        "daemon": f"setsid -f env -u LD_PRELOAD {hold};",
    }
    text = f"exec 3<&0; {start[kind]} read _; true"
    running = hami_run("sh", "-c", text, options=options)
    line = running.wait_for_line()
    assert str(program("hold")) in line
    if options:
        assert wait_for_end(running) == 125
        assert not processes_with(hami_run.library)
    else:
        assert running.end() == 0
    wait_until(lambda: held(hami_run.gpu) == 0)
    wait_until(lambda: not holding(program("hold")))


@pytest.mark.parametrize("options", [(), ("--strict",)])
def test_a_limited_program_is_not_reported(hami_run, program, options):
    running = hami_run(program("hold"), "100", options=options)
    running.started.wait_for("holding")
    wait_for_checks()
    assert running.end() == 0
    assert running.ours() == []


@pytest.mark.parametrize("options", [(), ("--strict",)])
def test_a_static_program_that_uses_no_driver_is_left_alone(hami_run, program, options):
    running = hami_run(program("waits", "-static"), options=options)
    running.started.wait_for("waiting")
    wait_for_checks()
    assert "not limited" not in hami_run.ps("-p")
    assert running.end() == 0
    assert running.ours() == []


FORKS_ON_INPUT = """
import ctypes, os, sys
assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
print("initialised", flush=True)
sys.stdin.readline()
child = os.fork()
if child == 0:
    print("forked", flush=True)
    sys.stdin.read()
    os._exit(0)
os.waitpid(child, 0)
"""

READS_THE_DRIVER = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
print("waiting", flush=True)
sys.stdin.read()
"""


def test_a_tool_that_reads_the_drivers_file_is_left_alone(hami_run):
    """A debugger maps the file, and nothing of it can be executed."""
    driver = Path(hami_run.gpu.env["LD_LIBRARY_PATH"]) / "libcuda.so.1"
    read = [sys.executable, "-c", READS_THE_DRIVER, driver]
    running = hami_run("env", "-u", "LD_PRELOAD", *read, options=("--strict",))
    running.started.wait_for("waiting")
    wait_for_checks()
    assert (running.end(), running.ours()) == (0, [])


def test_a_library_that_is_renamed_during_the_run_still_counts(hami_run):
    """An update keeps the old file under another name, and the program forks."""
    running = hami_run(sys.executable, "-c", FORKS_ON_INPUT, options=("--strict",))
    running.started.wait_for("initialised")
    old = hami_run.library.rename(hami_run.library.with_name("libvgpu.so.old"))
    shutil.copy(old, hami_run.library)
    running.started.tell("")
    running.started.wait_for("forked")
    wait_for_checks()
    assert running.ours() == []
    assert running.end() == 0


@needs_root
def test_a_dynamic_program_that_uses_no_driver_is_left_alone(hami_run, program):
    running = hami_run(*hami_run.hidden("masked", program("waits")), options=("--strict",))
    running.started.wait_for("waiting")
    wait_for_checks()
    assert running.end() == 0
    assert running.ours() == []


def test_processes_that_end_while_they_are_examined_disturb_nothing(hami_run, program):
    text = f"for i in $(seq 400); do /bin/true & {program('empty')}; done; wait"
    running = hami_run("sh", "-c", text, options=("--strict",))
    assert running.end() == 0
    assert running.ours() == []


def test_a_program_of_another_run_in_the_slice_is_left_to_that_run(hami_run, program):
    first = hami_run(program("waits"), options=("--name", "both", "--strict"))
    first.started.wait_for("waiting")
    join = [sys.executable, "-m", "hami_py", "run", "--join", "both", "--"]
    errors = hami_run.folder / "second"
    words = shlex.join([*join, "env", "-u", "LD_PRELOAD", str(program("hold")), "100"])
    with Started(["sh", "-c", f"exec {words} 2>{errors}"], hami_run.env) as second:
        second.wait_for("holding")
        wait_until(lambda: "without limits" in errors.read_text())
        wait_for_checks()
        assert second.finish().code == 0
    assert first.end() == 0
    assert first.ours() == []


def test_ps_and_the_doctor_show_it(hami_run, program):
    words = ("sh", "-c", f"env -u LD_PRELOAD {program('hold')} 100; true")
    running = hami_run(*words, options=("--name", "loose"))
    running.started.wait_for("holding")
    why = "LD_PRELOAD does not name the library in its environment"
    table = hami_run.ps("-p").splitlines()
    assert "  2 (1 not limited)  running" in table[1]
    (shown,) = [line for line in table[2:] if "not limited" in line]
    said = [user_name(os.geteuid()), f"not limited: {why}", f"{program('hold')} 100"]
    assert shown.split("  ")[2:] == said
    (slice_,) = json.loads(hami_run.ps("--json"))
    told = {process["command"][0]: process["bypass"] for process in slice_["processes"]}
    assert told == {"sh": None, str(program("hold")): why}
    checks = json.loads(run_hami(hami_run, "doctor", "--json").out)
    (found,) = [check for check in checks if check["name"] == "running programs"]
    assert found["ok"]
    assert why in found["detail"]
    assert "hami doctor -- PROGRAM" in found["fix"]
    assert running.end() == 0


@needs_root
@pytest.mark.parametrize("how", ["noexec", "empty", "no library"])
def test_a_library_that_no_loader_takes_is_refused_before_the_program_starts(
    hami_run, program, how
):
    package = hami_run.folder / "lib" / "libvgpu.so"
    package.parent.mkdir()
    hami_run.library = Path(shutil.copy(hami_run.env["HAMI_LIBRARY"], package))
    hami_run.env["HAMI_LIBRARY"] = str(package)
    hami = [sys.executable, "-m", "hami_py"]
    for command in (["run", "--", "echo", "started"], ["doctor", "--", str(program("waits"))]):
        with Started(hami_run.hidden(how, *hami, *command), hami_run.env) as started:
            done = started.finish()
        assert done.code == (125 if command[0] == "run" else 1)
        assert "started" not in done.out
        told = done.err if command[0] == "run" else done.out
        assert f"preload library {hami_run.library}: {WORDS[how]}" in told


def wait_until(holds):
    until = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def wait_for_end(running):
    """The exit code of a `hami run` that ends although its input is open."""
    code: list[int] = []

    def has_ended():
        waited = os.waitid(os.P_PID, running.started.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if waited is not None:
            code.append(waited.si_status)
        return bool(code)

    wait_until(has_ended)
    return code[0]


def processes_with(library):
    """Processes that were started to have this library."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"LD_PRELOAD={library}".encode() in (process / "environ").read_bytes():
                found.append(process.name)
    return found


def holding(hold):
    """Whether the program runs anywhere."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cmdline").read_bytes().startswith(os.fsencode(hold) + b"\0"):
                return True
    return False
