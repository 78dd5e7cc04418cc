"""Kernels that wait for each other on two cards: a container gets both cards, or neither."""

import pytest

from support.world import Container, Event, Program

_CARDS = "a100,a100"
_SECONDS = 4.0


def _one_process(microseconds=500):
    return [Program((_SECONDS, microseconds, 0, 1), name="collective")]


def _two_processes(microseconds=500):
    return [Program((_SECONDS, microseconds, card), name="collective") for card in (0, 1)]


@pytest.mark.parametrize("shares", [(30, 70), (10, 90), (50, 50)], ids=str)
@pytest.mark.parametrize("programs", [_one_process, _two_processes])
def test_collectives_of_two_containers_continue(world, programs, shares):
    containers = [
        Container(name, programs(), share) for name, share in zip("ab", shares, strict=True)
    ]
    played = world(cards=_CARDS).play(containers, _SECONDS)
    for container in containers:
        for card in (0, 1):
            late = played.busy(container.name, _SECONDS - 1.0, _SECONDS, card=card)
            assert late > 0, f"{container.name} stands still on card {card}"
    for container, share in zip(containers, shares, strict=True):
        # Programs that wait for each other so often cannot fill the card beside others: without
        # us both together have 95 percent of it.
        most = max(played.share(container.name, card=card) for card in (0, 1))
        assert 0.85 * share <= most <= share + 1.5
    assert all(said.get("completed", 0) > 0 for group in played.said.values() for said in group)


def test_grants_by_card_would_deadlock(world):
    """The same under a coordinator that grants each card separately: both containers deadlock."""
    containers = [Container(name, _two_processes(), 50) for name in "ab"]
    # They would never end.
    end = [Event(_SECONDS + 1.0, "kill", name) for name in "ab"]
    played = world(cards=_CARDS, coordinator="per card").play(containers, _SECONDS, end)
    assert all(said == {} for group in played.said.values() for said in group), "somebody ended"
    launched = [sum(kernels.values()) for group in played.launched.values() for kernels in group]
    assert max(launched) < 100, launched
