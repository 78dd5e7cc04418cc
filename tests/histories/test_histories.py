"""10,000 random histories, on one core: sums never exceed, nothing stays stuck.

A seed that fails is printed with its steps, cut down to the kinds of steps that it needs. Alone:

    PYTHONPATH=tests python -m histories.histories 4711
"""

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from histories import histories

SEEDS_EACH = 200

HAPPENS = {
    "bound": 400,
    "instances": 100,
    "shares": 100,
    "init runs again": 1,
    "init is done for good": 10,
    "victims judged": 25,
    "victims added": 4,
    "promises kept": 6,
    "sidecars": 7,
    "cards left to choose from": 5,
}
"""What histories are there to show, and how often at least in ``SEEDS_EACH`` of them."""

FAULTS = {
    "conflict": 1,
    "410 to a list": 1,
    "410 to a watch": 150,
    "watch ended": 60,
    "busy": 30,
    "read lost": 20,
    "write lost": 12,
    "write unanswered": 4,
    "write late": 2,
    "event twice": 35,
    "event out of order": 35,
    "event out of date": 120,
    "written meanwhile": 100,
    "leader change": 18,
    "bind asked beside one of the leader before": 60,
    "bind asked beside the next leader": 5,
    "bound beside the next leader": 1,
    "bound late beside the next leader": 2,
    "restart": 50,
    "killed while asking": 1,
}
"""The same of what goes wrong. Counted where it reaches a replica, and not where it is chosen."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Hundreds of thousands of warnings about faults that are meant would only take time."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, 10_000, SEEDS_EACH))
def test_no_history_gives_a_card_twice_and_none_leaves_anything_behind(first: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(first, first + SEEDS_EACH):
        try:
            seen += histories.History(seed).run()
        except Exception:
            pytest.fail(histories.shrunk(seed), pytrace=False)
    # Histories in which too little of it happens would show nothing.
    floors = {**HAPPENS, **FAULTS}
    rare = {what: seen[what] for what, floor in floors.items() if seen[what] < floor}
    assert not rare


def test_a_seed_is_one_history() -> None:
    def told(seed: int) -> list[str]:
        history = histories.History(seed)
        history.run()
        return history.told

    assert told(1) == told(1)
    assert told(1) != told(2)
