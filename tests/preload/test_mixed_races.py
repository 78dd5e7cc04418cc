"""Processes that race for two limits with memory of all kinds never exceed them, and lose nothing.

The ledger shows the most bytes that were ever requested at once. The programs have fixed seeds.
"""

import contextlib
import os
import random
import signal

import pytest

from hami_py._native import Account
from support import slices
from support.console import SUCCESS
from support.memory_use import accounted, held, wait_for_use
from support.running import Started
from support.slices import GIB, MIB
from support.tiers import amount

PROCESSES = 8
CARDS = range(2)
ROUNDS = amount("rounds of mixed races")
KILLS = amount("killed racers")

EXACT, COARSE = "a100,a100", "h200-coarse,h200-coarse"
LIMITS = {EXACT: (GIB, 640 * MIB), COARSE: (6 * GIB, 5 * GIB)}
CONTEXT = {EXACT: None, COARSE: 527 * MIB}
"""What a context is charged."""


@pytest.fixture
def race(stub_server, tmp_path, preload, program):
    """`race(cards)` makes a slice; `start(rounds, seed)` starts a racing program in it."""

    class Race:
        def __init__(self, cards=EXACT, **options):
            self.limits, context = LIMITS[cards], CONTEXT[cards]
            self.gpu = stub_server(cards, **options)
            self.slice = slices.make(
                tmp_path / "slice",
                dict(zip(self.gpu.uuids(), self.limits, strict=True)),
                context_memory=context,
                granule=context and 2 * MIB,
            )
            self._env = preload(self.gpu, self.slice)

        def start(self, rounds, seed):
            return Started([program("mixed_race"), str(rounds), str(seed)], self._env)

        def check_peaks(self):
            kind = "occupied" if self.limits == LIMITS[COARSE] else "requested"
            for card, limit in zip(self.gpu.ledger()["cards"], self.limits, strict=True):
                # Pools cache the rest.
                assert limit // 2 < card[kind]["peak"] <= limit

    return Race


@pytest.mark.parametrize("cards", [EXACT, COARSE])
def test_processes_with_all_kinds_never_pass_the_limits(race, cards):
    """With the coarse cards, what the driver takes counts as well."""
    race = race(cards)
    with contextlib.ExitStack() as stack:
        racers = [stack.enter_context(race.start(ROUNDS, seed)) for seed in range(PROCESSES)]
        for racer in racers:
            racer.wait_for("ready")
        for racer in racers:
            racer.tell("race")
        for racer in racers:
            assert int(racer.next_line().removeprefix("granted ")) > 0
        # Closed descriptors are looked up by readers and requests, not when they are closed.
        Account.open(race.slice / "account").reclaim()
        for card in CARDS:
            driver = sum(race.gpu.booked(part, card) for part in ("context", "rounding"))
            charged = sum(accounted(race.slice, card).values())
            assert (charged, held(race.gpu, card)) == (driver if CONTEXT[cards] else 0, {})
        race.check_peaks()


@pytest.mark.parametrize("delay", [0, 50])
def test_killed_processes_neither_exceed_the_limits_nor_lose_memory(race, start, delay):
    race = race(free_delay_ms=delay)
    chance = random.Random(delay)  # noqa: S311 - no secret
    with contextlib.ExitStack() as stack:
        racers = []
        for seed in range(PROCESSES + KILLS):
            if len(racers) == PROCESSES:
                victim = racers.pop(chance.randrange(PROCESSES))
                os.kill(victim.pid, signal.SIGKILL)
                assert victim.finish().lines == ["ready"]
            racers.append(stack.enter_context(race.start(1 << 40, seed)))
            racers[-1].wait_for("ready").tell("race")
        for racer in racers:
            os.kill(racer.pid, signal.SIGKILL)
            assert racer.finish().lines == ["ready"]
        race.check_peaks()
    for card in CARDS:
        wait_for_use(race.gpu, race.slice, 0, card)
    race.gpu.control({"command": "reset-peaks"})
    script = start(race.gpu, race.slice)
    for card, limit in enumerate(race.limits):
        assert script(f"create h{card} {limit} {card}") == SUCCESS
