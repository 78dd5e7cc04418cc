"""Which share holds: the slice's, HAMi's variables, and what changes while a program runs.

Whether launches are metered is the question: a limited launch has a meter, and is in the account.
"""

from dataclasses import replace

import pytest

from support.launcher import until
from support.scripts import Script
from support.world import Container, Event, Program

WORK = ["kernel k m work_100us", "stream s"]
LAUNCH = ["launch cuLaunchKernel k s 1 200", "sync s"]
POLICY = "GPU_CORE_UTILIZATION_POLICY"


def is_metered(script, *, card=0):
    """Wait until launches have been billed; not one was before."""
    assert script.account("used_ns", card) == 0
    script.do(*LAUNCH)
    until(lambda: script.account("used_ns", card) > 0, "nothing was billed")


def is_not_metered(script, *, card=0):
    script.do(*LAUNCH)
    assert script.account("used_ns", card) == 0


@pytest.mark.parametrize(
    ("share", "policy", "metered"),
    [
        ("30", "force", True),
        ("30", "FORCE", True),
        ("30", "default", True),
        ("30", None, True),
        ("30", "disable", False),
        ("30", "DISABLE", False),
        ("0", "force", False),
        ("100", "force", False),
    ],
)
@pytest.mark.parametrize("in_slice", [True, False], ids=["in a slice", "by variables alone"])
def test_hami_s_variables(launcher, gpu, artifacts, tmp_path, *, share, policy, metered, in_slice):
    env = {"CUDA_DEVICE_SM_LIMIT": share, **({POLICY: policy} if policy else {})}
    if not in_slice:
        env |= {"LD_PRELOAD": str(artifacts.library), "HAMI_RUNTIME_DIR": str(tmp_path)}
    script = launcher(gpu, None, env=env)
    script.do(*WORK)
    if in_slice:
        (is_metered if metered else is_not_metered)(script)
    script.do(*LAUNCH)
    assert ("hami-meter" in script.tasks()) is metered


def test_a_policy_does_not_disable_the_share_of_a_page(launcher, gpu):
    script = launcher(gpu, 30, env={POLICY: "disable", "CUDA_DEVICE_SM_LIMIT": "100"})
    script.do(*WORK)
    is_metered(script)


def test_a_variable_s_share_is_its_card_s(launcher, stub_server):
    gpu = stub_server("a100,a100")
    env = {"CUDA_DEVICE_SM_LIMIT_1": "30", POLICY: "force"}
    script = launcher(gpu, None, env=env)
    script.do(*WORK)
    is_not_metered(script)
    script.do("context b 1", "module m", *WORK)
    is_metered(script, card=1)
    script.do("current a", "module m", *WORK)
    is_not_metered(script)


#: A program that always has work, with 10 ms of it in the driver's queue.
ENDLESS = Program(("--work", "async", "--kernel-us", 500, "--queue-ms", 10))


def holds_each_share(world, container, shares):
    """Each share for a second, set while the container's program launches: it holds at once."""
    events = [Event(0, "look", container.name)]
    for second, share in enumerate(shares):
        now = replace(container, share=share)
        events.append(Event(second, "set", container.name, now=now))
        events.append(Event(second + 1, "look", container.name))
    played = world(coordinator=False).play([container], len(shares), events)
    used = [look["used_ns"][0] / 1e9 for look in played.looks[container.name]]
    for second, share in enumerate(shares):
        busy = played.busy(container.name, second, second + 1)
        billed = used[second + 1] - used[second]
        if share in (None, 100):
            assert (busy, billed) == (pytest.approx(1.0, abs=0.01), pytest.approx(0.0, abs=0.01))
        else:
            # What was queued before is not billed, and 100 ms are saved while there is no limit.
            assert billed == pytest.approx(busy, abs=0.015)
            assert (share - 1) / 100 <= billed <= share / 100 + 0.1


def test_a_share_that_is_set_and_removed_while_a_program_runs(world):
    """And launches on: the first of a new regime is under it."""
    holds_each_share(world, Container("one", [ENDLESS]), [None, 30, 100, 50] * 2)


def test_removing_a_share_releases_waiting_threads(world, kit, tmp_path):
    """With a share of 1 the second of two long kernels would wait for seconds."""
    launch = "launch cuLaunchKernel l s"
    lines = ["kernel l m long_200000us", "stream s", launch, "sync s", launch, "sync s"]
    script = Script.of(kit, tmp_path, lines)
    events = [Event(1.0, "set", "one", now=Container("one", [], None))]
    container = Container("one", [script.program], 1)
    played = world(coordinator=False).play([container], 4.0, events)
    script.succeeded()
    assert played.busy("one", 0.0, 1.0) == pytest.approx(0.2)
    assert played.busy("one", 1.0, 1.25) == pytest.approx(0.2)
