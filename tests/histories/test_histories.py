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
    "instances",
    "shares",
    "init runs again",
    "init is done for good",
    "victims judged",
    "victims added",
    "promises kept",
    "sidecars",
    "cards left to choose from",
}
"""What histories are there to show, beside bindings."""


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
    # Histories in which nothing of it happens would show nothing.
    assert seen["bound"] > 2 * SEEDS_EACH
    assert seen.keys() >= HAPPENS


def test_a_seed_is_one_history() -> None:
    def told(seed: int) -> list[str]:
        history = histories.History(seed)
        history.run()
        return history.told

    assert told(1) == told(1)
    assert told(1) != told(2)
