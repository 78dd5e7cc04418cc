"""A machine with two users and the service, on a stub's cards."""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from hami_py import config
from hami_py.errors import StateError
from hami_py.model import parse_arguments
from hami_py.slices import SliceRequest, open_new
from hami_py.slices.machine import Machine
from support.artifacts import ROOT
from support.launcher import until
from support.running import Started
from support.users import User

SERVICE = Path(__file__).with_name("machine_service.py")

#: Each process of the tests has users of its own.
_FIRST = 64101 + 10 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
ANNA, BERT = _FIRST, _FIRST + 1

PASSWD = Path("/etc/passwd")


@contextlib.contextmanager
def listed(*users):
    """These numbers are users of this machine, whose names are the numbers."""
    lines = "".join(f"{each}:x:{each}:{each}::/nonexistent:/bin/false\n" for each in users)
    _replace(lambda text: text + lines)
    try:
        yield
    finally:
        _replace(lambda text: text.replace(lines, ""))


def _replace(change):
    """Change the list of users, as `useradd` does."""
    with Path("/etc/.pwd.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        aside = PASSWD.with_name("passwd.tests")
        aside.write_text(change(PASSWD.read_text()))
        aside.chmod(0o644)
        aside.replace(PASSWD)


class Users:
    """Two users, and the service's slices that they hold; all files can be reached by both."""

    def __init__(self, place, gpu, artifacts, load, policy):
        self.place, self.gpu, self._stack = place, gpu, contextlib.ExitStack()
        self.runtime = place / "run"
        for path in (artifacts.libcuda, load):
            self.copy(path, place)
        (place / "machine.toml").write_text(policy)
        for path in (gpu.client_socket, *list(gpu.client_socket.parents)[:-2]):
            path.chmod(0o777 if path.is_socket() else 0o755)
        self.users = {number: User(number, place / str(number)) for number in (ANNA, BERT)}
        self.env = {**gpu.charging_env, "LD_LIBRARY_PATH": str(place)}
        self._artifacts = artifacts
        self._stack.enter_context(listed(ANNA, BERT))
        self.start()

    @staticmethod
    def copy(path, folder):
        """A copy of a file that all users can run."""
        folder.mkdir(mode=0o755, exist_ok=True)
        copy = folder / path.name
        if not copy.exists():
            shutil.copy(path, copy)
            copy.chmod(0o755)
        return copy

    @property
    def log(self):
        """What the service has logged."""
        return (self.place / "log").read_text()

    def start(self, env=None):
        """Start the service."""
        env = {
            **self.gpu.charging_env,
            "PYTHONPATH": str(ROOT),
            "HAMI_LIBRARY": str(self._artifacts.library),
            **(env or {}),
        }
        command = ["sh", "-c", f'exec "$@" 2>>{self.place}/log', "sh", sys.executable, SERVICE]
        command += [self.runtime, self.place / "state", self.place / "machine.toml"]
        self.service = self._stack.enter_context(Started(command, env))
        until(self.answers, "the service answers")

    def answers(self):
        """Whether the service answers."""
        with contextlib.suppress(StateError):
            return bool(Machine(self.runtime).ask("list"))
        return False

    def settings(self, user):
        """Those of a program that this user starts."""
        found = config.read({"HAMI_RUNTIME_DIR": str(self.users[user].home), **self.env})
        return replace(found, node_runtime=self.runtime)

    def slice(self, user, **limits):
        """The environment of the programs in a slice of this user, who holds it till the end."""

        @contextlib.contextmanager
        def held():
            settings = self.settings(user)
            request = SliceRequest(["load"], parse_arguments(**limits))
            with contextlib.closing(open_new(settings, request)) as opened:
                yield opened.environment(settings.environment)

        return self._stack.enter_context(self.users[user].holding(held()))

    def in_all_programs(self):
        """The environment of the programs of a machine whose loader has the library."""
        library = self.copy(self._artifacts.library, self.place / "all")
        library.with_name("machine").write_text(f"{self.runtime}\n")
        return {**self.env, "LD_PRELOAD": str(library)}

    def computes(self, user, env, seconds):
        """A program of this user that always has kernels to launch."""
        words = [self.place / "load", "--work", "async", "--kernel-us", "500"]
        command = self.users[user].command(*words, "--seconds", str(seconds))
        return self._stack.enter_context(Started(command, env))

    def close(self):
        """End all, and unmount the runtime directory."""
        self._stack.close()

        def unmount():
            return subprocess.run(["umount", self.runtime], check=False).returncode == 0

        # The coordinator of a service that was killed ends a moment later.
        until(unmount, "the runtime directory is not busy")


@contextlib.contextmanager
def flooding(path):
    """A process that opens connections as fast as it can, with requests that are too long."""
    child = os.fork()
    if child == 0:
        os.closerange(3, 1 << 16)  # pipes to the test, which waits for their end
        while os.getppid() != 1:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.setblocking(False)
                with contextlib.suppress(OSError):
                    connection.connect(str(path))
                    connection.send(b"x" * 20_000)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
