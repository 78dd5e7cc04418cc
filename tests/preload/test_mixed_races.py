"""Processes that race for two limits with memory of all kinds never exceed them, and lose nothing.

The ledger shows the most bytes that were ever requested at once. The programs have fixed seeds.
"""

import contextlib
import os
import random
import signal

import pytest

from support.console import SUCCESS
from support.memory_use import agreed, wait_for_use
from support.running import Started
from support.slices import GIB, MIB
from support.tiers import amount

LIMITS = (GIB, 640 * MIB)
PROCESSES = 8
ROUNDS = amount("rounds of mixed races")
KILLS = amount("killed racers")


@pytest.fixture
def race(stub_server, slice_dir, preload, program):
    """`race(rounds, seed)` starts a racing program; `race.gpu` and `race.slice` are shared."""

    class Race:
        def __init__(self, **options):
            self.gpu = stub_server("a100,a100", **options)
            self.slice = slice_dir(dict(zip(self.gpu.uuids(), LIMITS, strict=True)))
            self._env = preload(self.gpu, self.slice)

        def __call__(self, rounds, seed):
            return Started([program("mixed_race"), str(rounds), str(seed)], self._env)

        def check_peaks(self):
            for card, limit in enumerate(LIMITS):
                # Some of it is cached by pools, and not requested.
                assert limit // 2 < self.gpu.peak(card) <= limit

    return Race


def test_processes_with_all_kinds_never_pass_the_limits(race):
    race = race()
    with contextlib.ExitStack() as stack:
        racers = [stack.enter_context(race(ROUNDS, seed)) for seed in range(PROCESSES)]
        for racer in racers:
            racer.wait_for("racing")
            assert int(racer.next_line().removeprefix("granted ")) > 0
        assert [agreed(race.gpu, race.slice, card) for card in range(2)] == [0, 0]
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
                assert victim.finish().lines == ["racing"]
            racers.append(stack.enter_context(race(1 << 40, seed)))
            racers[-1].wait_for("racing")
        for racer in racers:
            os.kill(racer.pid, signal.SIGKILL)
            assert racer.finish().lines == ["racing"]
        race.check_peaks()
    for card in range(2):
        wait_for_use(race.gpu, race.slice, 0, card)
    race.gpu.control({"command": "reset-peaks"})
    script = start(race.gpu, race.slice)
    for card, limit in enumerate(LIMITS):
        assert script(f"create h{card} {limit} {card}") == SUCCESS
