"""``hami run`` is out of the way: signals and the terminal."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hami_py.slices import group_signals
from unit import machine
from unit.machine import DEADLINE, Hami

Start = Callable[..., "subprocess.Popen[str]"]

# Says each signal that it gets, and their numbers when it is told to end. `os.write`, because
# a signal may arrive in the middle of a `print`. `select` on Python's wake-up pipe, because Python
# calls a handler only after the system call: one that comes just before a `read` would wait for it.
COUNTER = """import os, select, signal, sys
count = {}
def say(text): os.write(1, f"{text}\\n".encode())
def note(number, frame):
    count[number] = count.get(number, 0) + 1
    say(signal.Signals(number).name)
wakes, waker = os.pipe2(os.O_NONBLOCK)
signal.set_wakeup_fd(waker)
for name in sys.argv[1].split(","):
    signal.signal(signal.Signals[name], note)
say("up")
told = b""
while told not in (b"end\\n", b"end of input"):
    ready = select.select([0, wakes], [], [])[0]
    if wakes in ready: os.read(wakes, 4096)
    if 0 in ready: told = os.read(0, 4096) or b"end of input"
say(sorted(count.values()))"""


@pytest.fixture
def start(runtime: Path) -> Iterator[Start]:
    """``hami run`` with a program, left running; its first line was "up".

    ``ignored`` is a signal that the parent ignores.
    """
    running: list[subprocess.Popen[str]] = []

    def run(
        *command: str, ignored: str | None = None, **options: object
    ) -> "subprocess.Popen[str]":
        ignore = ["sh", "-c", f"trap '' {ignored}; exec \"$@\"", "sh"] if ignored else []
        process = subprocess.Popen(
            [*ignore, *machine.command("run", "--", *command)],
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


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH"])
def test_a_signal_sent_to_us_is_passed_on_once(start: Start, name: str) -> None:
    process = start(sys.executable, "-c", COUNTER, f"SIG{name}")
    process.send_signal(signal.Signals[f"SIG{name}"])
    line(process, f"SIG{name}")
    tell(process, "end")
    line(process, "[1]")
    assert process.wait(DEADLINE) == 0


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "USR1"])
def test_a_signal_sent_to_the_group_reaches_the_program_once(start: Start, name: str) -> None:
    """`kill %1` sends it to the group, `timeout` to us and to the group, a service manager to each
    process by itself. Then one to us alone: by its number is seen what came before.
    """
    number = signal.Signals[f"SIG{name}"]
    process = start(sys.executable, "-c", COUNTER, f"SIG{name},SIGWINCH", process_group=0)

    def to_the_group() -> None:
        os.killpg(process.pid, number)

    def as_timeout_does() -> None:
        process.send_signal(number)
        os.killpg(process.pid, number)

    def to_each() -> None:
        for pid in group(process.pid):
            os.kill(pid, number)

    for send in (to_the_group, as_timeout_does, to_each):
        # We stand still until all is sent, however long the machine takes for it.
        process.send_signal(signal.SIGSTOP)
        send()
        line(process, f"SIG{name}")
        process.send_signal(signal.SIGCONT)
        # This signal was sent later and has a higher number, so it is received later. Every signal
        # to be passed on has arrived by then.
        process.send_signal(signal.SIGWINCH)
        line(process, "SIGWINCH")
    process.send_signal(number)
    line(process, f"SIG{name}")
    tell(process, "end")
    line(process, "[3, 4]")
    assert process.wait(DEADLINE) == 0


def group(leader: int) -> list[int]:
    """The processes of a process group."""
    members = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(process.name)) == leader:
                members.append(int(process.name))
        except ProcessLookupError:
            continue
    return members


def test_earlier_terminal_signals_do_not_hide_a_sent_signal(runtime: Path) -> None:
    """Ctrl-C goes to all; the same signal, sent to us alone afterwards, is passed on."""
    terminal = Terminal(runtime, sys.executable, "-c", COUNTER, "SIGINT")
    terminal.wait_for("up")
    before = group(terminal.pid)
    terminal.type("\x03")
    terminal.wait_for("SIGINT")
    # Ours is handled when another observer has started.
    until = time.monotonic() + DEADLINE
    while len(after := group(terminal.pid)) < 3 or set(after) == set(before):
        assert time.monotonic() < until
    os.kill(terminal.pid, signal.SIGINT)
    terminal.wait_for("SIGINT")
    terminal.type("end\n")
    terminal.wait_for("[2]")
    assert terminal.end() == 0
    terminal.hang_up()


BESIDE_A_THREAD = """import os, signal, sys, threading
from pathlib import Path
from hami_py.slices import run_in_foreground
threading.Thread(target=threading.Event().wait, daemon=True).start()
def check(program):
    if sys.argv[1] == "CHLD":
        os.waitid(os.P_PID, program, os.WEXITED | os.WNOWAIT)
    else:
        os.kill(os.getpid(), signal.SIGTERM)
    while "ShdPnd:\\t0000000000000000" not in Path("/proc/self/status").read_text():
        pass
    return 600.0
