"""A GPU that uses the host's memory (GB10, Jetson): NVML does not report its memory.

CUDA and the stub's ledger say what such a card has, and what a program holds of it.
"""

import json
import sys

import pytest

from support.artifacts import ROOT
from support.running import run

MIB = 1 << 20
INNER = [sys.executable, "-m", "hami_py"]
PROBE = [sys.executable, "-m", "hami_py.gpu.probe"]


@pytest.mark.parametrize("cards", ["gb10", "a100,gb10", "gb10,a100"])
def test_every_card_is_listed_with_its_memory_and_limited(stub_server, hami, cards):
    gpu = stub_server(cards)
    names, uuids = cards.split(","), gpu.uuids()
    listed = json.loads(hami(gpu, "devices", "--json").out)
    assert [card["uuid"] for card in listed] == uuids
    unified = names.index("gb10")
    assert listed[unified]["memory_total"] == gpu.ledger()["cards"][unified]["total"]
    for number, uuid in enumerate(uuids):
        limited = ["run", "--gpumem", "1GiB", "--", *PROBE, "allocate"]
        done = hami(gpu, *limited, env={"CUDA_VISIBLE_DEVICES": uuid})
        report = json.loads(done.out)
        assert (report["failed"], report["total"]) == (None, 1 << 30)
        assert 0.99 * (1 << 30) <= gpu.peak(number) <= 1 << 30


def test_without_a_limit_a_program_has_all_of_each_card(stub_server, hami):
    gpu = stub_server("a100,gb10")
    totals = [card["total"] for card in gpu.ledger()["cards"]]
    report = json.loads(hami(gpu, "run", "--", *PROBE, "totals").out)
    assert list(report["totals"].values()) == totals


def test_the_doctor_tests_it_and_says_what_is_unknown(stub_server, hami):
    gpu = stub_server("gb10")
    done = hami(gpu, "doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.out)}
    assert done.code == 0, done
    assert "NVML does not report the memory in use" in checks["cards"]["detail"]
    limit = gpu.ledger()["cards"][0]["total"] // 4 // (2 * MIB) * (2 * MIB)
    assert 0.99 * limit <= gpu.peak() <= limit
    assert gpu.held() == 0


def test_in_a_slice_it_is_as_large_as_the_limit(stub_server, hami):
    gpu = stub_server("gb10")
    done = hami(gpu, "run", "--gpumem", "2GiB", "--", *INNER, "devices", "--json")
    assert [card["memory_total"] for card in json.loads(done.out)] == [2 << 30]
    nested = ["run", "--gpumem", "3GiB", "--", *INNER, "devices", "--json"]
    done = hami(gpu, "run", "--gpumem", "2GiB", "--", *INNER, *nested)
    assert [card["memory_total"] for card in json.loads(done.out)] == [2 << 30]


def test_a_node_has_it_in_its_inventory(stub_server, artifacts):
    gpu = stub_server("a100,gb10")
    read = (
        "from hami_py.gpu.inventory import inventory as read; found = read(slots=4);"
        "print(found.left_out, *(card.memory_mib for card in found.cards))"
    )
    done = run([sys.executable, "-c", read], {**gpu.env, "PYTHONPATH": str(ROOT)})
    total = gpu.ledger()["cards"][1]["total"]
    assert done.out.split()[0] == "{}", done
    assert int(done.out.split()[2]) == total // MIB
