"""A service runs until a signal arrives, in whatever thread."""

import sys

import pytest

from support.artifacts import ROOT
from support.running import run

#: Its thread sends the signal to itself once the main thread sleeps.
PROGRAM = """
import os, signal, sys, threading, time
from pathlib import Path
from hami_py.cli.service import run_service

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
    done = run([sys.executable, "-c", PROGRAM, number], {"PYTHONPATH": str(ROOT)})
    assert (done.code, done.out) == (0, "stopped\n"), done.err
