"""The meter bills as much engine time as the ledger has busy time of the card.

The library writes the account, the stub writes the ledger. Each test compares the two after all
launches of a pattern have ended, on the virtual clock. tests/share tests shares over time.
"""

import pytest

from support.scripts import Script
from support.world import Container, Event

#: Relative to the engine time.
TOLERANCE = 0.002

#: Virtual seconds after which the work of each script has ended. It sleeps then, for a second.
_AFTER_THE_WORK = 0.9

#: Per launch: kernels of 20, 100 and 1,000 µs, and of 20 ms.
KERNELS = {"a": "a_20us", "b": "b_100us", "c": "c_1000us", "d": "d_20000us"}
SETUP = [f"kernel {key} m {name}" for key, name in KERNELS.items()]
LAUNCH = "launch cuLaunchKernel"

GRAPH = ["stream g", "begin g 1", f"{LAUNCH} b g 1 10", f"{LAUNCH} c g", "end g g"]
CAPTURE = ["begin s1 1", "sleep 5", "end s1 g"]
FORKED = ["event e", "event f", "begin g 1", "record e g", "wait s0 e", f"{LAUNCH} c s0"]
FORKED += [f"{LAUNCH} c g", "record f s0", "wait g f", "end g g", "instantiate x g"]

#: A short graph was billed as the long one before it.
LENGTHS = (1, 4, 16)
CAPTURED = [
    line
    for length in LENGTHS
    for line in ("begin s0 1", f"{LAUNCH} b s0 1 {length}", "end s0 g", f"instantiate x{length} g")
]
CHANGING = [
    line
    for length in LENGTHS
    for line in (f"launch cuGraphLaunch x{length} s0", "sync s0", "sleep 1")
]

PATTERNS = {
    "one stream, full": [f"{LAUNCH} b s0 1 2000"],
    "legacy default stream": [f"{LAUNCH} b - 1 1000"],
    "waits between launches": [f"{LAUNCH} b s0", "sync s0"] * 600,
    "polls between launches": [f"{LAUNCH} c s0", "any query s0", "any query s0", "sync s0"] * 60,
    "tiny kernels that change": [f"{LAUNCH} a s0", f"{LAUNCH} b s0", f"{LAUNCH} a s0 2"] * 300,
    "kernels of all lengths by turns": [f"{LAUNCH} {key} s0" for key in "acabacab"] * 40,
    "more grids than are remembered": [f"{LAUNCH} a s0 {grid} 2" for grid in range(1, 2400)] * 2,
    "unknown kernels among known ones": [
        line
        for grid in range(2, 102)
        for line in (
            f"{LAUNCH} a s0 1 20",
            "module n",
            "kernel z n strange_170us",
            f"{LAUNCH} z s0",
            f"{LAUNCH} a s0 {grid} 5",
        )
    ],
    "many short kernels, one long": [f"{LAUNCH} a s0 1 7", f"{LAUNCH} c s0"] * 100,
    "tiny kernels with waits": [f"{LAUNCH} a s0 1 30", "sync s0"] * 100,
    "8 streams beside each other": [f"{LAUNCH} c s{i}" for i in range(8)] * 40,
    "8 streams that fill the card": [f"{LAUNCH} c s{i} 108" for i in range(8)] * 10,
    "8 threads on their own streams": [f"threads 8 {LAUNCH} b P 1 400"],
    "8 threads on one stream": [f"threads 8 {LAUNCH} b s0 1 100"],
    "long kernels": [f"{LAUNCH} d s0 1 5"],
    "long kernels with waits": [f"{LAUNCH} d s0", "sync s0"] * 5,
    "graphs": [*GRAPH, "instantiate x g", "launch cuGraphLaunch x s0 1 40"],
    "graphs with waits": [*GRAPH, "instantiate x g"]
    + ["launch cuGraphLaunch x s0", "sync s0"] * 30,
    "captures beside long kernels": [f"{LAUNCH} a s0 1 30", f"{LAUNCH} d s0", *CAPTURE] * 10,
    "graphs with branches": ["stream g", *FORKED] + ["launch cuGraphLaunch x s1 1 5"] * 12,
    "graphs of changing length with pauses": CAPTURED + CHANGING * 40,
    "a stream of another context": ["context b", "stream t", "pop"]
    + [f"{LAUNCH} b t 1 16", "sync t"] * 40,
    "streams that come and go": ["stream t", f"{LAUNCH} b t 1 20", "destroy_stream t"] * 30,
    "old functions": ["launch cuLaunchGrid b - 4 300", "launch cuLaunch c - 1 50"],
    "cooperative launches": ["launch cuLaunchCooperativeKernel b s0 1 600"],
    "configured launches": [
        "launch cuLaunchKernelEx b s0 1 600",
        "launch cuLaunchKernelEx_ptsz b - 1 300",
    ],
}

