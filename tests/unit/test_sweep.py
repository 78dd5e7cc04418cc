"""The sweeper's list: numbers that die, are reused and fail, on a made-up NVML and /proc."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from hami_py.gpu import Sweeper, sweep
from hami_py.gpu.sweep import UNKNOWN, Identity, Known, Namespace, Row, Seen
from unit.machine import DEADLINE

HOST = Namespace(4, 7)
FIRST, SECOND = Identity(1, HOST, 100), Identity(2, HOST, 200)


def matched(
    known: Known, listed: list[int], processes: dict[int, tuple[Identity, bool]]
) -> tuple[Known, list[Row]]:
    """Match with these processes in /proc: identity, and whether each runs."""

    def look(pid: int) -> Seen | None:
        found = processes.get(pid)
        return Seen(found[0].start_time or 0, found[1]) if found else None

    return sweep.match(known, listed, look, lambda pid: processes[pid][0])


def test_numbers_are_remembered_while_nvml_lists_the_process() -> None:
    known, rows = matched({}, [8, 8], {8: (FIRST, True)})
    assert rows == [Row(8, FIRST, True)]
    known, rows = matched(known, [8], {8: (FIRST, False)})
    assert rows == [Row(8, FIRST, False)], "a zombie does not run"
    known, rows = matched(known, [8], {})
    assert rows == [Row(8, FIRST, False)]
    assert matched(known, [], {}) == ({}, [])
    known, rows = matched({}, [8], {8: (FIRST, False)})
    assert rows == [Row(8, FIRST, False)], "a zombie still has its numbers"


def test_a_process_that_was_never_seen_alive_is_listed_without_numbers() -> None:
    known, rows = matched({}, [8], {})
    assert rows == [Row(8, UNKNOWN, False)]
    assert matched(known, [8], {}) == (known, rows)


@pytest.mark.parametrize("before", [FIRST, UNKNOWN])
def test_a_number_that_was_reused_is_listed_for_both(before: Identity) -> None:
    known, _rows = matched({}, [8], {} if before == UNKNOWN else {8: (before, True)})
    for _ in range(2):
        known, rows = matched(known, [8], {8: (SECOND, True)})
        assert rows == [Row(8, before, False), Row(8, SECOND, True)]
    known, rows = matched(known, [8], {})
    assert rows == [Row(8, before, False), Row(8, SECOND, False)]


def test_the_numbers_of_a_process_are_those_that_it_sees() -> None:
    """The oracle is the process itself."""
    program = """import os
own, stat = os.stat("/proc/self/ns/pid"), open("/proc/self/stat").read().rpartition(")")[2]
print(os.getpid(), own.st_dev, own.st_ino, stat.split()[19], flush=True)
input()"""
    # Only root may create a PID namespace.
    inside = [] if os.geteuid() else ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    with subprocess.Popen(
        [*inside, sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdout is not None
        pid, device, inode, start_time = map(int, started.stdout.readline().split())
        children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text()
        here = int(children) if inside else started.pid
        expected = Identity(pid, Namespace(device, inode), start_time)
        assert sweep.identity_of(here) == expected
        assert sweep.look(here) == Seen(start_time, running=True)
        started.communicate("\n", timeout=DEADLINE)
    assert (sweep.look(here), sweep.identity_of(here)) == (None, None)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Two cards and their lists by name; a list that is an exception is raised."""
    lists: dict[str, object] = {"Compute": [], "Graphics": [], "MPSCompute": []}

    def listing(name: str) -> None:
        def get(card: int) -> list[SimpleNamespace]:
            found = lists[name]
            if isinstance(found, Exception):
                raise found
            return [SimpleNamespace(pid=pid) for pid, on in found if on == card]  # type: ignore[attr-defined]

        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}RunningProcesses", get)

    for name in lists:
        listing(name)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    return lists


def test_the_processes_of_all_lists_of_all_cards_are_written(
    nvml: dict[str, object], tmp_path: Path
) -> None:
    own, missing = os.getpid(), 2**22 + 1
    nvml["Compute"] = [(own, 0), (own, 1)]
    nvml["MPSCompute"] = [(missing, 1)]
    nvml["Graphics"] = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    Sweeper(tmp_path).sweep()
    assert [path.name for path in tmp_path.iterdir()] == ["sweep"]
    written = json.loads((tmp_path / "sweep").read_bytes())
    identity = sweep.identity_of(own)
    assert identity is not None and identity.namespace is not None
    assert written.pop("started_at") > 0
    assert written == {
        "version": 1,
        "processes": [
            {
                "pid": own,
                "pid_in_namespace": own,
                "namespace": {
                    "device": identity.namespace.device,
                    "inode": identity.namespace.inode,
                },
                "start_time": identity.start_time,
                "running": True,
            },
            {
                "pid": missing,
                "pid_in_namespace": 0,
                "namespace": None,
                "start_time": None,
                "running": False,
            },
        ],
    }


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("Compute", pynvml.NVML_ERROR_NOT_SUPPORTED),
        ("Graphics", pynvml.NVML_ERROR_GPU_IS_LOST),
        ("MPSCompute", pynvml.NVML_ERROR_UNKNOWN),
    ],
)
def test_an_incomplete_sweep_is_not_written(
    nvml: dict[str, object], tmp_path: Path, name: str, code: int
) -> None:
    nvml[name] = pynvml.NVMLError(code)
    with pytest.raises(pynvml.NVMLError):
        Sweeper(tmp_path).sweep()
    assert list(tmp_path.iterdir()) == []


def test_after_an_error_it_sweeps_again(
    nvml: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "RETRY", 0.01)
    nvml["Compute"] = pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
    written, failed, stop = tmp_path / "sweep", threading.Event(), threading.Event()
    monkeypatch.setattr(pynvml, "nvmlShutdown", failed.set)
    thread = threading.Thread(target=Sweeper(tmp_path).run, args=[stop])
    thread.start()
    try:
        assert failed.wait(DEADLINE)
        assert not written.exists()
        nvml["Compute"] = []
        until = time.monotonic() + DEADLINE
        while not written.exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert written.exists()
    finally:
        stop.set()
        thread.join(DEADLINE)
    assert not thread.is_alive()
