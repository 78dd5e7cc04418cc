"""What a context takes is measured once, kept, and used instead of the table."""

import json
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hami_py.agent import service
from hami_py.errors import DriverError
from hami_py.gpu import context_memory, measured_memory
from hami_py.gpu.context_memory import measure
from hami_py.gpu.inventory import Inventory
from hami_py.gpu.measured_memory import MeasuredMemory
from hami_py.model.cards import DriverMemory
from hami_py.model.pods.wire import Card
from hami_py.node.cards import Cards
from support.artifacts import Artifacts
from support.running import Run, run
from support.slices import GIB, MIB
from support.stub import StubServer
from unit.agent.build import settings as agent_settings

PROFILES = Path(__file__).parents[1] / "stub" / "profiles"

#: The same cards, and a driver version, for tests without a driver.
CARDS = {"GPU-1": "Model", "GPU-2": "Model"}
DRIVER = "580.95.05"

Sample = tuple[int, int | None]


@pytest.fixture
def profile(tmp_path: Path) -> Callable[[str, int], str]:
    """`profile(name, context)`: an A100 of another name, whose contexts take so many bytes."""

    def make(name: str, context: int) -> str:
        text = (PROFILES / "a100.toml").read_text()
        text = re.sub(r"^name = .*$", f'name = "{name}"', text, flags=re.M)
        text = re.sub(r"^context_bytes = .*$", f"context_bytes = {context}", text, flags=re.M)
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        return str(path)

    return make


@pytest.fixture
def hami_on(runtime: Path, artifacts: Artifacts) -> Callable[..., Run]:
    """`hami_on(gpu, *arguments)` runs `hami` on the stub, as users have it."""

    def start(gpu: StubServer, *arguments: str, **variables: str) -> Run:
        ours = {"HAMI_RUNTIME_DIR": str(runtime), "HAMI_LIBRARY": str(artifacts.library)}
        command = [sys.executable, "-m", "hami_py", *arguments]
        return run(command, {**gpu.charging_env, **ours, **variables})

    return start


def context_of(hami_on: Callable[..., Run], gpu: StubServer) -> int | None:
    """What `hami devices` shows after `hami doctor`, and with what `hami run` starts."""
    hami_on(gpu, "doctor")
    done = hami_on(gpu, "run", "--gpumem", "2GiB", "--", "true")
    assert (done.code, done.err) == (0, "")
    (card,) = json.loads(hami_on(gpu, "devices", "--json").out)
    found: int | None = card["driver_memory"]["context"]
    return found


def kept(runtime: Path) -> Any:
    return json.loads((runtime / "hami" / "driver-memory.json").read_text())


@pytest.mark.parametrize("name", ["a100", "t4", "h200", "a100-mig-1g"])
def test_what_the_card_loses_is_measured(stub_server: Callable[..., StubServer], name: str) -> None:
    gpu = stub_server(name)
    found = re.findall(r"^context_bytes = (\d+)", (PROFILES / f"{name}.toml").read_text(), re.M)
    (uuid,) = gpu.uuids()
    assert measure(uuid, gpu.charging_env) == int(found[0])
    assert gpu.booked("context") == 0


def test_limits_and_preloaded_libraries_do_not_reach_the_process_that_measures(
    gpu: StubServer, artifacts: Artifacts
) -> None:
    limits = {"CUDA_DEVICE_MEMORY_LIMIT": "100m", "LD_PRELOAD": str(artifacts.library)}
    assert measure(gpu.uuids()[0], {**gpu.charging_env, **limits}) == 413 * MIB


@pytest.mark.parametrize(("name", "context"), [("Tesla T4", 200 * MIB), ("New card", 300 * MIB)])
def test_a_measured_figure_wins_over_the_table(
    stub_server: Callable[..., StubServer],
    profile: Callable[[str, int], str],
    hami_on: Callable[..., Run],
    name: str,
    context: int,
) -> None:
    assert context_of(hami_on, stub_server(profile(name, context))) == context


def test_the_first_hami_doctor_measures_and_the_next_does_not(
    stub_server: Callable[..., StubServer], hami_on: Callable[..., Run], runtime: Path
) -> None:
    gpu = stub_server("a100")
    assert context_of(hami_on, gpu) == 413 * MIB
    path = runtime / "hami" / "driver-memory.json"
    path.write_text(path.read_text().replace(str(413 * MIB), str(99 * MIB)))
    assert context_of(hami_on, gpu) == 99 * MIB


def test_settings_override_what_was_measured(
    stub_server: Callable[..., StubServer], hami_on: Callable[..., Run], runtime: Path
) -> None:
    gpu = stub_server("a100")
    hami_on(gpu, "doctor", HAMI_CONTEXT_MEMORY="100MiB")
    assert not (runtime / "hami" / "driver-memory.json").exists(), "nothing to measure"


