"""The Rust core does not block other Python threads."""

import fcntl
import os
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hami_py._native import FORMAT, Account, GrantsPage, LimitRow, LimitsPage, coordinate
from hami_py.errors import DamagedFile, InvalidValue
from unit.machine import DEADLINE

FLOCK = "hhqqi4x"


def lock_for_writing(path: Path) -> int:
    """As another writer of the page has it; free again when this is closed."""
    descriptor = os.open(path, os.O_RDWR)
    lock = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)
    return descriptor


@pytest.fixture
def page(tmp_path: Path) -> Path:
    LimitsPage.create(tmp_path / "limits", [LimitRow("GPU-1", 1 << 30)])
    return tmp_path / "limits"


def test_a_waiting_call_lets_other_threads_run(page: Path) -> None:
    """The caller holds the interpreter's lock, so the call must have released it itself.

    If it were held through the call, the lock of the page could not be freed and the call would
    fail.
    """
    opened = LimitsPage.open(page)
    blocker = lock_for_writing(page)
    calling: list[bool] = []
    failed: list[BaseException] = []

    def change() -> None:
        calling.append(True)
        try:
            opened.set_memory_limits({"GPU-1": 2 << 30})
        except BaseException as error:
            failed.append(error)

    switch = sys.getswitchinterval()
    sys.setswitchinterval(DEADLINE)
    try:
        changer = threading.Thread(target=change)
        changer.start()
        # Gives the interpreter up, and gets it back in the call or after it.
        while not calling:
            os.sched_yield()
        os.close(blocker)
        changer.join(DEADLINE)
    finally:
        sys.setswitchinterval(switch)
    assert failed == []
    assert LimitsPage.open(page).rows()[0].memory_limit == 2 << 30


def test_waiting_for_a_held_lock_has_a_deadline(page: Path) -> None:
    opened = LimitsPage.open(page)
    blocker = lock_for_writing(page)
    try:
        with pytest.raises(OSError, match="another writer has held it for a second; try again"):
            opened.set_memory_limits({"GPU-1": 2 << 30})
    finally:
        os.close(blocker)
    assert opened.rows()[0].memory_limit == 1 << 30


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for open_ in (LimitsPage.open, Account.open):
        with pytest.raises(ValueError, match="damaged file"):
            open_(tmp_path / "pipe")


def test_a_snapshot_of_an_unused_account_is_empty(tmp_path: Path) -> None:
    Account.create(tmp_path / "account")
    seen = Account.open(tmp_path / "account").snapshot()
    assert (seen.processes, set(seen.memory_used), set(seen.refusals)) == ([], {0}, {0})
    assert (seen.used_ns, seen.throttled_ns) == ([0] * 16, [0] * 16)


def test_a_row_keeps_share_mode_and_priority(tmp_path: Path) -> None:
    rows = [LimitRow("GPU-1", None, 30, "soft", "high"), LimitRow("GPU-2")]
    LimitsPage.create(tmp_path / "limits", rows)
    page = LimitsPage.open(tmp_path / "limits")
    assert page.rows() == rows
    assert (rows[1].share, rows[1].mode, rows[1].priority) == (None, "hard", "normal")
    page.set_regimes({"GPU-1": (None, "hard", "low"), "GPU-2": (100, "soft", "normal")})
    assert page.rows() == [
        LimitRow("GPU-1", priority="low"),
        LimitRow("GPU-2", share=100, mode="soft"),
    ]
    rows[0].mode = "hard"
    assert 'mode="hard", priority="high"' in repr(rows[0])


@pytest.mark.parametrize(
    ("regime", "field", "value"),
    [
        ((0, "hard", "normal"), "share", "0"),
        ((101, "hard", "normal"), "share", "101"),
        ((1, "Soft", "normal"), "mode", "Soft"),
        ((1, "hard", ""), "priority", ""),
    ],
)
def test_an_invalid_regime_is_refused(
    page: Path, regime: tuple[int, str, str], field: str, value: str
) -> None:
    opened = LimitsPage.open(page)
    with pytest.raises(InvalidValue) as refused:
        opened.set_regimes({"GPU-1": regime})  # type: ignore[dict-item]
    assert (refused.value.field, refused.value.value) == (field, value)
    assert opened.rows() == [LimitRow("GPU-1", 1 << 30)]


def test_a_page_has_what_the_node_side_says_of_the_slice(tmp_path: Path) -> None:
    rows = [
        LimitRow(
            "GPU-1",
            context_memory=5 << 30,
            injected_memory=1 << 30,
            injected_share=30,
        )
    ]
    LimitsPage.create(tmp_path / "limits", rows, gang=b"g" * 16)
    opened = LimitsPage.open(tmp_path / "limits")
    assert (opened.gang(), opened.rows()) == (b"g" * 16, rows)
    with pytest.raises(InvalidValue, match="injected_share"):
        LimitsPage.create(tmp_path / "other", [LimitRow("GPU-1", injected_share=101)])


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    limits, account = tmp_path / "limits", tmp_path / "account"
    LimitsPage.create(limits, [])
    Account.create(account)
    for path in (limits, account):
        with path.open("r+b") as file:
            file.seek(8)
            file.write(struct.pack("<I", FORMAT + 1))
    openings: list[Callable[[], object]] = [
        lambda: LimitsPage.open(limits),
        lambda: Account.open(account),
    ]
    for opening in openings:
        with pytest.raises(DamagedFile, match=f"its version is not {FORMAT}"):
            opening()


def test_a_grants_page_is_created_once(tmp_path: Path) -> None:
    GrantsPage.create(tmp_path / "grants")
    assert (tmp_path / "grants").read_bytes() == (b"HAMIGRA1" + struct.pack("<II", 1, 4096)).ljust(
        4096, b"\0"
    )
    with pytest.raises(FileExistsError):
        GrantsPage.create(tmp_path / "grants")


def test_a_coordinator_without_slices_exits_after_its_linger_time(tmp_path: Path) -> None:
    coordinate(tmp_path, 0.01)
    with pytest.raises(FileNotFoundError, match="missing"):
        coordinate(tmp_path / "missing", 0)
    for seconds in (-1.0, float("nan")):
        with pytest.raises(InvalidValue, match="linger_seconds"):
            coordinate(tmp_path, seconds)


def test_a_coordinator_lets_other_threads_run(tmp_path: Path) -> None:
    """It works until its only slice is removed, which Python does meanwhile."""
    slice_ = tmp_path / "slices" / "one"
    slice_.mkdir(parents=True)
    thread = threading.Thread(target=coordinate, args=(tmp_path, 0.01), daemon=True)
    thread.start()
    slice_.rmdir()
    thread.join(DEADLINE)
    assert not thread.is_alive()
