"""Our services as in a cluster: run by their commands, asked over their sockets."""

import contextlib
import http.client
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from services import malformed

#: Seconds that one answer may take, on a busy machine.
DEADLINE = 30.0

Connect = Callable[[], http.client.HTTPConnection]


@contextlib.contextmanager
def command(log: Path, *arguments: str) -> Iterator[int]:
    """A command of ours that serves; its PID."""
    with (
        log.open("wb") as output,
        subprocess.Popen([sys.executable, "-m", "hami_py", *arguments], stderr=output) as process,
    ):
        try:
            yield process.pid
            assert process.poll() is None, log.read_text()
        finally:
            process.terminate()
            process.wait(DEADLINE)


def until_ready(connect: Connect) -> None:
    """It listens before that: the cluster is not known yet then."""
    deadline = time.monotonic() + DEADLINE
    while not _is_ready(connect):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_ready(connect: Connect) -> bool:
    with contextlib.closing(connect()) as connection:
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    text = Path(f"/proc/{pid}/statm").read_text()
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak(pid: int) -> int:
    """The most bytes of memory that a process has had."""
    text = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


def trusting() -> ssl.SSLContext:
    """Of a client that takes any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def ask(connect: Connect, path: str, name: str) -> tuple[int, object]:
    """The answer to a recorded request."""
    with contextlib.closing(connect()) as connection:
        connection.request("POST", path, json.dumps(malformed.recorded(name)))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
