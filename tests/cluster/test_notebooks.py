"""docs/machine.md, "Notebooks": JupyterHub on a machine whose users share a card.

Each test takes half a minute: only a real hub shows what its spawner leaves of an environment, and
what a kernel has of it.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from cluster.jupyterhub import Hub
from support.artifacts import ROOT, Artifacts
from support.commands import HamiCommand
from support.launcher import until
from support.programs import Programs
from support.requirements import skip_or_fail
from support.whole_machine import WholeMachine, memory_in

pytestmark = pytest.mark.timeout(900)

PAGE = (ROOT / "docs" / "machine.md").read_text().split("## Notebooks\n")[1].split("\n## ")[0]
(SETTINGS,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)

GIB = 1 << 30


@pytest.fixture
def machine(artifacts: Artifacts, program: Programs, tmp_path: Path) -> Iterator[WholeMachine]:
    """The machine, with the service on it."""
    if os.geteuid() != 0:
        skip_or_fail("it needs root: run it as root")
    hami = HamiCommand(artifacts, tmp_path / "runtime")
    with contextlib.closing(WholeMachine(artifacts, hami, program)) as machine:
        machine.serve()
        yield machine


def test_kernels_have_the_default_slice_without_a_setting(
    machine: WholeMachine, tmp_path: Path
) -> None:
    on = machine.hami("machine", "preload", "on")
    assert (on.code, on.err) == (0, "")
    with Hub(machine, "", tmp_path) as hub:
        with hub.server("anna"):
            assert memory_in(hub.kernel_sees("anna")) == 4 * GIB
            assert "anna" in machine.hami("ps", "--all").out
        with hub.server("bert"):
            assert "grants you no card" in hub.kernel_sees("bert")


def test_each_server_has_a_slice_that_ends_with_it(machine: WholeMachine, tmp_path: Path) -> None:
    settings = SETTINGS.replace("4GiB", "1GiB")
    assert settings != SETTINGS
    with Hub(machine, settings, tmp_path) as hub:
        with hub.server("anna"):
            assert memory_in(hub.kernel_sees("anna")) == GIB
            assert "anna" in machine.hami("ps", "--all").out
        until(lambda: "anna" not in machine.hami("ps", "--all").out, "the slice has ended")
        with contextlib.suppress(HTTPError):
            hub.start("bert")
        until(lambda: "grants none" in hub.log, "the hub's log has the reason")
    assert not list((machine.root / "run" / "hami" / "slices").iterdir())
