"""programs/load.c, which measures shares: it counts the work that the card has finished."""

import json

import pytest

from support.running import run

SECONDS = 0.3

WORKLOADS = {
    "async": ["--kernel-us", "50"],
    "sync": ["--kernel-us", "200,100", "--host-us", "100"],
    "graph": ["--kernel-us", "20", "--chain", "10"],
    "streams": ["--kernel-us", "100"],
    "mixed": ["--kernel-us", "100"],
    "bursty": ["--kernel-us", "100", "--busy-percent", "20", "--period-us", "20000"],
    "decode": ["--kernel-us", "20", "--chain", "10", "--host-us", "200"],
    "server": ["--kernel-us", "100", "--chain", "10", "--busy-percent", "30", "--seed", "1"],
}


@pytest.fixture
def load(card):
    """`load("sync", ...)`: the program's lines, as JSON objects."""

    def started(work, *options):
        command = [card.programs("load"), "--work", work, "--seconds", str(SECONDS), *options]
        done = run(command, card.env)
        assert done.code == 0, done.err
        return [json.loads(line) for line in done.lines]

    return started


@pytest.mark.parametrize("work", WORKLOADS)
def test_completed_work_is_counted_as_it_grows(card, load, work):
    *ticks, last = load(work, *WORKLOADS[work], "--ticks", "20")
    assert last["work"] == work
    assert 0 < last["completed"] <= last["launched"]
    assert last["elapsed_ns"] >= SECONDS * 1e9
    for earlier, later in zip(ticks, [*ticks[1:], last], strict=True):
        assert earlier["completed"] <= later["completed"]
        assert earlier["work_ns"] <= later["work_ns"]
    if card.stub:
        kernels = sum(each["kernels"] for each in card.stub.ledger()["cards"])
        assert kernels == last["launched"]


@pytest.mark.parametrize("launcher", ["kernel", "ex", "cooperative"])
def test_every_launch_function_works(load, launcher):
    (last,) = load("sync", "--kernel-us", "100", "--launcher", launcher, "--wait", "context")
    assert last["completed"] == last["launched"] > 0


def test_a_burst_has_the_requested_length(load):
    (last,) = load("bursty", *WORKLOADS["bursty"])
    periods = len(last["late_ns"])
    assert periods == SECONDS / 0.02
    # 20 % of 20 ms, in kernels of 100 us.
    assert last["completed"] == 40 * periods


@pytest.mark.parametrize("work", ["sync", "decode", "server", "meet", "meet-streams"])
def test_steps_follow_each_other_and_last_as_long_as_their_kernels(load, work):
    (last,) = load(work, "--kernel-us", "200", "--chain", "5", "--busy-percent", "40", "--steps")
    steps = last["steps"]
    kernels = 5 if work in {"decode", "server"} else 1
    assert len(steps) * kernels == last["completed"] > 0
    ends = [0, *(begin + took for begin, took in steps)]
    for (begin, took), before in zip(steps, ends, strict=False):
        # A request may have to wait for the one before.
        assert begin >= before or work == "server"
        # Kernels that spin by the card's timer may be a little short of their time.
        assert took >= 0.9 * kernels * 200_000


def test_the_same_seed_brings_the_same_requests(load):
    options = ["--kernel-us", "100", "--chain", "10", "--busy-percent", "40", "--steps", "--seed"]
    first, same, other = (load("server", *options, seed)[0]["steps"] for seed in "112")
    shared = min(len(first), len(same))
    assert [begin for begin, _ in first[:shared]] == [begin for begin, _ in same[:shared]]
    assert first[0][0] != other[0][0]


@pytest.mark.parametrize(
    ("option", "value", "fix"),
    [
        ("work", "hard", "choose async, sync, graph"),
        ("kernel-us", "20,0", "give a number from 1 to"),
        ("busy-percent", "101", "give a number from 1 to 100"),
    ],
)
def test_invalid_options_are_refused_with_a_fix(card, option, value, fix):
    done = run([card.programs("load"), f"--{option}", value], card.env)
    assert done.code == 2
    assert f"--{option} {value.split(',')[-1]}: {fix}" in done.err
