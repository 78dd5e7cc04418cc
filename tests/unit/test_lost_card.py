"""The node agent reads its cards on a stub with a lost card: only that card is left out."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import sweeper
from support.programs import Programs
from support.running import Started, run
from support.stub import StubServer
from unit.test_sweep import listed, until

ROOT = Path(__file__).parents[2]

READ = """
import json
from hami_py.errors import HamiError
from hami_py.gpu import inventory, nvml, processes
try:
    found = inventory.inventory(slots=4)
    with nvml.session():
        used, listed = processes.memory_used(), processes.card_processes()
    print(json.dumps({
        "cards": [[card.uuid, card.index] for card in found.cards],
        "contexts": list(found.driver_memory),
        "left_out": found.left_out,
        "used": list(used),
        "processes": [[each.card, each.pid] for each in listed],
    }))
except HamiError as error:
    print(json.dumps({"error": str(error)}))
"""


def environment(server: StubServer) -> dict[str, str]:
    return {**server.env, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}


def read(server: StubServer) -> tuple[Any, str]:
    """The output of a program, and its log."""
    done = run([sys.executable, "-c", READ], environment(server))
    assert done.code == 0, done.err
    return json.loads(done.out), done.err


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_the_other_cards_are_read(
    stub_server: Callable[..., StubServer], program: Programs, lost: int
) -> None:
    server = stub_server("a100,a100,a100")
    others = [(uuid, index) for index, uuid in enumerate(server.uuids()) if index != lost]
    uuids = [uuid for uuid, _index in others]
    holding = Started([program("hold"), "100", str(others[1][1])], server.env)
    with holding.wait_for("holding"):
        server.control({"command": "lose", "card": lost})
        found, logged = read(server)
        assert found == {
            "cards": [list(card) for card in others],
            "contexts": uuids,
            "left_out": {str(lost): "GPU is lost"},
            "used": uuids,
            "processes": [[uuids[1], holding.pid]],
        }
    message = f"card {lost} is left out, because it does not answer: GPU is lost"
    assert logged.splitlines() == [message], "once, by the first that asks"


def test_if_no_card_answers_there_is_no_inventory(gpu: StubServer) -> None:
    gpu.control({"command": "lose", "card": 0})
    found, _logged = read(gpu)
    assert "GPU is lost" in found["error"]


def test_sweeps_go_on_while_a_card_is_lost(
    stub_server: Callable[..., StubServer], program: Programs, tmp_path: Path
) -> None:
    server = stub_server("a100,a100")
    runtime = tmp_path / "hami"
    runtime.mkdir()
    command = [sys.executable, sweeper.__file__, str(runtime)]
    holding = [Started([program("hold"), "100", card], server.env) for card in ("0", "1")]
    with (
        holding[0].wait_for("holding") as first,
        holding[1].wait_for("holding") as second,
        Started(command, environment(server)).wait_for("ready"),
    ):
        until((runtime / "sweep").exists)
        both, one = sorted([first.pid, second.pid]), [second.pid]
        until(lambda: listed(runtime) == both)
        server.control({"command": "lose", "card": 0})
        until(lambda: listed(runtime) == one)
        server.control({"command": "restore", "card": 0})
        until(lambda: listed(runtime) == both)
