"""A service of Kubernetes runs until a signal arrives, in whatever thread."""

import subprocess
import sys

import pytest

#: Its thread sends the signal to itself once the main thread sleeps.
PROGRAM = """
import os, signal, sys, threading, time
from pathlib import Path
from hami_py.cli.kubernetes.common import run_service

def send():
    main = Path(f"/proc/self/task/{os.getpid()}/stat")
    while main.read_text().rpartition(")")[2].split()[0] != "S":
        time.sleep(0.01)
    signal.pthread_kill(threading.get_ident(), int(sys.argv[1]))
    threading.Event().wait()

class Service:
    def start(self):
        threading.Thread(target=send, daemon=True).start()

    def stop(self):
        print("stopped")

run_service(Service())
"""


@pytest.mark.parametrize("number", ["15", "2"], ids=["SIGTERM", "SIGINT"])
def test_a_signal_in_another_thread_ends_it(number: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, number],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "stopped\n"), done.stderr
