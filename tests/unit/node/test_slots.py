"""A slot that works is kept, a damaged one is replaced, and a killed process leaves nothing."""

import errno
import fcntl
import os
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hami_py._native import Account, LimitRow, LimitsPage
from hami_py.errors import HamiError, StateError
from hami_py.node import slot
from hami_py.node.paths import Paths
from hami_py.node.slots import Slots
from support.running import run

ROOT = Path(__file__).parents[3]

ROWS = [LimitRow("GPU-1", 4 << 30, 30), LimitRow("GPU-2", 1 << 30)]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    runtime = tmp_path / "run"
    runtime.mkdir()
    return Paths(runtime, tmp_path / "state", tmp_path / "kubelet")


@pytest.fixture
def slots(paths: Paths) -> Slots:
    """With one slot, "one"."""
    slots = Slots(paths)
    slots.ensure("one", ROWS)
    return slots


def identity(path: Path) -> dict[str, int]:
    """The inodes of a slot and its files: a kept one has the same."""
    return {".": path.stat().st_ino, **{each.name: each.stat().st_ino for each in path.iterdir()}}


def check(path: Path, rows: list[LimitRow]) -> None:
    """Everything that a container and the coordinator need is there."""
    assert {each.name for each in path.iterdir()} == {"limits", "grants", "account", "libvgpu.so"}
    assert all(stat.S_ISREG(each.lstat().st_mode) for each in path.iterdir())
    page = LimitsPage.open(path / "limits")
    assert page.rows() == rows
    assert Account.open(path / "account").snapshot().processes == []


def remains(paths: Paths) -> set[str]:
    return {each.name for each in paths.runtime.iterdir()}


def test_a_slot_is_created_with_its_limits(slots: Slots, paths: Paths) -> None:
    check(paths.slots / "one", ROWS)
    assert slots.names() == {"one"}
    assert slots.use("one").processes == []
    assert remains(paths) == {"slices"}


@pytest.mark.parametrize("is_restarted", [False, True], ids=["same agent", "new agent"])
def test_a_slot_that_works_is_kept_and_gets_the_limits(
    slots: Slots, paths: Paths, is_restarted: bool
) -> None:
    """Processes of the container may still hold memory that its account has."""
    before = identity(paths.slots / "one")
    rows = [LimitRow("GPU-1", 6 << 30, 50, "hard", "high"), LimitRow("GPU-2", 1 << 30)]
    (Slots(paths) if is_restarted else slots).ensure("one", rows)
    assert identity(paths.slots / "one") == before
    check(paths.slots / "one", rows)


def test_a_slot_has_the_gang_with_which_it_was_created(slots: Slots, paths: Paths) -> None:
    slots.ensure("two", ROWS, b"0123456789abcdef")
    gangs = {name: LimitsPage.open(paths.slots / name / "limits").gang() for name in slots.names()}
    assert gangs == {"one": None, "two": b"0123456789abcdef"}


def test_new_limits_are_in_the_page_that_the_container_has(slots: Slots, paths: Paths) -> None:
    page = LimitsPage.open(paths.slots / "one" / "limits")
    slots.set_limits("one", [LimitRow("GPU-2", 2 << 30, 10), LimitRow("GPU-1", None)])
    assert page.rows() == [LimitRow("GPU-1", None), LimitRow("GPU-2", 2 << 30, 10)]


def truncated(size: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size)


def directory(path: Path) -> None:
    """As containerd leaves it where the source of a mount is missing."""
    path.unlink()
    path.mkdir(mode=0o755)


def link(path: Path) -> None:
    """To a file that is right in itself."""
    path.rename(path.parent.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent.parent / "elsewhere")


DAMAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "no limits page": ("limits", Path.unlink),
    "a directory in place of the limits page": ("limits", directory),
    "no account": ("account", Path.unlink),
    "an empty account": ("account", truncated(0)),
    "half an account": ("account", truncated(4096)),
    "an account of other bytes": ("account", lambda path: path.write_bytes(b"x" * 4096)),
    "a directory in place of the account": ("account", directory),
    "a link in place of the account": ("account", link),
    "no grants page": ("grants", Path.unlink),
    "a directory in place of the grants page": ("grants", directory),
    "no place for the library": ("libvgpu.so", Path.unlink),
    "a directory in place of the library": ("libvgpu.so", directory),
}


