"""A job of two containers, one on each of two cards, whose kernels wait for each other.

Each has a trainer beside it. If the two got their turns at different times, each would wait for the
other through its own turn. So they are a gang.
"""

from dataclasses import replace

import pytest

from share.variants import varied
from support.world import Container, Program

_CARDS = "a100,a100"
_SECONDS = 4.0


def _rank(card, share, us):
    program = Program((_SECONDS, us, card), name="collective")
    # On the stub, kernels of one group meet.
    group = {"STUB_GPU_GROUP": "job"}
    return Container(f"rank{card}", [program], share, variables=group, gang=b"the ranks of job")


def _trainer(card, share):
    options = ("--work", "async", "--kernel-us", 500, "--device", card)
    return Container(f"trainer{card}", [Program(options)], share)


def _rounds(played):
    """Of the rank that has launched less."""
    return min(
        sum(kernels.values()) for card in (0, 1) for kernels in played.launched[f"rank{card}"]
    )


@pytest.mark.parametrize(
    ("us", "shares"),
    varied(
        [(500, (50, 30)), (500, (80, 80))],
        (50, 500, 5000),
        ((10, 90), (30, 30), (50, 30), (50, 50), (80, 80)),
    ),
    ids=str,
)
def test_a_gang_is_as_fast_as_its_smallest_share_allows(world, us, shares):
    ranks = [_rank(card, share, us) for card, share in enumerate(shares)]
    trainers = [_trainer(card, 100 - share) for card, share in enumerate(shares)]
    alone = [replace(rank, share=None, bare=True) for rank in ranks]
    native = _rounds(world(cards=_CARDS).play(alone, _SECONDS))
    played = world(cards=_CARDS).play([*ranks, *trainers], _SECONDS)
    assert _rounds(played) >= 0.9 * native * min(shares) / 100
    for card, share in enumerate(shares):
        assert played.share(f"rank{card}", card=card) <= share + 2
        assert played.share(f"trainer{card}", card=card) >= 100 - share - 2
