"""An agent that cannot work says so, and ends: the kubelet starts it again."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hami_py.agent import service
from hami_py.agent.service import Agent
from hami_py.errors import StateError
from hami_py.gpu.inventory import Inventory
from unit.agent.build import settings


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[int, list[int]]]:
    """Let an agent run to its end; what /readyz says then, and which signals it has sent."""
    signals: list[int] = []

    def kill(process: int, number: int) -> None:
        assert process == os.getpid()
        signals.append(number)

    class Pages:
        def __init__(self, *_: object) -> None:
            """Nothing is served."""

    def run() -> tuple[int, list[int]]:
        api: Any = None
        agent = Agent(api, settings(tmp_path))
        agent._thread.start()
        agent._thread.join(10.0)
        return agent._ready()[0], signals

    monkeypatch.setattr(service, "Server", Pages)
    monkeypatch.setattr(service, "inventory", lambda _: Inventory((), {}, "1", {}))
    monkeypatch.setattr(service.os, "kill", kill)
    return run


def test_an_agent_without_a_library_is_not_ready(
    ended: Callable[[], tuple[int, list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(*_: object) -> None:
        raise StateError("the library", "No space left on device", "free some space")

    monkeypatch.setattr(service, "install", install)
    assert ended() == (503, [signal.SIGTERM])


def test_an_agent_that_fails_when_it_is_active_is_not_ready(
    ended: Callable[[], tuple[int, list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails:
        def __init__(self, *_: object) -> None:
            raise OSError("no tmpfs")

    monkeypatch.setattr(service, "install", lambda *_: None)
    monkeypatch.setattr(service, "ActiveAgent", Fails)
    assert ended() == (503, [signal.SIGTERM])
