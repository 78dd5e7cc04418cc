"""Containers beside each other get what their shares say, and together the whole card."""

import pytest

from share import workloads as w
from share.test_alone import jain
from share.workloads import Workload
from support.world import Container

#: Seconds for several containers, of which each needs its 200 kernels.
_LONG_ENOUGH = {
    w.ASYNC_20US: 3.0,
    w.ASYNC_500US: 6.0,
    w.ASYNC_5MS: 15.0,
    w.ASYNC_50MS: 60.0,
    w.ASYNC_MIXED: 60.0,
}


def _containers(workload, shares, mode, *, first=None):
    programs = [(first or workload).program, *[workload.program] * (len(shares) - 1)]
    return [
        Container(f"c{index}", [program], share, mode)
        for index, (program, share) in enumerate(zip(programs, shares, strict=True))
    ]


def _named(value):
    if isinstance(value, Workload):
        return value.name
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


MATRIX = [
    (w.ASYNC_20US, (30, 70), "soft"),
    (w.ASYNC_20US, (10, 90), "soft"),
    (w.ASYNC_20US, (75, 25), "hard"),
    (w.ASYNC_20US, (25, 25, 25, 25), "soft"),
    (w.ASYNC_500US, (30, 70), "hard"),
    (w.ASYNC_500US, (10, 90), "soft"),
    (w.ASYNC_500US, (75, 25), "hard"),
    (w.ASYNC_500US, (25, 25, 25, 25), "soft"),
    (w.ASYNC_5MS, (30, 70), "soft"),
    (w.ASYNC_5MS, (10, 90), "hard"),
    (w.ASYNC_5MS, (75, 25), "soft"),
    (w.ASYNC_5MS, (25, 25, 25, 25), "hard"),
    (w.ASYNC_50MS, (30, 70), "hard"),
    (w.ASYNC_50MS, (10, 90), "soft"),
    (w.ASYNC_50MS, (75, 25), "soft"),
    (w.ASYNC_50MS, (25, 25, 25, 25), "soft"),
    (w.ASYNC_MIXED, (10, 90), "soft"),
    (w.ASYNC_MIXED, (25, 25, 25, 25), "soft"),
]


@pytest.mark.parametrize(("workload", "shares", "mode"), MATRIX, ids=_named)
def test_shares(world, workload, shares, mode):
    containers = _containers(workload, shares, mode)
    played = world().play(containers, _LONG_ENOUGH[workload])
    parts = [played.share(one.name) for one in containers]
    # Behind a long kernel, short ones of other functions run one by one.
    most = 1.5 if workload is w.ASYNC_MIXED else 1.0
    assert parts == pytest.approx(list(shares), abs=most)
    if mode == "soft":
        assert sum(parts) >= (98.5 if len(set(shares)) > 1 else w.DIVIDED)
    if len(set(shares)) == 1:
        assert jain(parts) >= 0.999


@pytest.mark.parametrize(("shares", "mode"), [((30, 70), "soft"), ((75, 25), "hard")], ids=_named)
def test_short_kernels_beside_long_ones(world, shares, mode):
    containers = _containers(w.ASYNC_50MS, shares, mode, first=w.ASYNC_500US)
    played = world().play(containers, 30.0)
    parts = [played.share(one.name) for one in containers]
    assert parts == pytest.approx(list(shares), abs=1.0)
    if mode == "soft":
        assert sum(parts) >= 98.5


def test_idle_members_lend_their_time_by_weight(world):
    busy = _containers(w.ASYNC_500US, (20, 40), "soft")
    idle = [Container(f"idle{index}", [w.IDLE], 20, "soft") for index in range(2)]
    played = world().play([*busy, *idle], 6.0)
    parts = [played.share(one.name) for one in busy]
    assert parts == pytest.approx([100 / 3, 200 / 3], abs=1.0)
    assert sum(parts) >= 98.5


