"""What of a pod runs at a time, on which of its cards: the kubelet's order, with all its choices.

Containers get their cards in order, the init containers first. An ordinary init container runs
beside the sidecars before it alone, and leaves its cards to whoever comes next: who needs fewer
than are left gets any of them, who needs more gets all of them and new ones. Sidecars and apps keep
theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Generic, NamedTuple, TypeVar

from histories.reading import Ask

P = TypeVar("P")
"""A place: a card, or an instance on one."""


class Moment(NamedTuple, Generic[P]):
    """A container has got its places, and these run then: containers by number, and where."""

    hand: tuple[P, ...]
    running: tuple[tuple[int, P], ...]


def needs(asked: Sequence[Ask]) -> list[int]:
    """How many places each container needs beside those that are left to it."""
    left = 0
    found = []
    for ask in asked:
        reused = min(left, ask.cards)
        found.append(ask.cards - reused)
        left = max(left, ask.cards) if ask.kind == "init" else left - reused
    return found


def has_choice(asked: Sequence[Ask]) -> bool:
    """Whether some container gets fewer cards than are left to it."""
    left = 0
    for ask in asked:
        if ask.cards < left:
            return True
        left = ask.cards if ask.kind == "init" else left - min(left, ask.cards)
    return False


def new_places(asked: Sequence[Ask], hands: Sequence[Sequence[P]]) -> list[tuple[P, ...]]:
    """What each container of a plan gets beside what is left to it.

    Raises:
        ValueError: the kubelet would hand on more.
    """
    waiting: list[P] = []
    found = []
    for ask, hand in zip(asked, hands, strict=True):
        reused = [place for place in hand if place in waiting]
        if len(reused) != min(len(waiting), ask.cards):
            raise ValueError(f"{ask} does not get of {waiting} what is left to it: {hand}")
        new = tuple(place for place in hand if place not in waiting)
        if ask.kind == "init":
            waiting += new
        else:
            waiting = [place for place in waiting if place not in reused]
        found.append(new)
    return found


def moments(asked: Sequence[Ask], new: Sequence[Sequence[P]]) -> Iterator[Moment[P]]:
    """All that may come, whatever the kubelet chooses."""
    return _from(asked, new, 0, (), ())


def _from(
    asked: Sequence[Ask],
    new: Sequence[Sequence[P]],
    at: int,
    waiting: tuple[P, ...],
    running: tuple[tuple[int, P], ...],
) -> Iterator[Moment[P]]:
    if at == len(asked):
        return
    for chosen in combinations(waiting, asked[at].cards - len(new[at])):
        hand = (*chosen, *new[at])
        here = (*running, *((at, place) for place in hand))
        yield Moment(hand, here)
        if asked[at].kind == "init":
            yield from _from(asked, new, at + 1, (*waiting, *new[at]), running)
        else:
            left = tuple(place for place in waiting if place not in chosen)
            yield from _from(asked, new, at + 1, left, here)