def test_a_failure_is_not_repeated_by_the_next_hami_doctor(
    stub_server: Callable[..., StubServer], hami_on: Callable[..., Run], runtime: Path
) -> None:
    gpu = stub_server("a100")
    assert context_of(hami_on, gpu) == 413 * MIB
    gpu.control({"command": "slow", "symbol": "cuDevicePrimaryCtxRetain", "us": 600_000_000})
    with pytest.raises(DriverError, match="does not end in time"):
        measure(gpu.uuids()[0], gpu.charging_env, deadline_s=1.5)
    gpu.wait_until(lambda gpu: gpu.booked("context") == 0)
    gpu.control({"command": "slow", "symbol": "cuDevicePrimaryCtxRetain", "us": 0})
    # As it is kept after a failure: nothing is measured, and the table counts.
    failed = {model: dict.fromkeys(sizes) for model, sizes in kept(runtime).items()}
    (runtime / "hami" / "driver-memory.json").write_text(json.dumps(failed))
    assert context_of(hami_on, gpu) == 413 * MIB
    assert kept(runtime) == failed


def test_a_process_that_fails_says_why(gpu: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DriverError, match="there is no card"):
        measure("GPU-none", gpu.charging_env)
    monkeypatch.setattr(context_memory, "_PROGRAM", "no_such_module")
    with pytest.raises(DriverError, match="no_such_module"):
        measure(gpu.uuids()[0], gpu.charging_env)


def samples(monkeypatch: pytest.MonkeyPatch, *found: Sample) -> None:
    """The samples that a measurement takes one after the other."""
    left = list(found)
    monkeypatch.setattr(context_memory, "_sample", lambda *unused: left.pop(0))


def test_samples_that_others_disturb_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    of_process = 543162368
    samples(
        monkeypatch,
        (of_process + 33 * MIB, of_process),
        (of_process - MIB, of_process),
        (552402944, of_process),
        (548995072, of_process),
        (552402944, of_process),
    )
    assert measure("GPU-1", {}) == 527 * MIB, "as on an idle H100: rounded up"
    samples(monkeypatch, (413 * MIB, None), (413 * MIB, None))
    assert measure("GPU-1", {}) == 413 * MIB, "NVML has no figure for a process"


def test_without_two_equal_samples_there_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    samples(monkeypatch, *((MIB + i, MIB) for i in range(9)))
    with pytest.raises(DriverError, match="agree"):
        measure("GPU-1", {})
    samples(monkeypatch, *((0, None) for _ in range(9)))
    with pytest.raises(DriverError, match="agree"):
        measure("GPU-1", {})


OBSERVER = """
import sys, threading
from hami_py.config import read
from hami_py.gpu.context_memory import measure
from hami_py.gpu.nvml import handles, session
from hami_py.gpu.processes import card_processes, process_memory

found = []
work = threading.Thread(target=lambda: found.append(measure(sys.argv[1], read().environment)))
work.start()
seen, reported = set(), set()
while work.is_alive():
    with session():
        reported |= {each.pid for each in card_processes()}
        seen |= {pid for handle in handles() for pid in process_memory(handle)}
print(found[0] >> 20, len(seen), len(reported))
"""


def test_the_observer_does_not_report_the_process_that_measures(gpu: StubServer) -> None:
    """It is in no slot: the agent would take it for a process without limits, and might end it."""
    gpu.control({"command": "slow", "symbol": "cuCtxSetCurrent", "us": 300_000})
    done = run([sys.executable, "-c", OBSERVER, gpu.uuids()[0]], gpu.charging_env)
    assert (done.err, done.out) == ("", "413 2 0\n")


