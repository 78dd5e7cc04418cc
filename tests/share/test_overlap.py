"""Threads with streams of their own: kernels that run beside each other use the card once."""

from dataclasses import dataclass

import pytest

from support.world import Container, Program

#: Blocks of a kernel of which all, two, or one at a time fit on the card.
_ALL, _TWO, _ONE = 1, 54, 108


@dataclass(frozen=True)
class Threads:
    """Options of share/programs/threads.c."""

    threads: int
    us: int
    blocks: int = _ALL
    ahead: int = 16
    contexts: int = 1
    pause_us: int = 0

    @property
    def name(self):
        """A name for the ID of the test."""
        return f"{self.threads} x {self.us} us, {self.blocks} blocks"

    def program(self, seconds):
        """The program, which launches for this long."""
        options = (self.threads, self.contexts, self.us, self.blocks, self.ahead, self.pause_us)
        return Program((seconds, *options), name="threads")


def _play(world, threads, cap, seconds):
    return world.play([Container("alone", [threads.program(seconds)], cap)], seconds)


@pytest.mark.parametrize(
    ("threads", "cap", "seconds"),
    [
        (Threads(8, 20, _TWO), 75, 1.0),
        (Threads(16, 20, _ONE), 30, 1.0),
        (Threads(32, 20), 10, 1.0),
        (Threads(8, 500, _ALL), 75, 4.0),
        (Threads(16, 500, _TWO), 10, 4.0),
        (Threads(32, 500, _ONE), 30, 4.0),
        (Threads(8, 5_000, _TWO), 10, 20.0),
        (Threads(32, 5_000, _ALL), 75, 20.0),
        (Threads(32, 5_000, _ONE), 30, 20.0),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_share(world, threads, cap, seconds):
    played = _play(world(), threads, cap, seconds)
    assert played.share("alone") == pytest.approx(cap, abs=1.0)


@pytest.mark.parametrize(
    ("threads", "us", "pause_us", "cap"),
    [(4, 20, 190, 75), (8, 20, 180, 75), (8, 100, 180, 10), (8, 100, 180, 30)],
)
def test_kernels_with_pauses_between_them_are_billed_once_and_all(
    world, threads, us, pause_us, cap
):
    """Each batch has many kernels. Those of other streams run in its pauses, or beside it."""
    played = _play(world(), Threads(threads, us, ahead=20, pause_us=pause_us), cap, 1.5)
    busy = played.busy("alone", 0.0, 4.0)
    assert 100 * abs(played.billed["alone"] - busy) / 1.5 <= 1.0
    assert played.share("alone") <= cap + 1.0


def test_a_long_kernel_beside_short_ones_with_pauses_is_billed_in_full(world):
    """The other stream may have any number of gaps meanwhile."""
    container = Container("alone", [Program((6.0, 1_000_000, 20, 480), name="beside")], 50)
    played = world().play([container], 6.0)
    assert played.billed["alone"] == pytest.approx(played.busy("alone", 0.0, 30.0), abs=0.1)


@pytest.mark.parametrize("us", [500, 5_000])
@pytest.mark.parametrize("cap", [30, 60])
def test_two_contexts_of_a_process(world, us, cap):
    """The driver switches between them, so the elapsed time of each includes time of the other.

    Here a switch takes no time, because that time would be billed.
    """
    played = _play(world(server={"switch_us": 0}), Threads(2, us, contexts=2), cap, 10.0)
    assert played.share("alone") == pytest.approx(cap, abs=1.0)


@pytest.mark.parametrize("contexts", [1, 2])
def test_two_contexts_beside_a_slice_of_the_same_share(world, contexts):
    """The driver alone would give a part of the card to each context."""
    several = Threads(2, 500, contexts=contexts).program(6.0)
    one = Program(("--work", "async", "--kernel-us", 500))
    both = [Container("several", [several], 50, "soft"), Container("one", [one], 50, "soft")]
    played = world().play(both, 6.0)
    parts = [played.share(container.name, 1.0) for container in both]
    assert parts == pytest.approx([50, 50], abs=2.0)


def test_two_processes_with_two_contexts_and_no_coordinator(world):
    """Beside each other, without a coordinator, they stay below their share."""
    programs = [Threads(2, 500, contexts=2).program(6.0)] * 2
    quiet = world(coordinator=False, server={"switch_us": 0})
    played = quiet.play([Container("two", programs, 40)], 6.0)
    assert 20 <= played.share("two", 1.0) <= 41
