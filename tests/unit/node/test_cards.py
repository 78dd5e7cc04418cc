"""The cards that were seen on a node stay known."""

from pathlib import Path

import pytest

from hami_py.gpu.inventory import Inventory
from hami_py.gpu.mig import MigDevice
from hami_py.model.pods.wire import Card, Mig
from hami_py.node.cards import Cards, KnownCards

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


def test_a_gpu_that_comes_back_in_another_mig_mode_is_no_whole_card() -> None:
    cards, small = Cards(), Card("MIG-a", 0, "A100 MIG 1g.5gb", 4864, slots=1)
    cards.add(Inventory((A, B), {}, "1", {}))
    divided = Card("GPU-a", 0, "A100", 8000, slots=7, mig=Mig(()))
    devices = {"MIG-a": MigDevice(0, 7, 0, "GPU-a", "A100 MIG 1g.5gb")}
    assert cards.add(Inventory((small, B), {}, "1", {}, devices, (divided,)))
    assert {card.uuid for card in cards.all} == {"MIG-a", "GPU-b"}
    cards.managed = cards.in_mig_mode
    assert [(card.uuid, card.index) for card in cards.all] == [("GPU-a", 0), ("GPU-b", 1)]
    cards.keep_devices("GPU-a", [])
    cards.managed = frozenset()
    assert [card.uuid for card in cards.all] == ["GPU-b"], "the instance was removed"
    cards.add(Inventory((A, B), {}, "1", {}))
    assert {card.uuid for card in cards.all} == {"GPU-a", "GPU-b"}
