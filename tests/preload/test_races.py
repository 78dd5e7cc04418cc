"""Processes that race for one limit never exceed it, and are never refused a request that fits.

The test and not the library decides whether a request fits: parts that together do not exceed the
limit fit in every order. The ledger shows that the limit was never exceeded.
"""

import contextlib

import pytest

from support.running import Started, run
from support.slices import GIB, MIB


@pytest.mark.parametrize("processes", [2, 8])
@pytest.mark.parametrize("greedy", [0, 1, 2])
def test_requests_that_fit_are_granted_in_every_race(gpu, program, processes, greedy, slice_env):
    """Mixed sizes, the parts come to the whole limit; greedy neighbours ask for far too much."""
    env = slice_env(gpu, GIB)
    part, rounds = 1024 // processes, 40000 // processes
    with contextlib.ExitStack() as stack:
        neighbours = [
            stack.enter_context(Started([program("allocate_too_much"), "1025"], env))
            for _ in range(greedy)
        ]
        for neighbour in neighbours:
            neighbour.wait_for("requesting")
        racers = [
            stack.enter_context(
                Started([program("partition"), str(part), str(rounds), str(seed)], env)
            )
            for seed in range(processes)
        ]
        assert [racer.finish().lines for racer in racers] == [["none refused"]] * processes
        for neighbour in neighbours:
            assert neighbour.finish(input="end").lines == ["requesting", "refused 1"]
    assert gpu.peak() <= GIB


@pytest.mark.parametrize(
    ("kind", "processes", "places", "rounds"),
    [
        ("linear", 2, 1, 1500),
        ("linear", 8, 1, 1500),
        ("linear", 8, 4, 1500),
        ("linear", 8, 7, 1500),
        *((kind, 8, 4, 300) for kind in ("pitched", "managed", "async", "pool")),
    ],
)
def test_of_concurrent_requests_exactly_as_many_as_fit_are_granted(
    gpu, run_limited, *, kind, processes, places, rounds
):
    done = run_limited(gpu, GIB, "last_place", kind, processes, places, rounds)
    assert done.lines == [f"{places} granted in every round"]
    assert gpu.peak() <= GIB


def test_a_slow_driver_causes_no_wrong_decision(gpu, run_limited):
    """The time between the charge and the driver's answer, and between a free and its uncharge."""
    for symbol in ("cuMemAlloc_v2", "cuMemFree_v2"):
        gpu.control({"command": "slow", "symbol": symbol, "us": 300})
    done = run_limited(gpu, GIB, "last_place", "linear", 8, 4, 200)
    assert done.lines == ["4 granted in every round"]
    assert gpu.peak() <= GIB


def test_the_last_free_memory_is_granted_beside_a_greedy_neighbour(gpu, program, slice_env):
    env = slice_env(gpu, GIB)
    with Started([program("allocate_too_much"), "1025"], env) as neighbour:
        neighbour.wait_for("requesting")
        done = run([program("last_place"), "linear", "4", "2", "1500"], env)
    assert done.lines == ["2 granted in every round"]
    assert gpu.peak() <= GIB


@pytest.mark.tier("ci")
def test_many_processes_with_large_requests_never_pass_the_limit(gpu, program, slice_env):
    """Refusals are correct here; the limit must hold to the byte."""
    env = slice_env(gpu, GIB)
    with contextlib.ExitStack() as stack:
        racers = [
            stack.enter_context(Started([program("grab"), "20000", str(seed)], env))
            for seed in range(8)
        ]
        granted = [int(racer.finish().lines[-1].split()[-1]) for racer in racers]
    assert all(count > 0 for count in granted)
    assert GIB - 64 * MIB < gpu.peak() <= GIB


def test_two_cards_do_not_mix(stub_server, program, slice_env):
    gpu = stub_server("a100,a100")
    first, second = gpu.uuids()
    env = slice_env(gpu, {first: GIB, second: 512 * MIB})
    with contextlib.ExitStack() as stack:
        racers = [
            stack.enter_context(
                Started(
                    [program("grab"), "10000", str(seed)],
                    {**env, "CUDA_VISIBLE_DEVICES": str(seed % 2)},
                )
            )
            for seed in range(4)
        ]
        for racer in racers:
            assert int(racer.finish().lines[-1].split()[-1]) > 0
    assert gpu.peak(0) <= GIB
    assert gpu.peak(1) <= 512 * MIB
