"""A server that a test started: its log, its readiness, and its end.

A server must never outlive the test process, however that ends: the kernel kills it with its parent
(`setpriv --pdeathsig`). Its output goes to a file, and every error here contains the end of that
file.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from support import processes

#: Seconds until a server must be ready, or have ended; far more than it takes on a busy machine.
DEADLINE = 90.0

#: Lines of a log that an error shows.
_TAIL = 40


class Server:
    """One process that serves; `start` returns when ``ready()`` is true.

    It may be stopped and started again, with the same command and the same ports.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        ready: Callable[[], bool],
        *,
        env: Mapping[str, str] | None = None,
        within: Callable[[], int] | None = None,
    ) -> None:
        """``within()`` is a process in whose mount and PID namespaces it is to run."""
        self._command = [str(part) for part in command]
        self._ready, self._env, self._within = ready, dict(env or {}), within
        self._process: subprocess.Popen[bytes] | None = None
        #: Whether it was ended or paused since it was first started.
        self.was_disturbed = False
        self.log = log
        self.name = Path(self._command[0]).name

    @property
    def pid(self) -> int:
        """Its process, as this namespace numbers it; an error where it is not running."""
        assert self._process is not None, f"{self.name} was not started"
        if self._within is None:
            return self._process.pid
        # nsenter waits for its one child, which is the server, and reaps it.
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        for child in children.read_text().split():
            return int(child)
        raise ProcessLookupError(f"{self.name} has ended")

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process and return at once; `wait` has to follow."""
        dies_with_parent = ["setpriv", "--pdeathsig", "KILL", "--"]
        command = [*dies_with_parent, *self._command]
        if self._within is not None:
            enter = ["nsenter", "--mount", "--pid", "--target", str(self._within()), "--"]
            command = [*dies_with_parent, *enter, *command]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C", **self._env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A terminal's Ctrl-C is the test's, which then ends this in its own order.
                start_new_session=True,
            )

    def wait(self, deadline: float = DEADLINE) -> None:
        """Wait until it is ready."""
        assert self._process is not None, f"{self.name} was not started"
        until = time.monotonic() + deadline
        while not self._ready():
            if self._process.poll() is not None:
                code = self._process.returncode
                raise AssertionError(f"{self.name} ended with {code}:\n{self.tail()}")
            if time.monotonic() > until:
                raise TimeoutError(f"{self.name} not ready in {deadline} s:\n{self.tail()}")
            time.sleep(0.02)

    def start(self, deadline: float = DEADLINE) -> None:
        """Start it and wait until it is ready."""
        self.launch()
        self.wait(deadline)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL to one that does not go; nothing if it is not running."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: a crash."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Send SIGSTOP: it keeps its connections and answers no request."""
        self.was_disturbed = True
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def tail(self) -> str:
        """The end of its log."""
        return tail(self.log)

    def _end(self, by: signal.Signals) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            self.was_disturbed = True
            self._signal(by, signal.SIGCONT)
            try:
                process.wait(timeout=5.0)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                process.wait(timeout=DEADLINE)
        self._process = None

    def _signal(self, *signals: signal.Signals) -> None:
        """Send signals; nothing if it has just ended."""
        with contextlib.suppress(ProcessLookupError):
            pid = self.pid
            for each in signals:
                os.kill(pid, each)


def tail(log: Path, lines: int = _TAIL) -> str:
    """The last lines of a log."""
    if not log.exists():
        return "(no log)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


_allocated: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 on which no program listens now.

    They lie below those that the kernel uses for outgoing connections, so that no such connection
    takes one before the server starts. No port is allocated twice, because its server may start
    later; test processes that run side by side have different ones.
    """
    ports: list[int] = []
    ours = range(20000 + processes.number(), 32000, processes.count())
    candidates = random.sample(sorted(set(ours) - _allocated), 1000)
    for port in candidates:
        with contextlib.closing(socket.socket()) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
            _allocated.add(port)
        if len(ports) == count:
            return ports
    raise AssertionError("no free ports between 20000 and 32000")


def accepts(port: int, address: str = "127.0.0.1") -> bool:
    """Whether a program listens there."""
    try:
        socket.create_connection((address, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def accepts_unix(path: Path) -> bool:
    """Whether a program listens on this socket."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True
