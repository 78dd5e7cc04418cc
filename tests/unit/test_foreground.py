"""``hami run`` is out of the way: exit codes, signals, terminal, standard input."""

import os
import pty
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from unit import machine
from unit.machine import DEADLINE, Hami

Start = Callable[..., "subprocess.Popen[str]"]

# Says each signal that it gets, and their numbers when it is told to end. `os.write`, because
# a signal may arrive in the middle of a `print`.
COUNTER = """import os, signal, sys
count = {}
def say(text): os.write(1, f"{text}\\n".encode())
def note(number, frame):
    count[number] = count.get(number, 0) + 1
    say(signal.Signals(number).name)
for name in sys.argv[1].split(","):
    signal.signal(signal.Signals[name], note)
say("up")
for line in sys.stdin:
    if line == "end\\n": break
say(sorted(count.values()))"""


@pytest.fixture
def start(runtime: Path) -> Iterator[Start]:
    """``hami run`` with a program, left running; its first line was "up"."""
    running: list[subprocess.Popen[str]] = []

    def run(*command: str, **options: object) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            machine.command("run", "--", *command),
            env=machine.environment(runtime),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **options,  # type: ignore[call-overload]
        )
        running.append(process)
        line(process, "up")
        return process

    yield run
    for process in running:
        # The end of input ends every program of these tests, a stopped one's after SIGCONT.
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=DEADLINE)


