"""The preferred devices are of the assigned cards, whatever the kubelet offers."""

import random
from collections import Counter

import pytest

from hami_py.plugin.preference import preferred


@pytest.mark.parametrize(
    ("available", "required", "size", "cards", "wanted"),
    [
        (["A::0", "B::0"], [], 1, ["B"], ["B::0"]),
        (["B::10", "B::9", "B::0"], [], 1, ["B"], ["B::0"]),
        (["A::0", "B::0", "C::0"], [], 2, ["C", "A"], ["A::0", "C::0"]),
        # One of each assigned card before a second one of any.
        (["A::0", "A::1", "B::0"], [], 2, ["A", "B"], ["A::0", "B::0"]),
        # What must be included comes first, also of another card.
        (["A::0", "B::0"], ["A::0"], 1, ["B"], ["A::0"]),
        (["A::0", "B::0", "B::1", "C::0"], ["B::1"], 2, ["B", "C"], ["B::1", "C::0"]),
        (["A::0", "A::1", "B::0"], ["A::0", "A::1"], 2, ["A", "B"], ["A::0", "A::1"]),
        # The assigned card has no device left: another one, of a card that it has not.
        (["A::0", "A::1", "C::0"], [], 2, ["A", "B"], ["A::0", "C::0"]),
        (["A::0", "A::1"], [], 2, ["A", "B"], ["A::0", "A::1"]),
        # Nothing is known: different cards.
        (["A::0", "A::1", "B::0", "B::1"], [], 2, [], ["A::0", "B::0"]),
        (["A::0", "A::1", "B::0"], [], 3, [], ["A::0", "B::0", "A::1"]),
        # More than there are.
        (["A::0"], [], 2, ["A"], ["A::0"]),
        ([], [], 1, ["A"], []),
        (["A::0"], [], 0, ["A"], []),
    ],
)
def test_preferred(
    available: list[str], required: list[str], size: int, cards: list[str], wanted: list[str]
) -> None:
    assert sorted(preferred(available, required, size, cards)) == sorted(wanted)
    assert sorted(preferred(available[::-1], required, size, cards)) == sorted(wanted)


def test_any_order_of_many_devices() -> None:
    """Exactly so many, all of them offered, none twice, and one of each assigned card."""
    for seed in range(300):
        chance = random.Random(seed)  # noqa: S311
        names = "ABCDEFGH"[: chance.randint(1, 8)]
        every = [f"GPU-{name}::{number}" for name in names for number in range(32)]
        available = chance.sample(every, chance.randint(1, len(every)))
        size = chance.randint(1, 8)
        required = chance.sample(available, min(len(available), chance.choice((0, 0, 1, size))))
        required = required[:size]
        cards = [f"GPU-{name}" for name in chance.sample(names, min(size, len(names)))]
        found = preferred(available, required, size, cards)
        case = f"seed {seed}"
        assert len(found) == min(size, len(available)), case
        assert len({*found}) == len(found), case
        assert {*required} <= {*found} <= {*available}, case
        if not required:
            # The oracle counts cards, and does not choose.
            offered = {device.split("::")[0] for device in available}
            got = Counter(device.split("::")[0] for device in found)
            assert {*cards} & offered <= got.keys(), case
            assert len(got) == min(size, len(offered)), case