@pytest.mark.parametrize("is_restarted", [False, True], ids=["same agent", "new agent"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_slot_is_replaced(
    slots: Slots, paths: Paths, damage: str, is_restarted: bool
) -> None:
    path = paths.slots / "one"
    # While it is open, no other directory can have its inode.
    before = os.open(path, os.O_RDONLY)
    name, break_it = DAMAGE[damage]
    break_it(path / name)
    now = Slots(paths) if is_restarted else slots
    now.ensure("one", ROWS)
    assert not os.path.samestat(path.stat(), os.fstat(before))
    os.close(before)
    check(path, ROWS)
    assert remains(paths) - {"elsewhere"} == {"slices"}
    now.set_limits("one", [LimitRow("GPU-1", 5 << 30)])
    assert LimitsPage.open(path / "limits").rows()[0].memory_limit == 5 << 30


@pytest.mark.parametrize("content", [b"", b"x" * 8192])
def test_a_damaged_limits_page_is_replaced_by_a_new_agent(
    slots: Slots, paths: Paths, content: bytes
) -> None:
    del slots
    (paths.slots / "one" / "limits").write_bytes(content)
    Slots(paths).ensure("one", ROWS)
    check(paths.slots / "one", ROWS)


@pytest.mark.parametrize("content", [[], ["account"]], ids=["empty", "with directories"])
def test_a_directory_in_place_of_a_slot_is_replaced(paths: Paths, content: list[str]) -> None:
    """containerd makes it if the slot is missing when its container starts."""
    slots = Slots(paths)
    (paths.slots / "one").mkdir()
    for name in content:
        (paths.slots / "one" / name).mkdir()
    slots.ensure("one", ROWS)
    check(paths.slots / "one", ROWS)
    assert remains(paths) == {"slices"}


def test_other_cards_need_another_slot(slots: Slots, paths: Paths) -> None:
    rows = [ROWS[0], LimitRow("GPU-3")]
    slots.ensure("one", rows)
    check(paths.slots / "one", rows)


def test_a_slot_is_removed_as_a_whole_and_only_once(slots: Slots, paths: Paths) -> None:
    slots.ensure("two", ROWS)
    slots.remove("one")
    slots.remove("one")
    slots.remove("never there")
    assert slots.names() == {"two"}
    assert remains(paths) == {"slices"}
    slots.ensure("one", ROWS)
    check(paths.slots / "one", ROWS)


def test_a_damaged_or_missing_account_cannot_be_read(slots: Slots, paths: Paths) -> None:
    (paths.slots / "one" / "account").write_bytes(b"x")
    with pytest.raises(HamiError):
        slots.use("one")
    with pytest.raises(OSError, match="two"):
        slots.use("two")


def test_nobody_can_take_a_lease_on_a_limits_page(slots: Slots, paths: Paths) -> None:
    """The kernel would delay the next change until the holder of the lease gives it back."""
    slots.set_limits("one", ROWS)
    with (paths.slots / "one" / "limits").open("rb") as page:
        with pytest.raises(OSError) as raised:
            fcntl.fcntl(page, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        assert raised.value.errno == errno.EAGAIN


def test_an_error_names_the_slot(slots: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "slices")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(StateError, match=r"slot .*/two: .*No space left on device"):
        slots.ensure("two", ROWS)
    assert slots.names() == {"one"}


KILLED = """
import os, signal, sys
from pathlib import Path
from hami_py.node import slot
from hami_py.node.paths import Paths
from hami_py.node.slots import Slots
from unit.node.test_slots import ROWS

runtime, step = Path(sys.argv[1]), sys.argv[2]
slots = Slots(Paths(runtime))
if step == "remove":
    slots.ensure("one", ROWS)

def kill(*arguments, **more):
    os.kill(os.getpid(), signal.SIGKILL)

class Kills:
    create = staticmethod(kill)

if step in ("rename", "chmod", "touch"):
    setattr(Path, step, kill)
elif step == "remove":
    slot.shutil.rmtree = lambda path, **more: kill() if Path(path).exists() else None
else:
    setattr(slot, step, Kills)
slots.remove("one") if step == "remove" else slots.ensure("one", ROWS)
"""


@pytest.mark.parametrize(
    "step", ["LimitsPage", "Account", "GrantsPage", "touch", "chmod", "rename", "remove"]
)
def test_what_a_killed_agent_left_is_removed_by_the_next(paths: Paths, step: str) -> None:
    env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    done = run([sys.executable, "-c", KILLED, paths.runtime, step], env)
    assert done.code == -signal.SIGKILL, done.err
    assert [path.name for path in paths.slots.iterdir()] == [], "no part of a slot is seen"
    assert any(name.startswith(slot.TEMPORARY) for name in remains(paths))
    shutil.copytree(paths.slots, paths.runtime / "of another program")
    slots = Slots(paths)
    assert remains(paths) == {"slices", "of another program"}
    slots.ensure("one", ROWS)
    check(paths.slots / "one", ROWS)
