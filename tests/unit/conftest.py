"""Unit tests: no GPU, no driver, no preload library; real files, processes and signals."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hami_py import config, gpu
from hami_py.config import Settings
from unit import machine
from unit.machine import DEADLINE, Hami


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """What XDG_RUNTIME_DIR names in a test."""
    path = tmp_path / "runtime"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is on a machine with two cards."""
    monkeypatch.setattr(gpu, "cards", lambda: machine.CARDS)
    monkeypatch.setattr(gpu, "memory_free", lambda uuids: machine.FREE)


@pytest.fixture
def settings(runtime: Path, two_cards: None) -> Settings:
    """The settings of a process on that machine, in no slice."""
    return config.read(machine.environment(runtime))


@pytest.fixture
def hami(runtime: Path) -> Hami:
    """``hami("run", "true")`` runs the command line on a machine with two cards."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            machine.command(*arguments),
            env=machine.environment(runtime, **variables),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    return run


@pytest.fixture
def slices_of(runtime: Path) -> Callable[[], list[Path]]:
    """The slice directories that there are now."""

    def now() -> list[Path]:
        slices = runtime / "hami" / "slices"
        return sorted(slices.iterdir()) if slices.exists() else []

    return now
