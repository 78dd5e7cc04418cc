"""Numbers in a slice of chosen cards count these cards, in CUDA and in NVML.

Launchers count cards by NVML and then set ``CUDA_VISIBLE_DEVICES`` to numbers; many of them take
nothing else there (vllm 13815, gpustack 4844, DeepSpeed 5278).
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from support.running import Started, run

HAMI = [sys.executable, "-m", "hami_py"]

#: What a program sees that starts with these values of CUDA_VISIBLE_DEVICES; "-" is without it.
LAUNCHER = """
import ctypes, json, os, subprocess, sys
from pynvml import *

def by_cuda():
    cuda = ctypes.CDLL("libcuda.so.1")
    count, uuids = ctypes.c_int(), []
    if cuda.cuInit(0) == 0:
        cuda.cuDeviceGetCount(ctypes.byref(count))
    for number in range(count.value):
        uuid = (ctypes.c_ubyte * 16)()
        cuda.cuDeviceGetUuid_v2(uuid, number)
        uuids.append(bytes(uuid).hex())
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    value = getenv(b"CUDA_VISIBLE_DEVICES")
    return {"cards": uuids, "variable": None if value is None else value.decode()}

def by_nvml():
    nvmlInit()
    cards = [nvmlDeviceGetHandleByIndex(i) for i in range(nvmlDeviceGetCount())]
    assert [nvmlDeviceGetIndex(card) for card in cards] == list(range(len(cards)))
    return [nvmlDeviceGetUUID(card)[4:].replace("-", "") for card in cards]

if sys.argv[1:] == ["worker"]:
    print(json.dumps(by_cuda()))
else:
    found = {"nvml": by_nvml(), "variable": os.environ.get("CUDA_VISIBLE_DEVICES")}
    for value in sys.argv[1:]:
        env = dict(os.environ) if value == "-" else {**os.environ, "CUDA_VISIBLE_DEVICES": value}
        worker = [sys.executable, __file__, "worker"]
        done = subprocess.run(worker, env=env, stdout=subprocess.PIPE, check=True)
        found[value] = json.loads(done.stdout)
    print(json.dumps(found))