def test_hard_shares_below_the_whole_leave_the_rest_unused(world):
    containers = _containers(w.ASYNC_500US, (20, 30), "hard")
    played = world().play(containers, 6.0)
    assert [played.share(one.name) for one in containers] == pytest.approx([20, 30], abs=1.0)


def test_idle_members_of_hard_mode_lend_nothing(world):
    busy = _containers(w.ASYNC_500US, (10, 20, 30), "hard")
    played = world().play([*busy, Container("idle", [w.IDLE], 40)], 6.0)
    assert [played.share(one.name) for one in busy] == pytest.approx([10, 20, 30], abs=1.0)


@pytest.mark.parametrize(
    ("share", "mode", "parts"),
    [(30, "hard", (16, 83)), (70, "hard", (35, 63)), (70, "soft", (49, 49))],
)
def test_beside_a_program_without_hami_a_share_is_not_guaranteed(world, share, mode, parts):
    """A hard share is a ceiling: the measured time includes time of the other program."""
    program = w.ASYNC_500US.program
    inside = Container("inside", [program], share, mode)
    played = world().play([inside, Container("outside", [program], bare=True)], 4.0)
    found = [played.share(name, 1.0) for name in ("inside", "outside")]
    assert found == pytest.approx(parts, abs=2.0)


@pytest.mark.parametrize(("policy", "part"), [("force", 30), ("default", 50)])
def test_a_variable_beside_a_share(world, policy, part):
    """One kind is a ceiling, and the other lends idle time, like the shares of a limits page.

    The coordinator does not see variables: for it the slice has no share, and may have the rest.
    """
    program = w.ASYNC_500US.program
    said = {"CUDA_DEVICE_SM_LIMIT": "30", "GPU_CORE_UTILIZATION_POLICY": policy}
    both = [Container("said", [program], variables=said), Container("capped", [program], 50)]
    played = world().play(both, 6.0)
    parts = [played.share(one.name, 1.0) for one in both]
    assert parts == pytest.approx([part, 50], abs=1.0)


def test_ten_processes_get_no_more_than_one(world):
    program = w.ASYNC_500US.program
    both = [Container("ten", [program] * 10, 40, "soft"), Container("one", [program], 60, "soft")]
    played = world().play(both, 12.0)
    assert [played.share("ten"), played.share("one")] == pytest.approx([40, 60], abs=1.5)
    parts = [played.busy("ten", process=index) for index in range(10)]
    # The driver divides the time of the container among them.
    assert jain(parts) >= 0.95, parts


@pytest.mark.parametrize("workload", [w.ASYNC_20US, w.ASYNC_500US, w.ASYNC_5MS], ids=_named)
def test_threads_that_wake_late(world, workload):
    """Threads run 60 us late after a wake-up, as they do on a real machine.

    Each handover waits for several of them, so a little time is lost. No container is favoured.
    """
    containers = _containers(workload, (30, 70), "soft")
    played = world(late_us=60).play(containers, _LONG_ENOUGH[workload])
    parts = [played.share(one.name) for one in containers]
    assert sum(parts) >= 97.5
    assert 100 * parts[0] / sum(parts) == pytest.approx(30, abs=1.0)


def test_priority_goes_above_weights(world):
    program = w.ASYNC_500US.program
    both = [
        Container("high", [program], 10, "soft", "high"),
        Container("low", [program], 90, "soft", "low"),
    ]
    played = world().play(both, 4.0)
    # A lower priority gets two percent of the time for which it waits.
    assert played.share("high") == pytest.approx(98, abs=1.0)
    assert played.share("low") == pytest.approx(2, abs=0.5)
    # The other one gets the time that the first one does not need.
    both[0] = Container("high", [w.BURSTY.program], 10, "soft", "high")
    played = world().play(both, 4.0)
    assert played.share("high") == pytest.approx(10, abs=1.0)
    assert played.share("high") + played.share("low") >= 98.5
