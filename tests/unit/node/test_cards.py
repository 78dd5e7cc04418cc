"""The cards that were seen on a node stay known."""

from pathlib import Path

import pytest

from hami_py.model.pods.wire import Card
from hami_py.node.cards import KnownCards

A, B = Card("GPU-a", 0, "A100", 8000), Card("GPU-b", 1, "A100", 8000)


def test_what_was_written_is_read_without_what_changes(tmp_path: Path) -> None:
    known = KnownCards(tmp_path / "cards.json")
    seen = Card("GPU-b", 1, "A100", 8000, healthy=False, foreign_mib=7)
    known.remember([A, seen, Card("MIG-c", 2, "A100 MIG", 4000)])
    assert known.read() == (A, B)


def test_a_removed_file_is_written_when_the_cards_change(tmp_path: Path) -> None:
    """Else an operator could not make the next agent forget a card."""
    path = tmp_path / "cards.json"
    known = KnownCards(path)
    known.remember([A, B])
    path.unlink()
    known.remember([A, B])
    assert KnownCards(path).read() == ()
    known.remember([A])
    assert KnownCards(path).read() == (A,)


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1]", b"\xff"])
def test_a_damaged_file_has_no_cards(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "cards.json"
    if content is not None:
        path.write_bytes(content)
    assert KnownCards(path).read() == ()
