"""The sweeper's list: numbers that die, are reused and fail, on a made-up NVML and /proc."""

import errno
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from hami_py.gpu import sweep
from hami_py.gpu.sweep import UNKNOWN, Identity, Known, Namespace, Row, Seen, Sweeper
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

    memory: dict[int, dict[str, int]] = {pid: {} for pid in listed}
    return sweep.match(known, memory, look, lambda pid: processes[pid][0])


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


def process(
    pid: int, card: int, memory: int | None = None, instance: int = 2**32 - 1
) -> SimpleNamespace:
    """A process as NVML lists it; ``instance`` is its part of a partitioned card."""
    return SimpleNamespace(pid=pid, usedGpuMemory=memory, gpuInstanceId=instance)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Two cards and their lists by name, of PID, card and what else `process` takes.

    A list that is an exception is raised.
    """
    lists: dict[str, object] = {"Compute": [], "Graphics": [], "MPSCompute": []}

    def listing(name: str) -> None:
        def get(card: int) -> list[SimpleNamespace]:
            found = lists[name]
            if isinstance(found, Exception):
                raise found
            rows = [row for row in found if row[1] == card]  # type: ignore[attr-defined]
            return [process(*row) for row in rows]

        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}RunningProcesses", get)

    for name in lists:
        listing(name)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda card: f"GPU-{card}")
    return lists


def test_the_processes_of_all_lists_of_all_cards_are_written(
    nvml: dict[str, object], tmp_path: Path
) -> None:
    own, missing = os.getpid(), 2**22 + 1
    nvml["Compute"] = [(own, 0, 500), (own, 1, 700)]
    nvml["MPSCompute"] = [(missing, 1)]
    nvml["Graphics"] = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    Sweeper(sweep.writer(tmp_path)).sweep()
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
                "memory": {"GPU-0": 500, "GPU-1": 700},
            },
            {
                "pid": missing,
                "pid_in_namespace": 0,
                "namespace": None,
                "start_time": None,
                "running": False,
                "memory": {},
            },
        ],
    }


def test_the_memory_of_a_partitioned_card_is_not_reported(
    nvml: dict[str, object], tmp_path: Path
) -> None:
    nvml["Compute"] = [(7, 0, 500, 3), (7, 1, 700)]
    Sweeper(sweep.writer(tmp_path)).sweep()
    (written,) = json.loads((tmp_path / "sweep").read_bytes())["processes"]
    assert written["memory"] == {"GPU-1": 700}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("Compute", pynvml.NVML_ERROR_NOT_SUPPORTED),
        ("Graphics", pynvml.NVML_ERROR_RESET_REQUIRED),
        ("MPSCompute", pynvml.NVML_ERROR_UNKNOWN),
    ],
)
def test_an_incomplete_sweep_is_not_written(
    nvml: dict[str, object], tmp_path: Path, name: str, code: int
) -> None:
    nvml[name] = pynvml.NVMLError(code)
    with pytest.raises(pynvml.NVMLError):
        Sweeper(sweep.writer(tmp_path)).sweep()
    assert list(tmp_path.iterdir()) == []


def listed(folder: Path) -> list[int]:
    """The PIDs of the sweep in this folder."""
    written = json.loads((folder / "sweep").read_bytes())
    return [process["pid"] for process in written["processes"]]


def until(condition: Callable[[], bool]) -> None:
    """Wait until this is true."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@contextmanager
