"""A slot is whole or not there, and every user of a container has the access that it needs."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hami_py import InvalidValue, StateError
from hami_py._native import Account, GrantsPage, LimitRow, LimitsPage
from hami_py.node import slot

ROWS = [LimitRow("GPU-1", 4 << 30, 30), LimitRow("GPU-2", None)]


@pytest.fixture
def slots(tmp_path: Path) -> Path:
    """The directory of slots of a node."""
    directory = tmp_path / "slices"
    directory.mkdir()
    return directory


@pytest.fixture(params=[0o000, 0o077, 0o777], ids=lambda mask: f"umask {mask:03o}")
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def remains(slots: Path) -> list[str]:
    return sorted(path.name for path in [*slots.parent.iterdir(), *slots.iterdir()])


@pytest.mark.usefixtures("umask")
def test_the_contents_and_modes_of_a_slot_whatever_the_umask_is(slots: Path) -> None:
    slot.create(slots / "one", ROWS, gang=b"0123456789abcdef")
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (slots / "one").iterdir()}
    assert modes == {"limits": 0o644, "grants": 0o644, "account": 0o666, "libvgpu.so": 0o644}
    directory = (slots / "one").stat()
    assert (directory.st_mode & 0o7777, directory.st_uid) == (0o755, os.geteuid())
    page = LimitsPage.open(slots / "one" / "limits")
    assert page.rows() == ROWS
    assert page.gang() == b"0123456789abcdef"
    assert Account.open(slots / "one" / "account").snapshot().processes == []
    assert (slots / "one" / "libvgpu.so").read_bytes() == b""
    assert remains(slots) == ["one", "slices"]


@pytest.mark.parametrize("what", ["slot", "empty directory", "file", "dangling link"])
def test_what_exists_is_not_replaced(slots: Path, what: str) -> None:
    path = slots / "one"
    if what == "slot":
        slot.create(path, ROWS)
    elif what == "empty directory":
        path.mkdir()
    elif what == "file":
        path.write_text("kept")
    else:
        path.symlink_to(slots / "nowhere")
    before = path.lstat()
    with pytest.raises(StateError, match="it exists"):
        slot.create(path, ROWS)
    assert path.lstat() == before
    assert remains(slots) == ["one", "slices"]


def test_a_slot_that_appears_meanwhile_is_not_replaced(
    slots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot.create(slots / "one", ROWS)
    before = (slots / "one").stat()
    monkeypatch.setattr(os.path, "lexists", lambda path: False)
    with pytest.raises(StateError, match="one"):
        slot.create(slots / "one", [LimitRow("GPU-3")])
    assert (slots / "one").stat() == before
    assert remains(slots) == ["one", "slices"]


class TestFailures:
    """Nothing of the slot is left, and the error names it."""

    def test_an_invalid_row(self, slots: Path) -> None:
        with pytest.raises(InvalidValue):
            slot.create(slots / "one", [*ROWS, ROWS[0]])
        assert remains(slots) == ["slices"]

    @pytest.mark.parametrize("kind", [LimitsPage, Account, GrantsPage], ids=lambda it: it.__name__)
    def test_no_space(self, slots: Path, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
        class Full:
            @staticmethod
            def create(path: Path, *arguments: object, **more: object) -> None:
                path.touch()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

        monkeypatch.setattr(slot, kind.__name__, Full)
        with pytest.raises(StateError, match=r"slot .*/one: .*No space left on device"):
            slot.create(slots / "one", ROWS)
        assert remains(slots) == ["slices"]

    def test_an_interrupt(self, slots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(path: Path, mode: int) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Path, "chmod", interrupt)
        with pytest.raises(KeyboardInterrupt):
            slot.create(slots / "one", ROWS)
        assert remains(slots) == ["slices"]

    def test_without_a_directory_of_slots(self, tmp_path: Path) -> None:
        with pytest.raises(StateError, match="No such file"):
            slot.create(tmp_path / "slices" / "one", ROWS)
        assert list(tmp_path.iterdir()) == []
