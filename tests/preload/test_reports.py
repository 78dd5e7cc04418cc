"""What users ran into on machines with lost cards, and in small slices."""

import json
import sys

import pytest

from support.running import run
from support.slices import GIB

HAMI = [sys.executable, "-m", "hami_py"]


@pytest.mark.parametrize("lost", [0, 1])
def test_one_lost_card_stopped_every_command(stub_server, hami, lost):
    gpu = stub_server("a100,a100,t4")
    gpu.control({"command": "lose", "card": lost})
    reported = f"hami: card {lost} is left out, because it does not answer: GPU is lost"
    done = hami(gpu, "devices", "--json")
    assert done.err.splitlines() == [reported]
    others = [(i, uuid) for i, uuid in enumerate(gpu.uuids()) if i != lost]
    assert [(card["index"], card["uuid"]) for card in json.loads(done.out)] == others
    # Also in the output of a program our lines say whose they are.
    done = hami(gpu, "run", "--device", 2, "--", "sh", "-c", "sleep 1; echo ran")
    assert (done.code, done.lines) == (0, ["ran"])
    assert all(line.startswith("hami: ") for line in done.err.splitlines())


@pytest.mark.parametrize("size", ["2GiB", "1536MiB", "700MiB"])
def test_the_doctor_reported_a_fault_in_a_small_slice(gpu, hami, size):
    done = hami(gpu, "run", "--gpumem", size, "--", *HAMI, "doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.out)}
    limit = checks["limit on card 0"]
    if size == "700MiB":
        assert not limit["ok"]
        assert "this slice is too small to test" in limit["detail"]
    else:
        assert limit["ok"], limit
    assert not any("report this" in check["fix"] for check in checks.values())


def test_a_removed_limits_page_is_explained(gpu, slice_env, slice_dir, preload):
    uuid = gpu.uuids()[0]
    directory = slice_dir({uuid: GIB})
    env = preload(gpu, directory)
    (directory / "limits").unlink()
    done = run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"], env)
    (line,) = done.err.splitlines()
    assert "start the program, or its container, again" in line
