"""What the ledger has acknowledged is kept, whenever its writer is killed or the disk fails."""

import errno
import hashlib
import json
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from hami_py.errors import DamagedFile, StateError
from hami_py.model.pods.wire import Assignment, CardAllocation
from hami_py.node import ledger
from hami_py.node.ledger import Entry, Ledger
from support.running import Started
from unit.node.build import on

ROOT = Path(__file__).parents[3]


def entry(slot: str, *cards: CardAllocation) -> Entry:
    return Entry(
        slot,
        f"uid-{slot}",
        "default",
        "train",
        "main",
        tuple(f"{card.card}::0" for card in cards),
        cards,
        cards,
        "/var/lib/hami/library/2-0123456789abcdef/libvgpu.so",
        "full",
        "normal",
    )


ONE, TWO = entry("one", on("A", 3000, 30)), entry("two", on("A", 1000), on("B", 2000))
MOVED = Assignment(1, "uid-one", "n1", {"main": (on("B", 3000, 30),)})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.json"


@pytest.fixture
def written(path: Path) -> Path:
    """A ledger with ONE and a changed assignment."""
    Ledger(path).put(ONE, changed={"uid-one": MOVED})
    return path


def test_a_missing_file_is_an_empty_ledger(path: Path) -> None:
    assert (Ledger(path).entries, Ledger(path).changed) == ({}, {})
    assert not path.exists(), "reading writes nothing"


def test_what_was_written_is_read_again(written: Path) -> None:
    two = msgspec.structs.replace(TWO, share_mode="soft", gang="job")
    Ledger(written).put(two)
    again = Ledger(written)
    assert again.entries == {"one": ONE, "two": two}
    assert again.changed == {"uid-one": MOVED}
    again.put(entry("one", on("C")))
    again.put(judged={"uid-one": "digest"})
    again.remove(["uid-two", "never there"])
    again = Ledger(written)
    assert again.entries == {"one": entry("one", on("C"))}
    assert (again.changed, again.judged) == ({"uid-one": MOVED}, {"uid-one": "digest"})
    again.remove(["uid-one"])
    again = Ledger(written)
    assert (again.entries, again.changed, again.judged) == ({}, {}, {})


OLD = (
    b'{"entries":[{"slot":"one","pod":{"uid":"uid-one","namespace":"default","name":"train"},'
    b'"container":"main","ids":["A::0"],"cards":[{"card":"A","memory_mib":3000,"cores":30}],'
    b'"injected":[{"card":"A","memory_mib":3000,"cores":30}],'
    b'"library":"/var/lib/hami/library/2-0123456789abcdef/libvgpu.so",'
    b'"mode":"full","priority":"normal"}],"changed":{},"judged":{}}'
)
"""The contents of a ledger before it had gangs and share modes."""


def with_header(body: bytes, version: int = ledger.VERSION) -> bytes:
    header = {"version": version, "sha256": hashlib.sha256(body).hexdigest()}
    return json.dumps(header).encode() + b"\n" + body + b"\n"


def test_a_ledger_of_the_first_version_is_read(path: Path) -> None:
    path.write_bytes(with_header(OLD, 1))
    assert Ledger(path).entries == {"one": ONE}
    assert ONE.share_mode == "hard"


def test_a_change_that_is_none_writes_nothing(written: Path) -> None:
    """The agent removes ended pods once a second, and usually there are none."""
    before = written.stat()
    same = Ledger(written)
    same.put(ONE, changed={"uid-one": MOVED})
    same.remove(["uid-two"])
    assert written.stat() == before


