"""The meter bills as much engine time as the ledger has busy time of the card.

This tests consistency, and tests/share tests accuracy over time: all launches of a pattern have
ended, and account and ledger must agree about them.
"""

import pytest

from support.launcher import launched, until

# On the real clock, account and ledger agree better if threads are rarely interrupted.
pytestmark = pytest.mark.alone

#: Relative to the engine time; a typical difference is a hundredth. If a busy machine stops a
#: thread between our event and its launch, that looks like work until enough was measured, so the
#: bound is wide. tests/share tests exact values on the virtual clock.
TOLERANCE = 0.35

#: Per launch: kernels of 20, 100 and 1,000 µs, and of 20 ms.
KERNELS = {"a": "a_20us", "b": "b_100us", "c": "c_1000us", "d": "d_20000us"}
SETUP = [f"kernel {key} m {name}" for key, name in KERNELS.items()]
LAUNCH = "launch cuLaunchKernel"

GRAPH = ["stream g", "begin g 1", f"{LAUNCH} b g 1 10", f"{LAUNCH} c g", "end g g"]
FORKED = ["event e", "event f", "begin g 1", "record e g", "wait s0 e", f"{LAUNCH} c s0"]
FORKED += [f"{LAUNCH} c g", "record f s0", "wait g f", "end g g", "instantiate x g"]

PATTERNS = {
    "one stream, full": [f"{LAUNCH} b s0 1 2000"],
    "legacy default stream": [f"{LAUNCH} b - 1 1000"],
    "waits between launches": [f"{LAUNCH} b s0", "sync s0"] * 600,
    "polls between launches": [f"{LAUNCH} c s0", "any query s0", "any query s0", "sync s0"] * 60,
    "tiny kernels that change": [f"{LAUNCH} a s0", f"{LAUNCH} b s0", f"{LAUNCH} a s0 2"] * 300,
    "kernels of all lengths by turns": [f"{LAUNCH} {key} s0" for key in "acabacab"] * 40,
    "more grids than are remembered": [f"{LAUNCH} a s0 {grid} 2" for grid in range(1, 2400)] * 2,
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
    "graphs with branches": ["stream g", *FORKED] + ["launch cuGraphLaunch x s1 1 5"] * 12,
    "streams that come and go": ["stream t", f"{LAUNCH} b t 1 20", "destroy_stream t"] * 30,
    "old functions": ["launch cuLaunchGrid b - 4 300", "launch cuLaunch c - 1 50"],
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


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS.keys())
def test_the_billed_time_is_the_busy_time_of_the_card(launcher, gpu, pattern):
    script = launcher(gpu, share=75)
    script.do(*SETUP, *(f"stream s{i}" for i in range(8)), *pattern, "sync_context")
    script.is_metered(TOLERANCE, at_least_ns=20_000_000)


@pytest.mark.parametrize(("pattern", "too_much"), [("beside each other", 1.0), ("by turns", 0.1)])
def test_two_contexts_are_billed_at_least_their_time(launcher, gpu, pattern, too_much):
    """At worst, where both always have work, each is billed the time of both."""
    script = launcher(gpu, share=75)
    script.do(*SETUP, "stream s0", "context b", "module n", "kernel o n there_100us", "pop")
    script.do(*CONTEXTS[pattern], "sync_context", "push b", "sync_context")
    busy = script.busy_ns()
    until(lambda: script.account("used_ns") >= (1 - TOLERANCE) * busy, "billed too little")
    assert script.account("used_ns") <= (1 + too_much) * busy + TOLERANCE * busy


def test_two_cards_are_metered_separately(launcher, stub_server):
    gpu = stub_server("a100,a100")
    script = launcher(gpu, share=75)
    script.do(*SETUP, "stream s", "context b 1", "module n", "kernel o n there_1000us", "stream t")
    script.do(f"start t {LAUNCH} o t 1 100", "current a", f"{LAUNCH} b s 1 300")
    script.do("launch_on_two b s o t", "finish t", "sync s", "sync t")
    script.is_metered(TOLERANCE, at_least_ns=30_000_000)
    script.is_metered(TOLERANCE, at_least_ns=100_000_000, card=1)


def test_two_processes_are_billed_their_own_time(launcher, gpu):
    """In one slice without a coordinator: each divides the time between them."""
    one = launcher(gpu, share=60)
    other = launcher(gpu, slice=one.slice)
    for script in (one, other):
        script.do(*SETUP, "stream s0", f"{LAUNCH} b s0 1 50", "sync s0")
        script.do(f"start t {LAUNCH} b s0 1 1000")
    for script in (one, other):
        script.do("finish t", "sync s0")
    assert launched(gpu) == {"b_100us": 2100}
    for script in (one, other):
        script.is_metered(0.15, at_least_ns=100_000_000)
