"""The figures for the driver's memory, and where a user sees it."""

import json
import re
import sys
from pathlib import Path

import pytest

from hami_py.gpu.driver_memory import CONTEXT_MIB, driver_memory
from hami_py.model.cards import UNKNOWN
from support.artifacts import Artifacts
from support.programs import Programs
from support.running import Started, run
from support.slices import MIB
from support.stub import StubServer
from unit.machine import Hami

PROFILES = Path(__file__).parents[1] / "stub" / "profiles"

CONTEXT = 413 * MIB
"""Bytes that a context takes on the stub's a100."""


def test_the_table_agrees_with_the_stub() -> None:
    """The stub takes its own figures from its profiles."""
    of_stub = {}
    for path in PROFILES.glob("*.toml"):
        found = dict(re.findall(r'^(name|context_bytes) = "?([^"\n]+)', path.read_text(), re.M))
        # Of a card whose memory NVML does not report, nothing is measured or known.
        is_reported = "nvml_memory = false" not in path.read_text()
        if "context_bytes" in found and is_reported:
            of_stub[found["name"]] = int(found["context_bytes"])
    # Its context has the size of an H200's: there is no figure of its own.
    del of_stub["NVIDIA B200"]
    assert {model: driver_memory(model).context for model in CONTEXT_MIB} == of_stub


def test_another_card_is_unknown() -> None:
    assert driver_memory("another card") == UNKNOWN


def test_a_bad_setting_is_refused(hami: Hami) -> None:
    done = hami("run", "--", "true", HAMI_CONTEXT_MEMORY="413")
    assert done.returncode == 125
    assert "HAMI_CONTEXT_MEMORY" in done.stderr and '"413"' in done.stderr
    assert "MiB" in done.stderr


@pytest.fixture
def environment(gpu: StubServer, artifacts: Artifacts, runtime: Path) -> dict[str, str]:
    """The environment of `hami`, as users have it."""
    ours = {"HAMI_RUNTIME_DIR": str(runtime), "HAMI_LIBRARY": str(artifacts.library)}
    return {**gpu.charging_env, **ours}


# The setting is above what a context takes. Were it below, `hami run` would measure the difference
# and charge it after a second.
@pytest.mark.parametrize(
    ("setting", "driver"), [({}, CONTEXT), ({"HAMI_CONTEXT_MEMORY": "500MiB"}, 500 * MIB)]
)
def test_a_run_shows_the_drivers_memory_apart(
    environment: dict[str, str], program: Programs, setting: dict[str, str], driver: int
) -> None:
    env = {**environment, **setting}
    command = [sys.executable, "-m", "hami_py"]
    hold = [str(program("hold")), "100", "0"]
    with Started([*command, "run", "--gpumem", "1GiB", "--", *hold], env) as holder:
        holder.wait_for("holding")
        (slice_,) = json.loads(run([*command, "ps", "--json"], env).out)
        (card,) = slice_["cards"]
        assert (card["memory_used"], card["driver_memory"]) == (driver + 100 * MIB, driver)
        ((process,),) = [one["cards"] for one in slice_["processes"] if one["cards"]]
        assert process["driver_memory"] == driver
        text = run([*command, "ps", "--processes"], env).out
        assert f"driver {driver // MIB}MiB" in text
        heads, line = (row.split() for row in text.splitlines()[:2])
        assert line[heads.index("DRIVER")] == f"{driver // MIB}MiB"
