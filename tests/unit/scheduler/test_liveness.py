"""The liveness probe: an ended thread causes a restart, an unreachable API server does not."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import cast

import pytest
import urllib3

from hami_py.cluster.budgets import BUDGETS
from hami_py.cluster.state import NODES, PODS, QUOTAS
from hami_py.kube import ApiServer
from hami_py.kube.errors import Unavailable
from hami_py.scheduler.service import Scheduler
from hami_py.scheduler.settings import SchedulerSettings
from hami_py.serving import Listen
from support.launcher import until


class Panic(BaseException):
    """As of the engine: none of those exceptions that are caught."""


class Away:
    """An API server that does not answer; a list of one path ends the thread that asks for it."""

    def __init__(self, ends: str | None) -> None:
        self.asked: Counter[str] = Counter()
        self._ends = ends

    def get(self, path: str, query: Mapping[str, str] | None = None, *, deadline_s: float) -> bytes:
        self.asked[path] += 1
        if path == self._ends:
            raise Panic
        raise Unavailable(f"GET {path}", "no answer", "try again later")


@contextlib.contextmanager
def running(ends: str | None = None) -> Iterator[tuple[Scheduler, Away]]:
    listen, server = Listen("127.0.0.1", 0), Away(ends)
    scheduler = Scheduler(cast(ApiServer, server), SchedulerSettings(listen, expire_s=0.01))
    scheduler.start()
    try:
        yield scheduler, server
    finally:
        scheduler.stop()


def asked(scheduler: Scheduler, path: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{scheduler.server.port}{path}"
    answer = urllib3.request("GET", url, timeout=30.0, retries=False)
    return answer.status, answer.data.decode()


def ended(scheduler: Scheduler) -> str:
    """The text of /healthz, when it reports an error."""
    until(lambda: asked(scheduler, "/healthz")[0] != 200, "it is alive")
    status, text = asked(scheduler, "/healthz")
    assert status == 503
    return text


def test_an_unreachable_api_server_does_not_cause_a_restart() -> None:
    with running() as (scheduler, server):
        paths = (NODES, PODS, QUOTAS, BUDGETS)
        until(lambda: all(server.asked[path] > 1 for path in paths), "not all are asked twice")
        assert asked(scheduler, "/healthz") == (200, "alive\n")
        assert asked(scheduler, "/readyz")[0] == 503


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("path", [NODES, PODS, QUOTAS, BUDGETS])
def test_an_ended_watch_thread_causes_a_restart(path: str) -> None:
    with running(path) as (scheduler, _):
        assert ended(scheduler) == f"ended: watch {path}\n"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_ended_expiry_thread_causes_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    def end() -> None:
        raise Panic

    with running() as (scheduler, _):
        monkeypatch.setattr(scheduler.verbs.holds, "expire", end)
        assert ended(scheduler) == "ended: expire\n"


def test_an_ended_listener_causes_a_restart() -> None:
    with running() as (scheduler, _):
        scheduler.server.stop()
        assert scheduler.ended_threads() == ["http"]


def test_a_scheduler_that_is_stopped_has_not_crashed() -> None:
    with running() as (scheduler, _):
        scheduler.stop()
        assert scheduler.ended_threads() == []
