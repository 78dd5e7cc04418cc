"""An agent that cannot work says so, and ends: the kubelet starts it again."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hami_py.agent import service
from hami_py.agent.active import ActiveAgent
from hami_py.agent.service import Agent
from hami_py.errors import StateError
from hami_py.gpu.inventory import Inventory
from hami_py.node.rounds import Rounds
from unit.agent.build import settings

Ended = tuple[Agent, list[int]]


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Ended]:
    """Let an agent run to its end; the agent, and which signals it has sent."""
    signals: list[int] = []

    def kill(process: int, number: int) -> None:
        assert process == os.getpid()
        signals.append(number)

    class Pages:
        def __init__(self, *_: object) -> None:
            """Nothing is served."""
            self.thread = threading.Thread()

    def run() -> Ended:
        api: Any = None
        agent = Agent(api, settings(tmp_path))
        agent._thread.start()
        agent._thread.join(10.0)
        return agent, signals

    monkeypatch.setattr(service, "Server", Pages)
    monkeypatch.setattr(service, "inventory", lambda _: Inventory((), {}, "1", {}))
    monkeypatch.setattr(service.os, "kill", kill)
    return run


def test_an_agent_without_a_library_is_not_ready(
    ended: Callable[[], Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(*_: object) -> None:
        raise StateError("the library", "No space left on device", "free some space")

    monkeypatch.setattr(service, "install", install)
    agent, signals = ended()
    assert (agent._ready()[0], signals) == (503, [signal.SIGTERM])


def test_an_agent_that_fails_when_it_is_active_is_not_ready(
    ended: Callable[[], Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails:
        def __init__(self, *_: object) -> None:
            raise OSError("no tmpfs")

    monkeypatch.setattr(service, "install", lambda *_: None)
    monkeypatch.setattr(service, "ActiveAgent", Fails)
    agent, signals = ended()
    assert (agent._ready()[0], signals) == (503, [signal.SIGTERM])
    assert agent._alive() == (503, "ended: node\n")
    agent._stopping.set()
    assert agent._alive() == (200, "alive\n")


@pytest.mark.parametrize(
    "name", ["gpu-health", "hook", "instances", "observe", "register", "report", "sweep"]
)
def test_each_thread_of_an_active_agent_is_named_when_it_has_ended(name: str) -> None:
    stops = {each: threading.Event() for each in ("gpu-health", "hook", "register", "sweep")}
    threads = {each: threading.Thread(target=stop.wait, name=each) for each, stop in stops.items()}
    rounds = {each: Rounds(each, [], 1.0) for each in ("observe", "instances", "report")}
    active: Any = object.__new__(ActiveAgent)
    active._health = SimpleNamespace(threads=[threads["gpu-health"]])
    active._registration = SimpleNamespace(thread=threads["register"])
    active._sweeping = threads["sweep"]
    active._hooks = SimpleNamespace(thread=threads["hook"])
    active._observing, active._reporting = rounds["observe"], rounds["report"]
    active._following = rounds["instances"]
    assert active.ended_threads() == []
    for each in (*threads.values(), *rounds.values()):
        each.start()
    assert active.ended_threads() == []

    def end(name: str) -> None:
        if name in rounds:
            rounds[name].stop()
        else:
            stops[name].set()
            threads[name].join(10.0)

    end(name)
    assert active.ended_threads() == [name]
    for other in {*threads, *rounds} - {name}:
        end(other)
