"""Kernels of several kinds mixed: each is billed its own time.

A batch of a thread has launches of several kinds, with their predicted costs. The billed time must
be that of the ledger, to one percent.
"""

from collections.abc import Callable

import pytest

from support.world import Container, Program, World

Worlds = Callable[..., World]

SECONDS = 6.0

#: Microseconds of the kernels, in the order in which they come round.
MIXES = {
    "two by turns": "20,200",
    "two by turns that differ much": "10,1500",
    "many short, one long": "20,20,20,20,20,20,20,3000",
    "sixteen": "10,20,30,40,50,60,70,80,90,100,110,120,130,140,150,160",
}


def _is_held_and_billed(worlds: Worlds, program: Program) -> None:
    played = worlds().play([Container("alone", [program], share=40)], SECONDS)
    assert played.share("alone") == pytest.approx(40, abs=1.0)
    assert played.billed["alone"] == pytest.approx(played.busy("alone"), rel=0.01)


@pytest.mark.parametrize("kernels_us", MIXES.values(), ids=MIXES.keys())
@pytest.mark.parametrize("launcher", ["kernel", "ex"])
def test_a_mix_is_billed_its_engine_time(world: Worlds, kernels_us: str, launcher: str) -> None:
    options = ("--work", "async", "--kernel-us", kernels_us, "--launcher", launcher)
    _is_held_and_billed(world, Program(options))


def test_unknown_kernels_and_grids_among_known_ones(world: Worlds) -> None:
    """There is no prediction for them, so none of them uses a budget."""
    _is_held_and_billed(world, Program((SECONDS,), name="strangers"))
