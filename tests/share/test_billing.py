"""The billed time is the busy time of the card, to 2 percent, for every way to launch.

The library writes the account. The stub driver writes the ledger, independently. On the virtual
clock no thread is ever late, so that the two can be compared to the microsecond.
"""

import pytest

from support.world import Container, Event, Program

_SHARE, _SECONDS = 40, 2.0

#: Of the engine time.
_TOLERANCE = 0.02

#: The same for programs with pauses.
_PAUSES_TOLERANCE = 0.03


@pytest.mark.parametrize("share", [20, 50])
def test_pairs_with_a_pause_between_them(world, share):
    """A kernel waits on the engine for its partner: they got 81 of 50 while 50 was billed."""
    program = Program((1_000_000, "swap_500us_meets2_streams", 1_000), name="null_between")
    container = Container("alone", [program], share)
    played = world().play([container], 6.0, [Event(6.0, "kill", "alone")])
    assert played.share("alone", 1.0, 6.0) >= 0.8 * share
    assert played.billed["alone"] == pytest.approx(
        played.busy("alone", 0.0, 6.0), rel=_PAUSES_TOLERANCE
    )


def test_copies_in_a_graph_are_billed_with_its_kernels(world):
    """A graph is one unit: a quarter of a millisecond of copies is billed with one of kernels.

    So the engine has less than the share, never more, and what comes back is what was sent.
    """
    copied, rate = 3_125_000, 25e9
    carrier = Program((_SECONDS, 1_000, copied), name="carrier")
    played = world().play([Container("alone", [carrier], _SHARE)], _SECONDS)
    (said,) = played.said["alone"]
    assert said["wrong"] == 0
    assert said["completed"] >= 200
    kernels, copies = 0.001, 2 * copied / rate
    assert played.busy("alone", 0.0, 2 * _SECONDS) == pytest.approx(
        said["completed"] * kernels, rel=0.001
    )
    billed = said["completed"] * (kernels + copies)
    assert played.billed["alone"] == pytest.approx(billed, rel=_TOLERANCE)
    expected = _SHARE * kernels / (kernels + copies)
    assert played.share("alone") == pytest.approx(expected, abs=1.0)


def test_slices_with_the_lease_together_are_billed_their_parts(world):
    """The elapsed time of each kernel includes the time of the other slice's kernels."""
    program = Program(("--work", "async", "--kernel-us", 500))
    both = [Container(name, [program], 50, "soft") for name in "ab"]
    played = world().play(both, 4.0)
    for container in both:
        busy = played.busy(container.name, 0.0, 30.0)
        assert played.billed[container.name] == pytest.approx(busy, rel=0.1)