def sweeping(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A thread that sweeps, and that has not ended by itself."""
    monkeypatch.setattr(sweep, "RETRY", 0.01)
    stop = threading.Event()
    thread = threading.Thread(target=Sweeper(sweep.writer(folder), interval=0.01).run, args=[stop])
    thread.start()
    try:
        yield
        assert thread.is_alive()
    finally:
        stop.set()
        thread.join(DEADLINE)
    assert not thread.is_alive()


def test_it_sweeps_less_often_while_nothing_changes(
    nvml: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead process, and one whose memory changes, may have others that wait for memory."""
    now, pauses = [1000.0], list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            now[0] += timeout or 0.0
            return self.is_set()

    def swept(seconds: float) -> list[float]:
        end, stop = now[0] + seconds, Stop()
        pauses.clear()
        sweeper._publish = lambda _: stop.set() if now[0] >= end else None
        sweeper.run(stop)
        # The last one is that of the end.
        return [round(pause, 2) for pause in pauses[:-1]]

    own = os.getpid()
    nvml["Compute"] = [(own, 0, 500)]
    sweeper = Sweeper(lambda _: None)
    assert swept(5.0)[0] == sweep.INTERVAL
    assert set(swept(5.0)) == {sweep.IDLE_INTERVAL}
    nvml["Compute"] = [(own, 0, 700)]
    assert set(swept(0.5)) == {sweep.INTERVAL}
    assert set(swept(5.0)[-3:]) == {sweep.IDLE_INTERVAL}
    nvml["Compute"] = [(own, 0, 700), (2**22 + 1, 0)]
    assert set(swept(5.0)) == {sweep.INTERVAL}


@pytest.mark.parametrize("call", ["HandleByIndex", "ComputeRunningProcesses"])
def test_a_lost_card_is_left_out(
    nvml: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    call: str,
) -> None:
    nvml["Compute"] = [(7, 0), (8, 1)]
    sweeper, name = Sweeper(sweep.writer(tmp_path)), f"nvmlDeviceGet{call}"
    working = getattr(pynvml, name)

    def lost(card: int) -> object:
        if card == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return working(card)

    for get, pids in [(lost, [8]), (lost, [8]), (working, [7, 8]), (working, [7, 8])]:
        monkeypatch.setattr(pynvml, name, get)
        sweeper.sweep()
        assert listed(tmp_path) == pids
    assert [record.getMessage() for record in caplog.records] == [
        "lost cards, which sweeps leave out: [0]",
        "lost cards, which sweeps leave out: none",
    ]


def test_no_session_stays_open_while_a_card_is_lost(
    nvml: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVML finds a card that was reset only when it starts again."""
    begun: list[None] = []
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: begun.append(None))
    nvml["Compute"] = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
    with sweeping(tmp_path, monkeypatch):
        until(lambda: len(begun) >= 3)
        assert listed(tmp_path) == []


def test_after_an_error_it_sweeps_again(
    nvml: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml["Compute"] = pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
    failed = threading.Event()
    monkeypatch.setattr(pynvml, "nvmlShutdown", failed.set)
    with sweeping(tmp_path, monkeypatch):
        assert failed.wait(DEADLINE)
        assert not (tmp_path / "sweep").exists()
        nvml["Compute"] = []
        until((tmp_path / "sweep").exists)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), ValueError("unexpected")])
def test_an_outage_is_logged_once_and_ends(
    nvml: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    failures: list[None] = []

    def fail(started_at: int, rows: object) -> bytes:
        failures.append(None)
        raise error

    working = sweep.encode
    monkeypatch.setattr(sweep, "encode", fail)
    with sweeping(tmp_path, monkeypatch):
        until(lambda: len(failures) >= 3)
        monkeypatch.setattr(sweep, "encode", working)
        until(lambda: len(caplog.records) >= 2)
    assert listed(tmp_path) == []
    first, last = caplog.records
    assert (first.levelno, first.getMessage()) == (
        logging.ERROR,
        f"no sweeps are written: {type(error).__name__}: {error}",
    )
    assert bool(first.exc_info) == isinstance(error, ValueError), "the traceback of a bug"
    assert last.getMessage() == "sweeps are written again"


def test_on_a_full_file_system_no_temporary_file_is_left(
    nvml: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_half(path: Path, text: bytes) -> None:
        with path.open("wb") as file:
            file.write(text[: len(text) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(OSError, match="No space"):
        Sweeper(sweep.writer(tmp_path)).sweep()
    assert list(tmp_path.iterdir()) == []
