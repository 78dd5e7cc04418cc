"""Thousands of random histories, on one core: sums never exceed, nothing stays stuck.

A seed that fails is printed with its steps, cut down to the kinds of steps that it needs. Alone:

    PYTHONPATH=tests python -m histories.histories 4711
"""

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from histories import histories
from support.tiers import amount

SEEDS_EACH = 1000

HAPPENS = {
    "bound": 2100,
    "bound without the webhook's label": 190,
    "instances": 950,
    "shares": 500,
    "init runs again": 9,
    "init is done for good": 70,
    "victims judged": 200,
    "victims added": 60,
    "promises kept": 60,
    "sidecars": 65,
    "cards left to choose from": 40,
}
"""What histories are there to show, and how often at least in ``SEEDS_EACH`` of them: about half as
often as it was where there was least of it."""

FAULTS = {
    "conflict": 7,
    "410 to a list": 20,
    "410 to a watch": 750,
    "watch ended": 300,
    "busy": 200,
    "read lost": 200,
    "write lost": 150,
    "write unanswered": 30,
    "write late": 85,
    "event twice": 200,
    "event out of order": 300,
    "event out of date": 750,
    "event changed by a selector": 13,
    "written meanwhile": 700,
    "leader change": 100,
    "bind asked beside one of the leader before": 450,
    "bind asked beside the next leader": 60,
    "bound beside the next leader": 14,
    "bound late beside the next leader": 25,
    "restart": 250,
    "killed while asking": 14,
}
"""The same of what goes wrong. Counted where it reaches a replica, and not where it is chosen."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Hundreds of thousands of warnings about faults that are meant would only take time."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, amount("histories"), SEEDS_EACH))
def test_no_history_assigns_a_card_twice_or_leaves_anything_behind(first: int) -> None:
    """Each history is one order of events, and what goes wrong does so in few of them."""
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


def test_a_seed_determines_one_history() -> None:
    def told(seed: int) -> list[str]:
        history = histories.History(seed)
        history.run()
        return history.told

    assert told(1) == told(1)
    assert told(1) != told(2)
