"""The package as a Python program uses it."""

import doctest
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import hami_py as hami
from hami_py import gpu
from hami_py.errors import CannotRun
from unit.machine import CARDS, GIB, environment


@pytest.fixture
def here(runtime: Path, two_cards: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process's own environment is that of the machine with two cards."""
    for name in ("HAMI_SLICE", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment(runtime).items():
        monkeypatch.setenv(name, value)


REPORT = """import json, os, hami_py as hami
limits = {card.uuid: card.memory for card in hami.limits().cards}
print(json.dumps([limits, os.environ.get("EXTRA")]))"""


def test_run_with_cards_and_an_environment(here: None) -> None:
    first, second = CARDS
    done = hami.run(
        [sys.executable, "-c", REPORT],
        gpumem={"1": "4GiB", first.uuid: "2GiB"},
        devices=["1", "0"],
        env={**os.environ, "EXTRA": "1"},
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout) == [
        {second.uuid: 4 * GIB, first.uuid: 2 * GIB},
        "1",
    ]


def test_run_ends_as_subprocess_run_does(here: None, runtime: Path) -> None:
    assert hami.run(["sh", "-c", "exit 7"]).returncode == 7
    assert hami.run(["sh", "-c", "kill -9 $$"]).returncode == -9
    with pytest.raises(subprocess.CalledProcessError):
        hami.run(["false"], check=True)
    with pytest.raises(FileNotFoundError):
        hami.run(["no-such-program"])
    assert list((runtime / "hami" / "slices").iterdir()) == []


def test_devices(here: None) -> None:
    assert hami.devices() == CARDS


def test_errors_have_cause_and_fix_and_survive_a_process_pool() -> None:
    for error in (
        hami.StateError("what", "why", "fix"),
        CannotRun("what", "why", "fix", status=127),
    ):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert type(copy) is type(error)
        assert str(copy) == "what: why; fix"
        assert vars(copy) == vars(error)


def test_a_refused_value_is_one_short_line() -> None:
    text = str(hami.InvalidValue("field", "a\n" * 100, "fix"))
    shown = "a\\n" * 32
    assert text == f'field: "{shown}"… is refused: fix'


def test_all_exceptions_have_one_base_class() -> None:
    raised = [getattr(hami, name) for name in hami.__all__]
    kinds = [kind for kind in raised if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) >= 10
    assert [kind for kind in kinds if not issubclass(kind, hami.HamiError)] == []
    assert {kind for kind in kinds if issubclass(kind, ValueError)} == {hami.InvalidValue}


def test_the_exceptions_of_limits_and_usage_are_documented(
    here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_driver() -> list[hami.Card]:
        raise hami.NoDriver("NVML", "no", "install it")

    unlike = [CARDS[0], hami.Card(1, "GPU-3", "NVIDIA T4", 16 * GIB)]
    for variables, cards, kind in (
        ({"LD_PRELOAD": "/nonexistent/libvgpu.so"}, None, hami.StateError),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "4gig"}, None, hami.InvalidValue),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "4g"}, no_driver, hami.NoDriver),
        (
            {"CUDA_DEVICE_MEMORY_LIMIT": "4g", "CUDA_VISIBLE_DEVICES": "1"},
            lambda: unlike,
            hami.UnknownCard,
        ),
    ):
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            if cards:
                patch.setattr(gpu, "cards", cards)
            for call in (hami.limits, hami.usage):
                with pytest.raises(kind):
                    call()
                assert kind.__name__ in (call.__doc__ or "").partition("Raises:")[2]


def test_the_examples_run(here: None) -> None:
    result = doctest.testmod(hami)
    assert result.attempted > 0
    assert result.failed == 0