#: The card goes from one to the other, and the time of both is in what each one's events measure.
CONTEXTS = {
    "beside each other": [f"{LAUNCH} b s0 1 10", "push b", f"{LAUNCH} o - 1 10", "pop"] * 50,
    "by turns": [f"{LAUNCH} c s0", "sync s0", "push b", f"{LAUNCH} o - 1 5", "sync -", "pop"] * 50,
}


@pytest.fixture
def play(world, kit, tmp_path):
    """`play(lines, ...)` executes each of the scripts in a process of one slice.

    There is no coordinator.
    """

    def run(*scripts, cards="a100"):
        made = [Script.of(kit, tmp_path, lines) for lines in scripts]
        container = Container("slice", [one.program for one in made], share=75)
        look = Event(_AFTER_THE_WORK, "look", "slice")
        played = world(cards=cards, coordinator=False).play([container], 2.0, [look])
        for one in made:
            one.succeeded()
        return played

    return run


def billed(played, *, card=0):
    """Seconds by the account, of each process; none has ended."""
    (look,) = played.looks["slice"]
    return [process["used_ns"][card] / 1e9 for process in look["processes"]]


def busy(played, *, card=0, process=None):
    """Seconds by the ledger."""
    found = played.busy("slice", card=card, process=process)
    before = played.busy("slice", 0.0, _AFTER_THE_WORK, card=card, process=process)
    assert found == before, "the account was read while there was work in flight"
    return found


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS.keys())
def test_the_billed_time_is_the_busy_time_of_the_card(play, pattern):
    streams = [f"stream s{i}" for i in range(8)]
    played = play([*SETUP, *streams, *pattern, "sync_context"])
    assert busy(played) >= 0.02
    assert billed(played) == [pytest.approx(busy(played), rel=TOLERANCE)]


@pytest.mark.parametrize(("pattern", "too_much"), [("beside each other", 1.0), ("by turns", 0.01)])
def test_two_contexts_are_billed_at_least_their_time(play, pattern, too_much):
    """At worst, where both always have work, each is billed the time of both."""
    setup = [*SETUP, "stream s0", "context b", "module n", "kernel o n there_100us", "pop"]
    played = play([*setup, *CONTEXTS[pattern], "sync_context", "push b", "sync_context"])
    (used,) = billed(played)
    least, most = 1 - TOLERANCE, 1 + too_much + TOLERANCE
    assert least * busy(played) <= used <= most * busy(played)


TWO_CARDS = [*SETUP, "stream s", "context b 1", "module n", "kernel o n there_1000us", "stream t"]


def test_two_cards_are_metered_separately(play):
    work = [f"start t {LAUNCH} o t 1 100", "current a", f"{LAUNCH} b s 1 300"]
    # The last kernels are launched into a stream of the card that is not current.
    work += ["finish t", "sync s", "sync t", f"{LAUNCH} o t 1 50", "sync t"]
    played = play([*TWO_CARDS, *work], cards="a100,a100")
    for card, least in enumerate((0.03, 0.1)):
        assert busy(played, card=card) >= least
        expected = pytest.approx(busy(played, card=card), rel=TOLERANCE)
        assert billed(played, card=card) == [expected]


def test_kernels_that_are_on_two_cards_at_once_are_billed_on_each(play):
    work = ["current a", *["launch_on_two c s o t"] * 80, "sync s", "sync t"]
    played = play([*TWO_CARDS, *work], cards="a100,a100")
    for card in (0, 1):
        assert busy(played, card=card) == pytest.approx(0.08)
        assert billed(played, card=card) == [pytest.approx(0.08, rel=TOLERANCE)]


def test_two_processes_are_billed_their_own_time(play):
    """In one slice without a coordinator: each divides the time between them."""
    setup = [*SETUP, "stream s0"]
    played = play(
        [*setup, f"{LAUNCH} b s0 1 1200", "sync s0"], [*setup, f"{LAUNCH} b s0 1 800", "sync s0"]
    )
    own = [busy(played, process=process) for process in (0, 1)]
    assert own == [pytest.approx(0.12), pytest.approx(0.08)]
    # Each sees with its heartbeats, every millisecond, whether the other works too.
    assert billed(played) == [pytest.approx(seconds, rel=0.06) for seconds in own]