def line(process: "subprocess.Popen[str]", expected: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{expected}\n"


def tell(process: "subprocess.Popen[str]", text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


@pytest.mark.parametrize("code", [0, 1, 2, 7, 125, 126, 127, 255])
def test_the_exit_code_is_the_programs(hami: Hami, code: int) -> None:
    done = hami("run", "--", "sh", "-c", f"exit {code}")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV", "ABRT", "INT", "PIPE", "HUP", "USR1"])
def test_a_death_by_signal_is_passed_on_as_one(
    hami: Hami, slices_of: Callable[[], list[Path]], name: str
) -> None:
    done = hami("run", "--", "sh", "-c", f"kill -{name} $$")
    assert done.returncode == -signal.Signals[f"SIG{name}"]
    assert slices_of() == []


def test_a_shell_sees_the_signal(runtime: Path) -> None:
    done = subprocess.run(
        [
            "sh",
            "-c",
            '"$@"; echo $?',
            "sh",
            *machine.command("run", "--", "sh", "-c", "kill -9 $$"),
        ],
        env=machine.environment(runtime),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.stdout == "137\n"


def test_a_death_by_signal_leaves_no_core_of_ours(runtime: Path, tmp_path: Path) -> None:
    """Only where cores are files in the working directory; elsewhere there is nothing to see."""
    done = subprocess.run(
        machine.command("run", "--", "sh", "-c", "ulimit -c 0; kill -SEGV $$"),
        env=machine.environment(runtime),
        cwd=tmp_path,
        timeout=DEADLINE,
        check=False,
        preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2
        ),
    )
    assert done.returncode == -signal.SIGSEGV
    assert list(tmp_path.glob("core*")) == []


def test_a_program_that_is_not_there_is_127(hami: Hami) -> None:
    for name in ("no-such-program", "/no/such/program"):
        done = hami("run", "--", name)
        assert done.returncode == 127
        assert done.stderr.startswith(f"hami: {name}: it was not found")
        assert done.stderr.count("\n") == 1


def test_a_program_that_cannot_be_executed_is_126(hami: Hami, tmp_path: Path) -> None:
    plain, empty = tmp_path / "plain", tmp_path / "empty"
    plain.write_text("#!/bin/sh\n")
    empty.touch()
    empty.chmod(0o755)
    for path, why in [
        (plain, "Permission denied"),
        (tmp_path, "Permission denied"),
        (empty, "Exec format error"),
        ("", "posix_spawnp: argv first element cannot be empty"),
    ]:
        done = hami("run", "--", str(path))
        assert done.returncode == 126
        assert done.stderr.startswith(f"hami: {path}: {why}")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [[], ["--gpumem"], ["--no-such-option", "true"], ["--device", "7", "true"], ["--gpumem", "x"]],
)
def test_a_command_line_that_is_not_understood_is_125(hami: Hami, arguments: list[str]) -> None:
    done = hami("run", *arguments)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("hami: ")
    assert done.stderr.count("\n") == 1


def test_without_a_driver_it_is_125(runtime: Path) -> None:
    """The real NVML, looked for where there is none."""
    done = subprocess.run(
        [sys.executable, "-c", NO_NVML, "run", "--", "echo", "ran"],
        env=machine.environment(runtime),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("hami: NVML: libnvidia-ml.so.1 is not there; install the NVIDIA")


NO_NVML = """import pynvml
def missing(name): raise OSError(name)
pynvml.CDLL = missing
from hami_py.cli import main
main()"""


def test_bytes_that_are_no_text_reach_the_program(runtime: Path) -> None:
    done = subprocess.run(
        [*machine.command("run", "--", "printf", "%s"), b"\xff"],
        env=machine.environment(runtime),
        capture_output=True,
        timeout=DEADLINE,
        check=True,
    )
    assert done.stdout == b"\xff"


def test_options_after_the_program_are_the_programs(hami: Hami) -> None:
    for separator in ([], ["--"]):
        done = hami("run", *separator, "echo", "--gpumem", "1", "--", "-x", "")
        assert (done.returncode, done.stdout) == (0, "--gpumem 1 -- -x \n")


def test_standard_input_and_output_are_the_programs(runtime: Path) -> None:
    data = bytes(range(256)) * 1000
    done = subprocess.run(
        machine.command("run", "--", "cat"),
        env=machine.environment(runtime),
        input=data,
        capture_output=True,
        timeout=DEADLINE,
        check=True,
    )
    assert done.stdout == data


STATE = """import json, os, signal
blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
ignored = [s for s in signal.valid_signals()
    if int(open('/proc/self/status').read().split('SigIgn:')[1].split()[0], 16) >> (s - 1) & 1]
print(sorted(map(int, blocked)), sorted(map(int, ignored)))
print(sorted(os.listdir('/proc/self/fd')), os.getpgid(0) == os.getpgid(os.getppid()))"""


def test_a_program_starts_as_it_would_without_us(runtime: Path) -> None:
    """Signal mask, ignored signals, open files, process group; Python ignores SIGPIPE by itself."""
    program = [sys.executable, "-c", STATE]
    bare, limited = (
        subprocess.run(
            ["sh", "-c", 'trap "" USR1; "$@"; exit', "sh", *command],
            env=machine.environment(runtime),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=True,
        ).stdout
        for command in (program, machine.command("run", "--", *program))
    )
    assert limited == bare


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH"])
def test_a_signal_sent_to_us_is_passed_on_once(start: Start, name: str) -> None:
    process = start(sys.executable, "-c", COUNTER, f"SIG{name}")
    process.send_signal(signal.Signals[f"SIG{name}"])
    line(process, f"SIG{name}")
    tell(process, "end")
    line(process, "[1]")
    assert process.wait(DEADLINE) == 0


def test_a_signal_that_ends_the_program_ends_us(
    start: Start, slices_of: Callable[[], list[Path]]
) -> None:
    process = start("sh", "-c", "echo up; exec sleep 600")
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == -signal.SIGTERM
    assert slices_of() == []


def test_an_ignored_signal_stays_ignored(start: Start) -> None:
    """As `nohup` has it."""

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    process = start("sh", "-c", "echo up; read _; exit 3", preexec_fn=ignore)
    process.send_signal(signal.SIGHUP)
    tell(process, "")
    assert process.wait(DEADLINE) == 3


def test_a_parent_that_ignores_children_still_learns_the_exit_code(start: Start) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    process = start("sh", "-c", "echo up; read _; exit 3", preexec_fn=ignore)
    tell(process, "")
    assert process.wait(DEADLINE) == 3


def test_stopping_and_continuing(start: Start) -> None:
    # A group of its own within our session: in an orphaned one the kernel ignores SIGTSTP.
    process = start("sh", "-c", "echo up; read _; exit 3", preexec_fn=lambda: os.setpgid(0, 0))
    process.send_signal(signal.SIGTSTP)
    _pid, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert os.WSTOPSIG(status) == signal.SIGTSTP
    process.send_signal(signal.SIGCONT)
    tell(process, "")
    assert process.wait(DEADLINE) == 3


class Terminal:
    """``hami run`` as the leader of a terminal's session, as `ssh -t host hami run` has it."""

    def __init__(self, runtime: Path, *command: str) -> None:
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.execve(  # noqa: S606
                sys.executable, machine.command("run", "--", *command), machine.environment(runtime)
            )
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> None:
        while text not in self._seen:
            try:
                self._seen += os.read(self._master, 4096).decode()
            except OSError as error:
                raise AssertionError(f"ended without {text!r}: {self._seen!r}") from error
        self._seen = self._seen.partition(text)[2]

    def hang_up(self) -> None:
        os.close(self._master)

    def end(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_what_the_terminal_sends_reaches_the_program_once(runtime: Path) -> None:
    """Ctrl-C goes to the whole group; passed on by us, the program would get it twice."""
    terminal = Terminal(runtime, sys.executable, "-c", COUNTER, "SIGINT,SIGUSR1")
    terminal.wait_for("up")
    terminal.type("\x03")
    terminal.wait_for("SIGINT")
    # Sent later and passed on: whatever was passed on before it has arrived by then.
    os.kill(terminal.pid, signal.SIGUSR1)
    terminal.wait_for("SIGUSR1")
    terminal.type("end\n")
    terminal.wait_for("[1, 1]")
    assert terminal.end() == 0
    terminal.hang_up()


def test_a_hang_up_reaches_the_program(runtime: Path, slices_of: Callable[[], list[Path]]) -> None:
    """The kernel tells the session's leader alone, which is us."""
    terminal = Terminal(runtime, "sh", "-c", "echo up; exec sleep 600")
    terminal.wait_for("up")
    terminal.hang_up()
    assert terminal.end() == -signal.SIGHUP
    assert slices_of() == []
