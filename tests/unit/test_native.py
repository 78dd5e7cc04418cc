"""What the Rust core must be to Python: a good neighbour of other threads."""

import fcntl
import os
import struct
import sys
import threading
from pathlib import Path

import pytest

from hami_py._native import Account, GrantsPage, LimitRow, LimitsPage, coordinate
from hami_py.errors import InvalidValue
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


def test_a_call_that_waits_lets_other_threads_go_on(page: Path) -> None:
    """Nobody asks the caller for the interpreter, so it must have given it up by itself.

    Held through the call, the lock of the page could not be freed and the call would fail.
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


def test_a_lock_that_is_not_given_back_is_waited_for_with_a_deadline(page: Path) -> None:
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


def test_a_row_keeps_how_its_card_is_shared(tmp_path: Path) -> None:
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
def test_a_regime_that_no_page_has_is_refused(
    page: Path, regime: tuple[int, str, str], field: str, value: str
) -> None:
    opened = LimitsPage.open(page)
    with pytest.raises(InvalidValue) as refused:
        opened.set_regimes({"GPU-1": regime})  # type: ignore[dict-item]
    assert (refused.value.field, refused.value.value) == (field, value)
    assert opened.rows() == [LimitRow("GPU-1", 1 << 30)]


def test_a_page_of_grants_is_made_once(tmp_path: Path) -> None:
    GrantsPage.create(tmp_path / "grants")
    assert (tmp_path / "grants").read_bytes() == (b"HAMIGRA1" + struct.pack("<II", 1, 4096)).ljust(
        4096, b"\0"
    )
    with pytest.raises(FileExistsError):
        GrantsPage.create(tmp_path / "grants")


def test_a_coordinator_without_slices_lingers_and_ends(tmp_path: Path) -> None:
    coordinate(tmp_path, 0.01)
    with pytest.raises(FileNotFoundError, match="missing"):
        coordinate(tmp_path / "missing", 0)
    for seconds in (-1.0, float("nan")):
        with pytest.raises(InvalidValue, match="linger_seconds"):
            coordinate(tmp_path, seconds)


def test_a_coordinator_lets_other_threads_go_on(tmp_path: Path) -> None:
    """Until its only slice is gone it works; Python goes on meanwhile, and removes the slice."""
    slice_ = tmp_path / "slices" / "one"
    slice_.mkdir(parents=True)
    thread = threading.Thread(target=coordinate, args=(tmp_path, 0.01), daemon=True)
    thread.start()
    slice_.rmdir()
    thread.join(DEADLINE)
    assert not thread.is_alive()
