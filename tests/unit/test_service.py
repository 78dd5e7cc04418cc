"""``hami run`` as the main process of a service, or as process 1 of a container."""

import array
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from unit import machine
from unit.machine import DEADLINE, Hami

#: As sd_listen_fds(3) checks it.
ACTIVATED = """import os, socket
assert int(os.environ["LISTEN_PID"]) == os.getpid(), "they are for another process"
print(socket.socket(fileno=3).getsockname()[1], os.environ["LISTEN_FDS"])"""

#: As a service manager does it: the PID of the process that becomes the service.
FOR_ITSELF = 'export LISTEN_PID=$$ LISTEN_FDS=1; exec 3<&"$1"; shift; exec "$@"'


def test_a_program_found_no_socket_of_its_service(runtime: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = machine.command("run", "--", sys.executable, "-c", ACTIVATED)
        done = subprocess.run(
            ["bash", "-c", FOR_ITSELF, "sh", str(server.fileno()), *program],
            env=machine.environment(runtime),
            pass_fds=[server.fileno()],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert (done.stderr, done.stdout) == ("", f"{server.getsockname()[1]} 1\n")


def test_variables_for_another_process_stay(hami: Hami) -> None:
    show = ["sh", "-c", "echo $LISTEN_PID $WATCHDOG_PID"]
    done = hami("run", "--", *show, LISTEN_PID="1", WATCHDOG_PID="2")
    assert (done.stderr, done.stdout) == ("", "1 2\n")


#: A service that is ready, passes a file on, and ends.
NOTIFIES = """import os, socket
out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
out.connect(os.environ["NOTIFY_SOCKET"])
out.send(b"READY=1")
socket.send_fds(out, [b"FDSTORE=1"], [os.open("/dev/null", os.O_RDONLY)])
out.send(b"STOPPING=1")"""


@pytest.fixture
def short() -> Iterator[Path]:
    """A runtime directory with a short path, as they have: a socket's has at most 107 bytes."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        yield Path(directory)


@pytest.mark.parametrize("kind", ["a path", "an abstract address"])
def test_a_manager_refused_the_notifications_of_a_program(
    short: Path, tmp_path: Path, kind: str
) -> None:
    """It accepts those of the main process, and the kernel says from whom each one is."""
    name = str(tmp_path / "manager") if kind == "a path" else f"@hami-{os.urandom(8).hex()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        manager.bind("\0" + name[1:] if name.startswith("@") else name)
        manager.settimeout(DEADLINE)
        with subprocess.Popen(
            machine.command("run", "--", sys.executable, "-c", NOTIFIES),
            env=machine.environment(short, NOTIFY_SOCKET=name),
        ) as service:
            assert service.wait(DEADLINE) == 0
        for expected in (b"READY=1", b"FDSTORE=1", b"STOPPING=1"):
            message, ancillary, *_ = manager.recvmsg(4096, 4096)
            found = {kind: data for _, kind, data in ancillary}
            sender = struct.unpack("iii", found[socket.SCM_CREDENTIALS])[0]
            assert (message, sender) == (expected, service.pid)
            files = array.array("i", found.get(socket.SCM_RIGHTS, b""))
            assert len(files) == (expected == b"FDSTORE=1")
            for file in files:
                os.close(file)


def test_a_manager_that_has_ended_does_not_disturb_the_program(short: Path, tmp_path: Path) -> None:
    notifies = ["run", "--", sys.executable, "-c", NOTIFIES]
    done = machine.run(short, *notifies, NOTIFY_SOCKET=str(tmp_path / "nobody"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


#: Waits until its orphans, which have ended, are nobody's children any more.
ORPHANS = """import os, pathlib, time
def zombies():
    found = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        found += (state, parent) == ("Z", "1")
    return found
for _ in range(5):
    worker = os.fork()
    if worker == 0:
        if os.fork() == 0:
            time.sleep(0.05)
        os._exit(0)
    os.waitpid(worker, 0)
time.sleep(0.2)
until = time.monotonic() + 20
while zombies() and time.monotonic() < until:
    time.sleep(0.01)
raise SystemExit(zombies())"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")
AS_PROCESS_1 = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


@as_root
def test_orphans_stayed_zombies_of_process_1(hami: Hami) -> None:
    done = hami("run", "--", sys.executable, "-c", ORPHANS, around=AS_PROCESS_1)
    assert (done.returncode, done.stderr) == (0, "")


@as_root
def test_process_1_passes_signals_on(runtime: Path) -> None:
    """The kernel discards signals to a process 1 without handlers."""
    program = ["sh", "-c", 'trap "echo TERM; exit 3" TERM; echo up; while :; do sleep 0.05; done']
    with subprocess.Popen(
        [*AS_PROCESS_1, *machine.command("run", "--", *program)],
        env=machine.environment(runtime),
        stdout=subprocess.PIPE,
        text=True,
    ) as unshare:
        assert unshare.stdout is not None
        assert unshare.stdout.readline() == "up\n"
        children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)
        assert unshare.stdout.readline() == "TERM\n"
        assert unshare.wait(DEADLINE) == 3


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
@pytest.mark.parametrize(
    "arguments", [["ps"], ["devices", "--json"], ["--help"], ["run", "--", "true"]]
)
def test_a_closed_descriptor_was_a_traceback(hami: Hami, arguments: list[str], closed: str) -> None:
    done = hami(*arguments, around=["sh", "-c", f'exec "$@" {closed}', "sh"])
    assert (done.returncode, done.stderr) == (0, "")


def test_no_file_of_ours_is_the_standard_output_of_the_driver(hami: Hami) -> None:
    """And the program's is closed, as its parent wanted it."""
    script = "ls -l /proc/$PPID/fd/1 >&2; test ! -e /proc/$$/fd/1"
    done = hami("run", "--", "sh", "-c", script, around=["sh", "-c", 'exec "$@" 1>&-', "sh"])
    assert done.returncode == 0
    assert done.stderr.rstrip().endswith("-> /dev/null")
