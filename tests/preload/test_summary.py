"""The summary of a slice against the stub's ledger."""

import json

from support.slices import MIB

HELD = 64
"""The most allocations of a `grab`; each is charged in whole units of 512 bytes."""


def test_the_peak_and_the_refusals_are_those_of_the_ledger(gpu, hami, program):
    limit, rounds = 1024, 2000
    done = hami(
        gpu, "run", "--gpumem", f"{limit}MiB", "--summary", "--", program("grab"), rounds, 7
    )
    granted = int(done.lines[-1].split()[-1])
    (summary,) = json.loads(hami(gpu, "ps", "--ended", "--json").out)
    (card,) = summary["cards"]
    assert gpu.peak() > limit * MIB // 2
    assert 0 <= card["memory_peak"] - gpu.peak() < HELD * 512
    assert card["memory_peak"] <= card["memory_limit"] == limit * MIB
    assert granted < rounds
    assert card["refusals"] == rounds - granted
    assert done.err.startswith("hami: card 0: peak ")
    assert f"of 1GiB, {rounds - granted} refused" in done.err
    assert gpu.held() == 0


def test_the_peak_of_several_processes_is_not_too_low(gpu, hami, program):
    limit = 2048
    four = f"for i in 1 2 3 4; do {program('grab')} 500 $i & done; wait"
    hami(gpu, "run", "--gpumem", f"{limit}MiB", "--", "sh", "-c", four)
    (summary,) = json.loads(hami(gpu, "ps", "--ended", "--json").out)
    (card,) = summary["cards"]
    assert limit * MIB // 2 < gpu.peak() <= card["memory_peak"] <= limit * MIB