print(run_in_foreground(sys.argv[2:], os.environ, check))"""


@pytest.mark.parametrize(
    ("name", "program", "ended"),
    [("CHLD", ["true"], 0), ("TERM", ["sleep", "60"], -signal.SIGTERM)],
)
def test_no_signal_is_lost_in_a_thread_of_the_driver(
    name: str, program: list[str], ended: int
) -> None:
    """Such a thread blocks no signal, and the signal arrives while the main thread works."""
    command = [sys.executable, "-c", BESIDE_A_THREAD, name, *program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (f"{ended}\n", "", 0)


def test_a_destructor_that_never_returns_does_not_keep_us(runtime: Path) -> None:
    """As that of a driver in which a thread hangs."""
    script = (
        "import atexit, runpy, sys, threading; atexit.register(threading.Event().wait);"
        " del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    hami = machine.command("run", "--", "sh", "-c", "exit 3")
    command = [sys.executable, "-c", script, *hami[1:]]
    env = machine.environment(runtime)
    assert subprocess.run(command, env=env, timeout=DEADLINE, check=False).returncode == 3


def test_a_killed_child_that_does_not_end_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a driver that fails keeps it."""

    def waitpid(_pid: int, options: int) -> tuple[int, int]:
        assert options == os.WNOHANG
        return 0, 0

    monkeypatch.setattr(group_signals, "END_DEADLINE", 0.01)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        with monkeypatch.context() as patched:
            patched.setattr(os, "waitpid", waitpid)
            group_signals.kill_child(child.pid)
        assert child.wait(DEADLINE) == -signal.SIGKILL


def test_no_process_of_ours_is_left_in_the_group(start: Start) -> None:
    """A program that waits for the end of a pipe, or for an empty group, must not wait for us."""
    process = start("sh", "-c", "echo up; read _", process_group=0)
    ours = set(group(process.pid))
    assert len(ours) == 3
    process.kill()
    process.wait(DEADLINE)
    # The program ends with its input; a process that still held our output would keep it open.
    process.communicate(timeout=DEADLINE)
    until = time.monotonic() + DEADLINE
    while group(process.pid):
        assert time.monotonic() < until


def test_a_signal_that_ends_the_program_ends_us(
    start: Start, slices_of: Callable[[], list[Path]]
) -> None:
    process = start("sh", "-c", "echo up; exec sleep 600")
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == -signal.SIGTERM
    assert slices_of() == []


def test_a_closed_standard_output_does_not_hide_the_signal(hami: Hami) -> None:
    without = ["sh", "-c", 'exec "$@" >&-', "sh"]
    assert hami("run", "--", "sh", "-c", "kill -TERM $$", around=without).returncode == -15


def test_an_ignored_signal_stays_ignored(start: Start) -> None:
    """As `nohup` has it."""
    process = start("sh", "-c", "echo up; read _; exit 3", ignored="HUP")
    process.send_signal(signal.SIGHUP)
    tell(process, "")
    assert process.wait(DEADLINE) == 3


def test_a_parent_that_ignores_children_still_learns_the_exit_code(start: Start) -> None:
    process = start("sh", "-c", "echo up; read _; exit 3", ignored="CHLD")
    tell(process, "")
    assert process.wait(DEADLINE) == 3


def test_stopping_and_continuing(start: Start) -> None:
    # A group of its own within our session: in an orphaned one the kernel ignores SIGTSTP.
    process = start("sh", "-c", "echo up; read _; exit 3", process_group=0)
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


def test_a_signal_of_the_terminal_reaches_the_program_once(runtime: Path) -> None:
    """Ctrl-C goes to the whole group; passed on by us, the program would get it twice."""
    terminal = Terminal(runtime, sys.executable, "-c", COUNTER, "SIGINT,SIGUSR1")
    terminal.wait_for("up")
    # We stand still until the program has it: two of a kind that come together count as one.
    os.kill(terminal.pid, signal.SIGSTOP)
    terminal.type("\x03")
    terminal.wait_for("SIGINT")
    os.kill(terminal.pid, signal.SIGCONT)
    # Sent later and passed on: every earlier signal to be passed on has arrived by then.
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