class Measuring:
    """Measurements of made-up cards, counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.path, self.measured = path, list[str]()
        self.result: int | None = 300 * MIB
        self.free = {"GPU-1": 2 * GIB, "GPU-2": 3 * GIB}
        monkeypatch.setattr(measured_memory, "measure", self._measure)
        monkeypatch.setattr(measured_memory, "memory_free", self._free)

    def _free(self, uuids: list[str]) -> dict[str, int]:
        return {uuid: self.free[uuid] for uuid in uuids}

    def _measure(self, uuid: str, environment: object) -> int:
        self.measured.append(uuid)
        if self.result is None:
            raise DriverError("it", "fails", "nothing")
        return self.result

    def memory(self, driver: str = DRIVER) -> MeasuredMemory:
        """As a new process has it."""
        return MeasuredMemory(self.path, CARDS, driver, {})


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Measuring:
    return Measuring(monkeypatch, tmp_path / "driver-memory.json")


RESULT = {"Model": DriverMemory(300 * MIB, 2 * MIB)}


def test_a_model_is_measured_once_on_the_card_with_the_most_room(measuring: Measuring) -> None:
    assert measuring.memory().results() == {}
    measuring.memory().measure()
    measuring.memory().measure()
    assert measuring.measured == ["GPU-2"]
    assert measuring.memory().results() == RESULT


def test_another_driver_version_is_measured_again(measuring: Measuring) -> None:
    measuring.memory("570.1").measure()
    assert measuring.memory().results() == {}
    measuring.result = 310 * MIB
    measuring.memory().measure()
    assert measuring.memory("570.1").results() == RESULT
    assert measuring.memory().results()["Model"].context == 310 * MIB


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"Model": 3}',
        '{"Model": {"580.95.05": "a"}}',
        '{"Model": {"580.95.05": -1}}',
    ],
)
def test_a_damaged_file_is_measured_again(measuring: Measuring, content: str) -> None:
    measuring.path.write_text(content)
    assert measuring.memory().results() == {}
    measuring.memory().measure()
    assert measuring.memory().results() == RESULT
    assert [path.name for path in measuring.path.parent.iterdir()] == [measuring.path.name]


def test_a_failure_is_repeated_only_if_that_is_wanted(measuring: Measuring) -> None:
    measuring.result = None
    measuring.memory().measure()
    measuring.memory().measure()
    assert (measuring.measured, measuring.memory().results()) == (["GPU-2"], {})
    measuring.result = 300 * MIB
    measuring.memory().measure(again=True)
    assert measuring.memory().results() == RESULT


def test_a_card_without_room_is_left_alone(measuring: Measuring) -> None:
    measuring.memory().measure({"GPU-1": 2 * GIB, "GPU-2": 0})
    assert measuring.measured == ["GPU-1"], "the other is assigned to pods"
    measuring.path.unlink()
    measuring.free = {"GPU-1": GIB - 1, "GPU-2": 0}
    measuring.memory().measure()
    assert (measuring.measured, measuring.memory().results()) == (["GPU-1"], {})
    assert not measuring.path.exists(), "it is tried at the next start"


def test_a_directory_that_cannot_be_written_is_no_error(measuring: Measuring) -> None:
    measuring.path = measuring.path.parent / "missing" / "file"
    measuring.memory().measure()
    assert measuring.memory().results() == {}


def test_a_node_agent_uses_estimates_until_the_measurement_ends(measuring: Measuring) -> None:
    cards = Cards()
    found = (Card("GPU-1", 0, "Model", 4096), Card("GPU-3", 1, "Other", 4096))
    estimate = DriverMemory(100 * MIB, 2 * MIB)
    cards.add(Inventory(found, {"GPU-1": estimate, "GPU-3": estimate}, DRIVER, {}))
    assert cards.driver_memory("GPU-1") == estimate
    cards.set_measured(RESULT)
    assert cards.driver_memory("GPU-1") == RESULT["Model"]
    assert cards.driver_memory("GPU-3") == estimate


def test_the_thread_of_the_agent_passes_the_results_on(measuring: Measuring) -> None:
    results = list[measured_memory.Results]()
    thread = measuring.memory().start(measuring.free, results.append)
    thread.join(20)
    assert results == [RESULT]


def test_an_agent_measures_when_it_acts(
    measuring: Measuring, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    api: Any = None
    has_ended = threading.Event()

    class Active:
        def __init__(self, *_: object, **__: object) -> None:
            """It only waits until the cards have the result."""

        def unassigned(self) -> dict[str, int]:
            return measuring.free

        def run(self) -> None:
            until = time.monotonic() + 20
            while agent._cards.driver_memory("GPU-1") != RESULT["Model"]:
                assert time.monotonic() < until
                time.sleep(0.01)
            has_ended.set()

    cards = (Card("GPU-1", 0, "Model", 4096),)
    monkeypatch.setattr(service, "ActiveAgent", Active)
    monkeypatch.setattr(service, "Server", lambda *_: None)
    monkeypatch.setattr(service, "install", lambda *_: None)
    monkeypatch.setattr(service, "inventory", lambda _: Inventory(cards, {}, DRIVER, {}))
    monkeypatch.setattr(service.os, "kill", lambda *_: None)
    for _ in range(2):
        has_ended.clear()
        agent = service.Agent(api, agent_settings(tmp_path))
        agent._thread.start()
        agent._thread.join(30)
        assert has_ended.is_set()
    assert measuring.measured == ["GPU-1"], "the second agent has the result from the start"


def test_the_program_prints_what_each_card_takes(gpu: StubServer) -> None:
    done = run([sys.executable, "-m", "hami_py.gpu.context_sample"], gpu.charging_env)
    assert "413 MiB" in done.out