class TestDamage:
    """A damaged file is never taken for an empty ledger."""

    def test_a_truncation_is_found(self, written: Path) -> None:
        content = written.read_bytes()
        # Only the last line end may be missing.
        for length in [*range(0, len(content) - 1, 5), len(content) - 2]:
            written.write_bytes(content[:length])
            with pytest.raises(DamagedFile):
                Ledger(written)

    def test_a_changed_byte_of_the_contents_is_found(self, written: Path) -> None:
        content = written.read_bytes()
        for at in range(content.index(b"\n") + 1, len(content) - 1, 7):
            changed = bytes([content[at] ^ 1])
            written.write_bytes(content[:at] + changed + content[at + 1 :])
            with pytest.raises(DamagedFile):
                Ledger(written)

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\n",
            b"\0" * 4096,
            b"\xff\xfe\n{}",
            b'{"version":1,"sha256":"\xff"}\n{}',
            b"[]\n[]",
            b"{}\n{}",
            b'{"version":1}\n{}',
        ],
    )
    def test_other_files(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        with pytest.raises(DamagedFile, match=r"ledger\.json: "):
            Ledger(path)

    def test_another_version_is_named(self, written: Path) -> None:
        header, body = written.read_text().splitlines()
        written.write_text(f"{json.dumps({**json.loads(header), 'version': 7})}\n{body}\n")
        with pytest.raises(DamagedFile, match="version 7"):
            Ledger(written)

    @pytest.mark.parametrize("body", [b"[]", b'{"entries":[{"slot":"one"}]}', b'{"more":1}', b"x"])
    def test_contents_of_another_program(self, path: Path, body: bytes) -> None:
        """Their checksum is right."""
        path.write_bytes(with_header(body))
        with pytest.raises(DamagedFile):
            Ledger(path)

    def test_a_directory_in_its_place_is_another_error(self, path: Path) -> None:
        """It cannot be read, so it is not known to be damaged."""
        path.mkdir()
        with pytest.raises(StateError, match="Is a directory"):
            Ledger(path)

    def test_damaged_ledgers_are_kept_and_a_new_one_begins(self, path: Path) -> None:
        kept = []
        for content in ("first", "second"):
            path.write_text(content)
            kept.append(ledger.set_aside(path))
            assert Ledger(path).entries == {}
        assert [each.read_text() for each in kept] == ["first", "second"]
        assert all(each.parent == path.parent for each in kept)


class Killed(BaseException):
    """The writer is killed at this point."""


STEPS = ("write_bytes", "replace")
"""The steps of a write that can fail."""


@contextmanager
def failing(step: str, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def fail(*arguments: object, **more: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os if step == "fsync" else Path, step, fail)
        yield


@pytest.mark.parametrize("step", STEPS)
def test_after_a_kill_it_is_the_old_or_the_new_one(
    written: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Ledger(written)
    with failing(step, Killed(), monkeypatch), pytest.raises(Killed):
        killed.put(TWO)
    found = Ledger(written)
    assert dict(found.entries) in ({"one": ONE}, {"one": ONE, "two": TWO})
    assert found.changed == {"uid-one": MOVED}
    # What is left does not disturb the next one.
    found.put(TWO)
    assert Ledger(written).entries == {"one": ONE, "two": TWO}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_failed_write_changes_nothing(
    written: Path, step: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_one = Ledger(written)
    with failing(step, OSError(number, os.strerror(number)), monkeypatch):
        with pytest.raises(StateError, match=os.strerror(number)) as raised:
            open_one.put(TWO, changed={})
        assert str(written) in str(raised.value)
    assert (open_one.entries, open_one.changed) == ({"one": ONE}, {"uid-one": MOVED})
    assert Ledger(written).entries == {"one": ONE}
    open_one.put(TWO)
    assert Ledger(written).entries == {"one": ONE, "two": TWO}


def test_what_was_written_is_synced_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.fstat(number).st_ino))
    written = Ledger(path)
    written.sync()
    assert not synced
    for each in (ONE, TWO):
        written.put(each)
        written.sync()
        written.sync()
        assert synced == [path.stat().st_ino, path.parent.stat().st_ino]
        synced.clear()


def test_a_failed_sync_is_retried(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_one = Ledger(written)
    open_one.put(TWO)
    for _ in range(2):
        error = OSError(errno.EIO, os.strerror(errno.EIO))
        with failing("fsync", error, monkeypatch), pytest.raises(StateError, match=str(written)):
            open_one.sync()
    assert open_one.entries == {"one": ONE, "two": TWO}
    open_one.sync()


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """No file of this process can become longer: as on a disk that is full there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 50, 100, 400])
def test_a_disk_without_room_loses_nothing(written: Path, room: int) -> None:
    before = written.read_bytes()
    assert len(before) > room
    open_one = Ledger(written)
    with files_end_at(room), pytest.raises(StateError, match="File too large"):
        open_one.put(TWO)
    assert written.read_bytes() == before
    with files_end_at(room), pytest.raises(StateError):
        open_one.put(judged={"uid-one": "digest"})
    assert (open_one.entries, open_one.changed) == ({"one": ONE}, {"uid-one": MOVED})
    open_one.put(TWO)
    assert Ledger(written).entries == {"one": ONE, "two": TWO}


WRITER = """
import sys
from pathlib import Path
from hami_py.node.ledger import Ledger
from unit.node.test_ledger import entry, on
ledger = Ledger(Path(sys.argv[1]))
for number in range(len(ledger.entries), 10_000):
    ledger.put(entry(str(number), on("A")))
    print(number, flush=True)
"""


def test_a_killed_writer_has_kept_what_it_acknowledged(path: Path) -> None:
    env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    acknowledged = -1
    for lines in (1, 7, 23):
        with Started([sys.executable, "-c", WRITER, path], env) as writer:
            for _ in range(lines):
                acknowledged = int(writer.next_line())
            writer.kill()
        entries = Ledger(path).entries
        assert {str(number) for number in range(acknowledged + 1)} <= entries.keys()
        assert entries.keys() <= {str(number) for number in range(10_000)}
