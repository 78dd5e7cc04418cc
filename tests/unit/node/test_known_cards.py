"""The cards that were seen on a node stay known."""

from pathlib import Path

import pytest

from hami_py.model.pods.wire import Card
from hami_py.node.known_cards import read_cards, write_cards

A, B = Card("GPU-a", 0, "A100", 8000), Card("GPU-b", 1, "A100", 8000)


def test_what_was_written_is_read_without_what_changes(tmp_path: Path) -> None:
    path = tmp_path / "cards.json"
    seen = Card("GPU-b", 1, "A100", 8000, healthy=False, foreign_mib=7)
    write_cards(path, [A, seen, Card("MIG-c", 2, "A100 MIG", 4000)])
    assert read_cards(path) == (A, B)


def test_equal_cards_are_written_once(tmp_path: Path) -> None:
    path = tmp_path / "cards.json"
    write_cards(path, [A])
    before = path.stat().st_ino
    write_cards(path, [A])
    assert path.stat().st_ino == before
    write_cards(path, [A, B])
    assert read_cards(path) == (A, B)


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1]", b"\xff"])
def test_a_damaged_file_has_no_cards(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "cards.json"
    if content is not None:
        path.write_bytes(content)
    assert read_cards(path) == ()
