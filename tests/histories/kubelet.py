"""The containers of a pod that may run at a time, and their cards: every choice of the kubelet.

Containers get their cards in order, the init containers first. An ordinary init container runs
beside the sidecars before it only, and leaves its cards to the next containers. A container that
needs fewer cards than are left gets any of them; one that needs more gets all of them and new ones.
Sidecars and apps keep their cards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Generic, NamedTuple, TypeVar

from histories.reading import ContainerRequest

P = TypeVar("P")
"""A place: a card, or an instance on one."""


class Moment(NamedTuple, Generic[P]):
    """A container has got its places, and these run then: containers by number, and where."""

    hand: tuple[P, ...]
    running: tuple[tuple[int, P], ...]


def needs(requested: Sequence[ContainerRequest]) -> list[int]:
    """How many places each container needs beside those that are left to it."""
    left = 0
    found = []
    for request in requested:
        reused = min(left, request.cards)
        found.append(request.cards - reused)
        left = max(left, request.cards) if request.kind == "init" else left - reused
    return found


def has_choice(requested: Sequence[ContainerRequest]) -> bool:
    """Whether some container gets fewer cards than are left to it."""
    left = 0
    for request in requested:
        if request.cards < left:
            return True
        left = request.cards if request.kind == "init" else left - min(left, request.cards)
    return False


def new_places(
    requested: Sequence[ContainerRequest], hands: Sequence[Sequence[P]]
) -> list[tuple[P, ...]]:
    """The new cards of each container of a plan, besides the reused ones.

    Raises:
        ValueError: the kubelet would reuse more.
    """
    waiting: list[P] = []
    found = []
    for request, hand in zip(requested, hands, strict=True):
        reused = [place for place in hand if place in waiting]
        if len(reused) != min(len(waiting), request.cards):
            raise ValueError(f"{request} does not get of {waiting} what is left to it: {hand}")
        new = tuple(place for place in hand if place not in waiting)
        if request.kind == "init":
            waiting += new
        else:
            waiting = [place for place in waiting if place not in reused]
        found.append(new)
    return found


def moments(
    requested: Sequence[ContainerRequest], new: Sequence[Sequence[P]]
) -> Iterator[Moment[P]]:
    """All possible moments, for every choice of the kubelet."""
    return _from(requested, new, 0, (), ())


def _from(
    requested: Sequence[ContainerRequest],
    new: Sequence[Sequence[P]],
    at: int,
    waiting: tuple[P, ...],
    running: tuple[tuple[int, P], ...],
) -> Iterator[Moment[P]]:
    if at == len(requested):
        return
    for chosen in combinations(waiting, requested[at].cards - len(new[at])):
        hand = (*chosen, *new[at])
        here = (*running, *((at, place) for place in hand))
        yield Moment(hand, here)
        if requested[at].kind == "init":
            yield from _from(requested, new, at + 1, (*waiting, *new[at]), running)
        else:
            left = tuple(place for place in waiting if place not in chosen)
            yield from _from(requested, new, at + 1, left, here)