"""


@pytest.fixture
def launcher(tmp_path):
    path = tmp_path / "launcher.py"
    path.write_text(LAUNCHER)
    return [sys.executable, str(path)]


@pytest.fixture
def choosing(preload, slice_dir):
    """`choosing(gpu, 2, 0)` is the environment of a program in a slice of these cards."""

    def env(gpu, *numbers):
        uuids = gpu.uuids()
        slice = slice_dir(dict.fromkeys(uuids, 2**30))
        (slice / "chosen-cards").write_text("".join(f"{uuids[number]}\n" for number in numbers))
        return preload(gpu, slice)

    return env


def hexes(gpu):
    return [uuid[4:].replace("-", "") for uuid in gpu.uuids()]


def test_a_launcher_that_counts_by_nvml_and_sets_numbers_gets_the_cards_that_it_means(
    stub_server, hami, launcher
):
    gpu = stub_server("t4,a100,h100,a100")
    cards = hexes(gpu)
    values = ["-", "0", "1", "1,0", "2", gpu.uuids()[1]]
    done = hami(gpu, "run", "--device", 3, "--device", 1, "--", *launcher, *values)
    found: dict[str, Any] = json.loads(done.out)
    assert found.pop("nvml") == [cards[3], cards[1]]
    # A launcher that reads numbers there fails at a UUID.
    assert found.pop("variable") is None
    assert {value: shown["cards"] for value, shown in found.items()} == {
        "-": [cards[3], cards[1]],
        "0": [cards[3]],
        "1": [cards[1]],
        "1,0": [cards[1], cards[3]],
        "2": [],
        gpu.uuids()[1]: [cards[1]],
    }
    # The driver was told UUIDs, the program keeps its variable.
    assert all(shown["variable"] == (None if v == "-" else v) for v, shown in found.items())


def test_an_order_of_all_cards_is_one_for_cuda_and_nvml(stub_server, hami, launcher):
    gpu = stub_server("t4,a100")
    cards = hexes(gpu)
    done = hami(gpu, "run", "--device", 1, "--device", 0, "--", *launcher, "-", "0")
    found = json.loads(done.out)
    assert found["nvml"] == found["-"]["cards"] == [cards[1], cards[0]]
    assert found["0"]["cards"] == [cards[1]]


@pytest.mark.parametrize("inner", [[], ["--device", "0", "--device", "1"], ["--device", "1"]])
def test_numbers_in_a_nested_slice_count_the_cards_of_the_slice_around_it(
    stub_server, hami, launcher, inner
):
    gpu = stub_server("t4,a100,a100")
    cards = hexes(gpu)
    nested = [*HAMI, "run", *inner, "--", *launcher, "-", "0"]
    done = hami(gpu, "run", "--device", 2, "--device", 0, "--", *nested)
    found = json.loads(done.out)
    expected = [cards[0]] if inner == ["--device", "1"] else [cards[2], cards[0]]
    assert found["nvml"] == found["-"]["cards"] == expected
    assert found["0"]["cards"] == expected[:1]


def test_numbers_around_a_nested_run_count_the_cards_of_its_slice(stub_server, hami, launcher):
    gpu = stub_server("t4,a100,h100")
    nested = ["env", "CUDA_VISIBLE_DEVICES=1", *HAMI, "run", "--device", "1", "--", *launcher, "-"]
    done = hami(gpu, "run", "--device", 2, "--device", 0, "--", *nested)
    assert json.loads(done.out)["-"]["cards"] == [hexes(gpu)[0]]


def test_a_slice_without_a_choice_leaves_the_order_and_the_variable_alone(
    stub_server, hami, launcher
):
    gpu = stub_server("t4,a100")
    bare = json.loads(run([*launcher, "-", "1"], gpu.env).out)
    done = hami(gpu, "run", "--", *launcher, "-", "1")
    assert json.loads(done.out) == bare


def environments(lines, ours):
    """The environments that the program printed, without what the shell and the slice have set."""
    found: dict[str, list[str]] = {"": []}
    for line in lines:
        if "=" not in line:
            found[line] = []
        elif line.split("=")[0] not in {"_", "PWD", "SHLVL", *ours}:
            found[next(reversed(found))].append(line)
    return {name: sorted(variables) for name, variables in found.items() if variables}


@pytest.mark.parametrize(
    "change", ["none", "add", "overwrite", "remove", "hide", "choose", "add hide choose"]
)
def test_variables_that_a_thread_changes_during_cuinit_stay_changed(
    stub_server, program, choosing, change
):
    """Frameworks start threads before they start CUDA, and threads start programs."""
    gpu = stub_server("t4,a100,h100")
    chosen = choosing(gpu, 2, 0)
    start = {"OLD": "old", "GONE": "gone", "CUDA_VISIBLE_DEVICES": "1"}
    seen = []
    for env in (gpu.env, chosen):
        before = gpu.calls()["cuInit"]
        gpu.control({"command": "slow", "symbol": "cuInit", "us": 600_000_000})
        with Started([program("environment_during_init")], {**env, **start}) as started:
            gpu.wait_until(lambda gpu, before=before: gpu.calls()["cuInit"] > before)
            started.tell(change)
            started.wait_for("changed")
            gpu.control({"command": "slow", "symbol": "cuInit", "us": 0})
            seen.append(started.finish())
    bare, sliced = seen
    assert (bare.code, sliced.code, sliced.err) == (0, 0, "")
    # The stub reads the variable before the delay: it is 1.
    assert f"cards {hexes(gpu)[1]}" in bare.lines
    assert f"cards {hexes(gpu)[0]}" in sliced.lines
    assert "GPU-" not in sliced.out
    ours = set(chosen) - set(gpu.env)
    found = environments(bare.lines, ours)
    assert set(found) == {"child during", "program after", "child after"}
    assert environments(sliced.lines, ours) == found


@pytest.mark.parametrize(
    "flags", ["-Wl,-z,lazy", "-Wl,-z,now,-z,relro", "-Wl,-z,lazy,-z,norelro", "-fno-plt"]
)
def test_a_driver_finds_the_chosen_cards_however_it_is_linked(
    stub_server, program, choosing, flags
):
    gpu = stub_server("t4,a100")
    driver = program("asking_driver", flags)
    init = f"""
import ctypes, os
for value in ("0", "1"):
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    assert ctypes.CDLL({str(driver)!r}).cuInit(0) == 0
    assert os.environ["CUDA_VISIBLE_DEVICES"] == value
"""
    done = run([sys.executable, "-c", init], choosing(gpu, 1, 0))
    first, second = gpu.uuids()
    assert done.lines == [f"{second} {second}", f"{first} {first}"]
    assert done.err == ""


@pytest.mark.parametrize("imports", [False, True])
def test_a_driver_that_cannot_be_told_the_cards_is_refused(
    stub_server, program, choosing, artifacts, launcher, *, imports
):
    """Without an import of getenv, the library changes the list of variables while cuInit runs."""
    gpu = stub_server("t4,a100,h100")
    flags = [f'-DINNER="{artifacts.libcuda}"', *(["-DIMPORTS"] if imports else [])]
    driver = Path(launcher[-1]).parent / "outer" / "libcuda.so.1"
    driver.parent.mkdir()
    driver.write_bytes(program("outer_driver", *flags).read_bytes())
    path = f"{driver.parent}:{artifacts.stub_dir}"
    env = {**choosing(gpu, 2, 0), "LD_LIBRARY_PATH": path, "CUDA_VISIBLE_DEVICES": "1,0"}
    done = run([*launcher, "worker"], env)
    shown = json.loads(done.out)
    assert shown["variable"] == "1,0"
    if imports:
        assert shown["cards"] == []
        (line,) = done.err.splitlines()
        assert line.startswith("hami: the driver shows other cards than `hami run --device`")
    else:
        assert shown["cards"] == [hexes(gpu)[0], hexes(gpu)[2]]
        assert done.err == ""
